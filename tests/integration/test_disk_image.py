"""Images on real loop devices: created, resized, removed, without leftovers after failures."""

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import CapacityExhaustedError, ConflictError, PaddockError
from orchestrator.host.workspace import disk_image, ext4, loop, mounts
from orchestrator.host.workspace.disk_image import DiskImages
from orchestrator.host.workspace.prepared_slots import READY, PreparedSlots
from tests.support.leaks import devices_below, unmount_all

MIB = 1024 * 1024
UID = 1_900_001_236


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "slots" / "0123456789abcdef"
    unmount_all(tmp_path)


@pytest.fixture
def images() -> DiskImages:
    return DiskImages()


def everything(slot: Path) -> list[str]:
    return sorted(os.listdir(slot)) if slot.exists() else []


def test_it_is_mounted_with_flags_and_shows_the_data_only(images: DiskImages, slot: Path) -> None:
    data = images.open(slot, UID, 64 * MIB)
    assert list(data.iterdir()) == []
    facts = data.stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (UID, UID, 0o700)
    flags = os.statvfs(data).f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV
    assert flags & os.ST_NOATIME
    usage = images.usage(slot, UID)
    assert usage is not None
    # Even a small file system uses less than a sixth of its size for itself.
    assert 54 * MIB < usage.limit_bytes < 64 * MIB
    assert usage.used_bytes < MIB
    image = slot / "workspace.img"
    assert image.stat().st_size == 64 * MIB
    assert image.stat().st_mode & 0o777 == 0o600
    assert image.stat().st_blocks * 512 < MIB


def test_removed_it_leaves_no_mount_device_or_file(images: DiskImages, slot: Path) -> None:
    images.remove(slot, UID)
    data = images.open(slot, UID, 64 * MIB)
    (data / "directory").mkdir()
    (data / "directory" / "file").write_text("x")
    assert devices_below(slot) != []
    images.remove(slot, UID)
    assert not slot.exists()
    assert mounts.mounts_under(str(slot)) == []
    assert devices_below(slot) == []
    images.remove(slot, UID)


def test_data_outlives_the_mount(images: DiskImages, slot: Path) -> None:
    data = images.open(slot, UID, 64 * MIB)
    (data / "file").write_text("kept")
    mounts.unmount(str(slot / "fs"))
    assert not data.exists()
    assert images.usage(slot, UID) is None
    images.mount(slot)
    images.mount(slot)
    assert len(mounts.mounts_under(str(slot))) == 1
    assert (data / "file").read_text() == "kept"


def test_removed_files_give_the_host_its_blocks_back(images: DiskImages, slot: Path) -> None:
    data = images.open(slot, UID, 64 * MIB)
    (data / "file").write_bytes(os.urandom(40 * MIB))
    os.sync()
    image = slot / "workspace.img"
    assert image.stat().st_blocks * 512 > 40 * MIB
    (data / "file").unlink()
    # Once the removal is on disk, the discard is queued, and unmounting waits for the queue.
    os.sync()
    mounts.unmount(str(slot / "fs"))
    assert image.stat().st_blocks * 512 < 6 * MIB


@pytest.mark.parametrize("limit", [16, 64, 1000])
def test_it_grows_and_shrinks_with_its_limit(images: DiskImages, slot: Path, limit: int) -> None:
    data = images.open(slot, UID, 256 * MIB)
    content = os.urandom(5 * MIB)
    (data / "file").write_bytes(content)
    assert images.open(slot, UID, limit * MIB + 100) == data
    assert (slot / "workspace.img").stat().st_size == limit * MIB
    assert ext4.measure(slot / "workspace.img").size == limit * MIB
    assert (data / "file").read_bytes() == content
    assert everything(slot) == ["fs", "workspace.img"]


def test_what_does_not_fit_is_full_until_something_is_removed(
    images: DiskImages, slot: Path
) -> None:
    data = images.open(slot, UID, 400 * MIB)
    for number in range(6):
        (data / f"{number}").write_bytes(os.urandom(25 * MIB))
    images.open(slot, UID, 48 * MIB)
    image = slot / "workspace.img"
    assert 150 * MIB < image.stat().st_size < 165 * MIB
    usage = images.usage(slot, UID)
    assert usage is not None
    assert usage.limit_bytes - usage.used_bytes < 6 * MIB
    before = image.stat().st_ino
    images.open(slot, UID, 48 * MIB)
    assert image.stat().st_ino == before  # a smaller copy would gain nothing
    for number in range(5):
        (data / f"{number}").unlink()
    images.open(slot, UID, 48 * MIB)
    assert image.stat().st_size == 48 * MIB
    assert (data / "5").stat().st_size == 25 * MIB


