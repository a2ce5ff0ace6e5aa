"""Purging a slot in its helper process, as the workspace's own uid."""

import os
from pathlib import Path

import pytest

from orchestrator.workspace.purge import PurgeError, purge_slot
from orchestrator.workspace.slots import create_slot

SLOT = "0123456789abcdef"
UID = 1_900_001_235


def own(top: Path, uid: int = UID) -> None:
    """Gives a tree to the workspace's uid."""
    for directory, names, files in os.walk(top):
        for name in names + files:
            os.chown(os.path.join(directory, name), uid, uid, follow_symlinks=False)


async def test_everything_of_the_workspace_goes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    data = create_slot(tmp_path, SLOT, UID)
    (data / "a" / "b" / "c").mkdir(parents=True)
    (data / "a" / "b" / "c" / "file").write_text("x")
    (data / "a" / "link").symlink_to(outside)
    (data / "full").mkdir()
    (data / "full" / "file").write_text("x")
    os.link(outside / "file", data / "a" / "hard")
    os.mkfifo(data / "a" / "fifo")
    own(data)
    os.chown(outside / "file", 0, 0)
    for locked in ("a/b", "a", "full"):
        (data / locked).chmod(0)
    data.chmod(0)
    await purge_slot(tmp_path, SLOT, UID)
    assert not (tmp_path / "slots" / SLOT).exists()
    assert (outside / "file").read_text() == "kept"
    await purge_slot(tmp_path, SLOT, UID)


async def test_a_deep_tree_goes(tmp_path: Path) -> None:
    data = create_slot(tmp_path, SLOT, UID)
    parent = os.open(data, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=parent)
        os.chown("d", UID, UID, dir_fd=parent)
        child = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)
    await purge_slot(tmp_path, SLOT, UID)
    assert not data.exists()


async def test_files_of_others_are_beyond_it(tmp_path: Path) -> None:
    """The helper has the workspace's rights: what root left locked there stays."""
    data = create_slot(tmp_path, SLOT, UID)
    (data / "foreign").mkdir(mode=0o700)
    (data / "foreign" / "file").write_text("kept")
    with pytest.raises(PurgeError, match="not permitted"):
        await purge_slot(tmp_path, SLOT, UID)
    assert (data / "foreign" / "file").read_text() == "kept"


async def test_it_is_bounded_in_time(tmp_path: Path) -> None:
    data = create_slot(tmp_path, SLOT, UID)
    (data / "file").write_text("x")
    own(data)
    with pytest.raises(PurgeError, match="within 0 s"):
        await purge_slot(tmp_path, SLOT, UID, time_limit=0)
    await purge_slot(tmp_path, SLOT, UID)
    assert not data.exists()


async def test_an_empty_slot_needs_no_helper(tmp_path: Path) -> None:
    """A crash may leave a data directory that was not given to its uid yet."""
    data = create_slot(tmp_path, SLOT, UID)
    os.chown(data, 0, 0)
    await purge_slot(tmp_path, SLOT, UID)
    assert not data.exists()


async def test_never_as_root(tmp_path: Path) -> None:
    data = create_slot(tmp_path, SLOT, UID)
    (data / "file").write_text("x")
    with pytest.raises(PurgeError, match="never purged as root"):
        await purge_slot(tmp_path, SLOT, 0)
