"""The choice of a driver, superblocks, image sizes, project quotas."""

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.config_error import ConfigError
from orchestrator.host.workspace import ext4, project_quota
from orchestrator.host.workspace.disk_image import DiskImages
from orchestrator.host.workspace.ext4 import FileSystem, ImageError
from orchestrator.host.workspace.prepared_slots import MOST, READY, PreparedSlots
from orchestrator.host.workspace.project_quota import ProjectQuotas, ProjectUse
from orchestrator.host.workspace.quota import Choice, DiskUsage, Quota, choose

MIB = 1024 * 1024


def refusals(**found: str | None) -> list[tuple[Quota, Callable[[], str | None]]]:
    return [(Quota(name), lambda why=why: why) for name, why in found.items()]  # type: ignore[misc]


def test_the_first_that_works_is_used() -> None:
    assert choose("auto", refusals(image=None, project=None)) == Choice(Quota.IMAGE)
    assert choose("auto", refusals(image="no loop", project=None)) == Choice(
        Quota.PROJECT, ("image: no loop",)
    )
    assert choose("auto", refusals(image="no loop", project="no quota")) == Choice(
        Quota.NONE, ("image: no loop", "project: no quota")
    )


def test_what_is_demanded_is_used_or_refused() -> None:
    assert choose("project", refusals(image=None, project=None)) == Choice(Quota.PROJECT)
    assert choose("none", refusals(image=None)).quota is Quota.NONE
    with pytest.raises(ConfigError, match="PADDOCK_WORKSPACE_QUOTA: image: no loop"):
        choose("image", refusals(image="no loop", project=None))


def superblock(blocks: int, free: int, shift: int = 2) -> bytes:
    data = bytearray(1024)
    for at, value in ((4, blocks), (12, free)):
        struct.pack_into("<I", data, at, value & 0xFFFFFFFF)
    for at, value in ((0x150, blocks), (0x158, free)):
        struct.pack_into("<I", data, at, value >> 32)
    struct.pack_into("<I", data, 24, shift)
    struct.pack_into("<H", data, 56, 0xEF53)
    return bytes(data)


@given(blocks=st.integers(0, 2**40), free=st.integers(0, 2**40))
def test_a_superblock_is_read(blocks: int, free: int) -> None:
    assert ext4.parse_superblock(superblock(blocks, free)) == FileSystem(blocks * 4096, free * 4096)


@given(st.binary(max_size=1100))
def test_what_is_no_superblock_is_said(data: bytes) -> None:
    if data[56:58] != b"\x53\xef":
        with pytest.raises(ImageError, match="no ext4"):
            ext4.parse_superblock(data)


@pytest.mark.parametrize(
    ("size", "free", "limit", "wanted"),
    [
        (64, 60, 64, None),
        (64, 60, 128, 128),
        (128, 100, 64, 64),
        (128, 20, 64, 64),  # too full to shrink to 64, but it may release some space
        (128, 2, 64, None),  # already shrunk to its minimum size
        (128, 2, 256, 256),
    ],
)
def test_the_size_that_an_image_gets(size: int, free: int, limit: int, wanted: int | None) -> None:
    found = FileSystem(size * MIB, free * MIB)
    expected = None if wanted is None else wanted * MIB
    # The size is rounded down to whole blocks.
    assert ext4.wanted_size(found, limit * MIB + 4095) == expected


def test_the_least_size_is_read_from_the_tool() -> None:
    said = "resize2fs 1.47.0 (5-Feb-2023)\nEstimated minimum size of the filesystem: 1556"
    assert ext4.least_size(said) == 1556 * 4096
    with pytest.raises(ImageError):
        ext4.least_size("resize2fs 1.47.0 (5-Feb-2023)")


