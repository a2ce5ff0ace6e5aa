"""Copies of images on real loop devices: of one moment, shared where the disk can, never halves."""

import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ground.errors import CapacityExhaustedError, ConflictError
from orchestrator.host.workspace import image_clone, mounts
from orchestrator.host.workspace.disk_image import DRAFT, DiskImages
from orchestrator.host.workspace.freezing import Freezes
from orchestrator.sandbox.named_snapshots.snapshot_files import SnapshotFiles
from tests.support.leaks import devices_below, unmount_all

MIB = 1024 * 1024
UID, OTHER = 1_900_001_238, 1_900_001_239
FREEZE = 0xC0045877


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "slots"
    unmount_all(tmp_path)


@pytest.fixture
def images() -> DiskImages:
    return DiskImages()


def nothing(_: int) -> None:
    """Progress that nobody looks at."""


def begun(images: DiskImages, source: Path, slot: Path, uid: int) -> Path:
    """The data of a slot that begins as the image `source`."""
    slot.mkdir(parents=True)
    image_clone.place(source, slot, slot / DRAFT, nothing)
    return images.open(slot, uid, 64 * MIB)


def test_files_become_another_users_and_stay_so(images: DiskImages, slots: Path) -> None:
    data = images.open(slots / "one", UID, 64 * MIB)
    (data / "file").write_text("one")
    os.chown(data / "file", UID, UID)
    saved = image_clone.save(slots / "one", slots / "saved", nothing, Freezes())
    assert (saved.size, saved.used_bytes > 0, saved.frozen_ms) == (64 * MIB, True, 0.0)
    copy = begun(images, slots / "saved", slots / "two", OTHER)
    for _ in range(2):
        found = [(copy / name).stat() for name in (".", "file")]
        assert {(each.st_uid, each.st_gid) for each in found} == {(OTHER, OTHER)}
        images.unmount(slots / "two")
        images.mount(slots / "two", OTHER)
    assert images.open(slots / "two", OTHER, 128 * MIB) == copy
    assert (copy / "file").stat().st_uid == OTHER
    (copy / "file").write_text("two")
    assert (data / "file").read_text() == "one"


def test_a_mount_that_was_interrupted_is_completed(images: DiskImages, slots: Path) -> None:
    images.open(slots / "one", UID, 64 * MIB)
    image_clone.save(slots / "one", slots / "saved", nothing, Freezes())
    copy = begun(images, slots / "saved", slots / "two", OTHER)
    images.unmount(slots / "two")
    images.mount(slots / "two")  # as before the id-mapped one takes its place
    assert copy.stat().st_uid == UID
    images.mount(slots / "two", OTHER)
    assert copy.stat().st_uid == OTHER
    assert len(mounts.mounts_under(str(slots / "two"))) == 1


def _write_pairs(data: Path, stop: threading.Event, wrote: threading.Event) -> None:
    """Writes a number to one file and then to the other, so that the second is never ahead."""
    number = 0
    while not stop.is_set():
        number += 1
        for name in ("first", "second"):
            with (data / name).open("wb", buffering=0) as file:
                file.write(b"%d" % number)
                os.fsync(file.fileno())
        wrote.set()


def test_a_copy_of_what_is_written_is_of_one_moment(images: DiskImages, slots: Path) -> None:
    data = images.open(slots / "one", UID, 64 * MIB)
    (data / "large").write_bytes(os.urandom(30 * MIB))
    stop, wrote = threading.Event(), threading.Event()
    writer = threading.Thread(target=_write_pairs, args=(data, stop, wrote))
    writer.start()
    calls: list[int] = []

    def meanwhile(count: int) -> None:
        """Lets something be written during the first copy, for which nothing is frozen."""
        calls.append(count)
        if len(calls) == 1:
            wrote.clear()
            assert wrote.wait(60)

    try:
        assert wrote.wait(60)
        saved = image_clone.save(slots / "one", slots / "saved", meanwhile, Freezes())
    finally:
        stop.set()
        writer.join()
    assert saved.frozen_ms > 0
    copy = begun(images, slots / "saved", slots / "two", OTHER)
    first, second = (int((copy / name).read_bytes() or b"0") for name in ("first", "second"))
    assert 0 <= first - second <= 1 or first == 0
    assert (copy / "large").read_bytes() == (data / "large").read_bytes()
    images.unmount(slots / "two")
    subprocess.run(["e2fsck", "-fn", slots / "two" / "workspace.img"], check=True)


def test_it_is_not_frozen_for_long(
    images: DiskImages, slots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = images.open(slots / "one", UID, 64 * MIB)
    monkeypatch.setattr(image_clone, "MOST_FROZEN_SECONDS", 0.0)

    def write(_: int) -> None:
        handle = os.open(data / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, b"x")
            os.fsync(handle)
        finally:
            os.close(handle)

    calls: list[int] = []

    def once(count: int) -> None:
        calls.append(count)
        if len(calls) == 1:
            write(count)

    with pytest.raises(ConflictError, match="pause the session"):
        image_clone.save(slots / "one", slots / "saved", once, Freezes())
    write(0)  # it would wait for ever


def _freeze(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, FREEZE, 0)
    finally:
        os.close(handle)


def test_what_a_dead_process_has_frozen_is_thawed(images: DiskImages, slots: Path) -> None:
    data = images.open(slots / "one", UID, 64 * MIB)
    _freeze(data)
    images.mount(slots / "one", UID)
    (data / "file").write_text("goes on")
    _freeze(data)
    images.remove(slots / "one", UID)
    assert not (slots / "one").exists()
    assert devices_below(slots) == []


def test_a_full_disk_is_told_and_nothing_is_left(images: DiskImages, slots: Path) -> None:
    images.open(slots / "one", UID, 64 * MIB)
    kept = slots.parent / "snapshots"
    files = SnapshotFiles(kept, reserve=2**60)
    with pytest.raises(CapacityExhaustedError, match="short of disk space"):
        files.save("snap-1", slots / "one", nothing, Freezes())
    assert os.listdir(kept) == []
    with pytest.raises(ConflictError, match="is gone"):
        SnapshotFiles(kept, 0).save("snap-1", slots / "two", nothing, Freezes())


def _xfs(directory: Path) -> Path:
    """A file system that shares blocks."""
    disk, top = directory / "disk", directory / "xfs"
    top.mkdir()
    with disk.open("wb") as file:
        file.truncate(400 * MIB)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", disk], check=True)
    subprocess.run(["mount", "-o", "loop", disk, top], check=True)
    return top


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="needs xfsprogs")
def test_blocks_are_shared_where_the_disk_can(images: DiskImages, tmp_path: Path) -> None:
    top = _xfs(tmp_path)
    try:
        slots = top / "slots"
        data = images.open(slots / "one", UID, 200 * MIB)
        (data / "large").write_bytes(os.urandom(150 * MIB))
        seen: list[int] = []
        saved = image_clone.save(slots / "one", top / "saved", seen.append, Freezes())
        assert (saved.method, seen, saved.frozen_ms > 0) == ("reflink", [], True)
        copy = slots / "two"
        copy.mkdir()
        assert image_clone.place(top / "saved", copy, copy / DRAFT, nothing) == "reflink"
        there = images.open(copy, OTHER, 200 * MIB)  # three times 150 MiB would not fit
        assert (there / "large").read_bytes() == (data / "large").read_bytes()
    finally:
        unmount_all(top)
        subprocess.run(["umount", top], check=True)