def test_a_workspace_in_use_on_the_host_keeps_its_size(
    images: DiskImages, slot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = images.open(slot, UID, 64 * MIB)
    (data / "file").write_text("kept")
    with (data / "file").open() as file:
        with monkeypatch.context() as patch:
            patch.setattr(disk_image, "RESIZE_SECONDS", 0.2)
            with pytest.raises(ConflictError, match="on the host uses"):
                images.open(slot, UID, 32 * MIB)
        assert (data / "file").read_text() == "kept"
        # The reader keeps the unmounted file system alive; mounting shows the same one again.
        mounts.unmount(str(slot / "fs"))
        assert loop.in_use(slot / "workspace.img")
        images.mount(slot)
        assert len(devices_below(slot)) == 1
        assert file.read() == "kept"
    images.open(slot, UID, 32 * MIB)
    assert (slot / "workspace.img").stat().st_size == 32 * MIB


def test_a_resize_that_fails_changes_nothing(
    images: DiskImages, slot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = images.open(slot, UID, 64 * MIB)
    (data / "file").write_text("kept")

    def fail(_descriptor: int) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        images.open(slot, UID, 32 * MIB)
    monkeypatch.undo()
    assert everything(slot) == ["fs", "workspace.img"]
    assert (slot / "workspace.img").stat().st_size == 64 * MIB
    assert (data / "file").read_text() == "kept"


def test_a_device_that_another_process_takes_first(
    slot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any process can take the free device that the kernel names until it is bound."""
    for name in ("ours", "theirs"):
        (tmp_path / name).write_bytes(bytes(MIB))
    real: Callable[..., Any] = fcntl.ioctl
    with loop.attached(tmp_path / "theirs") as taken:
        answers = iter([int(taken.removeprefix("/dev/loop"))])

        def ioctl(descriptor: int, code: int, *more: object) -> object:
            first = next(answers, None) if code == 0x4C82 else None
            return real(descriptor, code, *more) if first is None else first

        monkeypatch.setattr(fcntl, "ioctl", ioctl)
        with loop.attached(tmp_path / "ours") as device:
            assert device != taken
    assert devices_below(tmp_path) == []


def test_links_are_not_followed(slot: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(MIB))
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"), loop.attached(tmp_path / "link"):
        pass


@pytest.mark.parametrize("step", ["make", "mount", "data"])
def test_what_fails_can_be_removed(
    images: DiskImages, slot: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(5, "broken")

    place = {
        "make": "orchestrator.host.workspace.ext4._run",
        "mount": "orchestrator.host.workspace.mounts.mount_device",
        "data": "orchestrator.host.workspace.disk_image.make_data",
    }[step]
    monkeypatch.setattr(place, fail)
    with pytest.raises(OSError, match="broken"):
        images.open(slot, UID, 64 * MIB)
    monkeypatch.undo()
    images.remove(slot, UID)
    assert not slot.exists()
    assert devices_below(slot) == []


def test_a_tool_that_fails_says_why_and_leaves_nothing(images: DiskImages, slot: Path) -> None:
    with pytest.raises(PaddockError, match=r"mkfs\.ext4 failed: "):
        images.open(slot, UID, 4096)
    assert everything(slot) == []


def test_a_host_without_room_is_said(images: DiskImages, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", small], check=True)
    try:
        slot = small / "slots" / "0123456789abcdef"
        with pytest.raises(CapacityExhaustedError, match="disk space") as caught:
            images.open(slot, UID, 64 * MIB)
        assert caught.value.fields["retry_after"] > 0
        assert everything(slot) == []
    finally:
        mounts.unmount(str(small))


def test_this_host_is_tried_without_a_trace(tmp_path: Path) -> None:
    # The state that a killed probe leaves.
    DiskImages().open(tmp_path / "probe", 0, 16 * MIB)
    assert disk_image.refusal(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert devices_below(tmp_path) == []


def test_a_host_without_the_tools_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ext4, "_PATH", "/nowhere")
    assert "mkfs.ext4, e2fsck, resize2fs not found" in (disk_image.refusal(tmp_path) or "")


def test_a_slot_made_ahead_is_one_like_others(tmp_path: Path, slot: Path) -> None:
    ahead = tmp_path / "prepared"
    slots = PreparedSlots(ahead)
    slots.clear()
    slots.refill(64 * MIB)
    assert len(list(ahead.iterdir())) == len(mounts.mounts_under(str(ahead))) == READY
    images = DiskImages(slots.take)
    data = images.open(slot, UID, 64 * MIB)
    (data / "file").write_text("x")
    assert (data.stat().st_uid, data.stat().st_mode & 0o777) == (UID, 0o700)
    assert mounts.mounts_under(str(slot.parent)) == [str(slot / "fs")]
    assert len(mounts.mounts_under(str(ahead))) == READY - 1
    assert ext4.measure(slot / "workspace.img").size == 64 * MIB
    assert images.open(slot, UID, 32 * MIB) == data  # resized, so mounted again
    assert (data / "file").read_text() == "x"
    images.remove(slot, UID)
    slots.clear()
    assert list(ahead.iterdir()) == []
    assert devices_below(tmp_path) == []


def test_what_a_killed_process_made_ahead_is_removed(tmp_path: Path, slot: Path) -> None:
    """Complete or not, mounted or not, in the form of this version or of an earlier one."""
    ahead = tmp_path / "prepared"
    slots = PreparedSlots(ahead)
    slots.clear()
    slots.refill(32 * MIB)
    complete, unmounted, *_ = sorted(ahead.iterdir())
    complete.rename(ahead / "0123456789abcdef.new")
    mounts.unmount(str(unmounted / "fs"))
    (ahead / "0123456789abcde0.new").mkdir()
    (ahead / "0123456789abcde0.new" / "workspace.img.new").write_text("begun")
    (ahead / "33554432-0123456789abcdef.img").write_text("of an earlier version")
    PreparedSlots(ahead).clear()
    assert list(ahead.iterdir()) == []
    assert mounts.mounts_under(str(tmp_path)) == []
    assert devices_below(tmp_path) == []


def test_slots_made_ahead_that_the_host_still_uses_share_one_wait(
    tmp_path: Path,
    slot: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ahead = tmp_path / "prepared"
    ahead.mkdir()
    PreparedSlots(ahead).refill(64 * MIB)
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock.monotonic)
    monkeypatch.setattr("time.sleep", clock.sleep)
    with ExitStack() as users:
        for made in ahead.iterdir():
            users.enter_context((made / "fs" / "used").open("w"))
        PreparedSlots(ahead).clear()
        assert everything(ahead) == []
    assert clock.now < 2 * disk_image.RELEASE_SECONDS
    assert devices_below(ahead) == []
    # They are nearly empty, so there is nothing that an operator could do or save.
    assert caplog.records == []


def test_a_workspace_that_the_host_still_uses_is_said(
    images: DiskImages,
    slot: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = images.open(slot, UID, 64 * MIB)
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock.monotonic)
    monkeypatch.setattr("time.sleep", clock.sleep)
    with (data / "used").open("w"):
        images.remove(slot, UID)
        assert everything(slot) == []
    assert "its space will be freed later" in caplog.text


class Clock:
    """Time that passes only while somebody sleeps, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_refill_that_fails_leaves_nothing(
    tmp_path: Path, slot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = PreparedSlots(tmp_path / "prepared")
    slots.clear()

    def fail(*_: object) -> None:
        raise mounts.MountError("no mount")

    monkeypatch.setattr(mounts, "mount_device", fail)
    with pytest.raises(mounts.MountError):
        slots.refill(32 * MIB)
    assert list((tmp_path / "prepared").iterdir()) == []
    assert devices_below(tmp_path) == []


def test_a_copy_that_a_killed_resizing_left_is_removed(images: DiskImages, slot: Path) -> None:
    """Its workspace may never be resized again, and the copy is as large."""
    images.open(slot, UID, 64 * MIB)
    (slot / "workspace.img.new").write_bytes(b"half a copy")
    images.mount(slot)
    assert everything(slot) == ["fs", "workspace.img"]