def test_a_copy_keeps_data_and_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.seek(8 * MIB)
        file.write(os.urandom(MIB))
        file.truncate(32 * MIB)
    ext4.copy_sparse(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < 4 * MIB


def fill(directory: Path, size: int, count: int) -> None:
    for number in range(count):
        slot = directory / f"{size}-{number:016x}"
        slot.mkdir(parents=True)
        (slot / "workspace.img").write_text("x")


def test_prepared_slots_are_taken_once(tmp_path: Path) -> None:
    slots = PreparedSlots(tmp_path / "prepared")
    fill(tmp_path / "prepared", 100, 2)
    (tmp_path / "b").mkdir()  # as a creation that was killed leaves it
    assert slots.take(100, tmp_path / "a")
    assert not slots.take(10, tmp_path / "b")
    assert slots.take(100, tmp_path / "b")
    assert not slots.take(100, tmp_path / "c")
    assert (tmp_path / "b" / "workspace.img").read_text() == "x"


def test_a_slot_that_is_begun_is_not_replaced(tmp_path: Path) -> None:
    slots = PreparedSlots(tmp_path / "prepared")
    fill(tmp_path / "prepared", 100, 1)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "workspace.img.new").write_text("begun")
    assert not slots.take(100, tmp_path / "a")
    assert slots.take(100, tmp_path / "b")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots without images."""

    def create(_images: DiskImages, slot: Path, _size: int) -> None:
        slot.mkdir()

    monkeypatch.setattr(DiskImages, "create", create)


@pytest.mark.usefixtures("made")
def test_sizes_that_nobody_asks_for_make_room(tmp_path: Path) -> None:
    slots = PreparedSlots(tmp_path)
    for size in range(10, 20):
        slots.refill(size)
        assert len(list(tmp_path.glob(f"{size}-*"))) == READY
        assert len(list(tmp_path.iterdir())) <= MOST


def test_what_can_t_be_removed_is_never_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have lost its mount, and with it its limit."""
    slots = PreparedSlots(tmp_path / "prepared")
    fill(tmp_path / "prepared", 100, 2)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(DiskImages, "discard", fail)
    slots.clear()
    assert not slots.take(100, tmp_path / "a")
    assert caplog.text.count("is not removed") == 2


class FakeCalls:
    """A file system with project quotas."""

    def __init__(self) -> None:
        self.limits: dict[int, tuple[int, int]] = {}
        self.projects: dict[Path, int] = {}

    def quota(self, directory: Path, project: int) -> ProjectUse:
        assert directory.is_dir()
        return ProjectUse(7, self.limits.get(project, (0, 0))[0])

    def limit(self, directory: Path, project: int, size: int, files: int) -> None:
        self.limits[project] = (size, files)

    def assign(self, directory: Path, project: int) -> None:
        self.projects[directory] = project


def test_a_project_holds_a_workspace_until_it_is_removed(tmp_path: Path) -> None:
    calls, slot, uid = FakeCalls(), tmp_path / "slots" / "s", os.getuid()
    driver = ProjectQuotas(calls)
    data = driver.open(slot, uid, 64 * MIB)
    assert calls.projects == {data: uid}
    assert calls.limits == {uid: (64 * MIB, 8192)}
    assert driver.usage(slot, uid) == DiskUsage(7, 64 * MIB)
    assert driver.open(slot, uid, 32 * MIB) == data
    assert driver.usage(slot, uid) == DiskUsage(7, 32 * MIB)
    driver.remove(slot, uid)
    driver.remove(slot, uid)
    assert calls.limits == {uid: (0, 0)}
    assert not slot.exists()


@pytest.mark.parametrize(
    ("number", "why"),
    [(errno.ENOSYS, "kernel"), (errno.ESRCH, "prjquota"), (errno.EPERM, "Operation not permitted")],
)
def test_why_there_are_no_project_quotas(tmp_path: Path, number: int, why: str) -> None:
    class Refusing(FakeCalls):
        def quota(self, directory: Path, project: int) -> ProjectUse:
            raise OSError(number, os.strerror(number))

    assert why in (project_quota.refusal(tmp_path, Refusing()) or "")
    assert project_quota.refusal(tmp_path, FakeCalls()) is None
