"""Purging a slot in its helper process, as the workspace's own uid."""

import os
from pathlib import Path

import pytest

from orchestrator.host.workspace.plain_directory import PlainDirectories
from orchestrator.host.workspace.purge import PurgeError, purge_directory

UID = 1_900_001_235


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    return tmp_path / "slots" / "0123456789abcdef"


@pytest.fixture
def data(slot: Path) -> Path:
    return PlainDirectories().open(slot, UID, size=0)


def purge(slot: Path) -> None:
    PlainDirectories().remove(slot, UID)


def own(top: Path, uid: int = UID) -> None:
    """Changes the owner of a tree to the workspace's uid."""
    for directory, names, files in os.walk(top):
        for name in names + files:
            os.chown(os.path.join(directory, name), uid, uid, follow_symlinks=False)


def test_everything_of_the_workspace_goes(tmp_path: Path, slot: Path, data: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
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
    purge(slot)
    assert not slot.exists()
    assert (outside / "file").read_text() == "kept"
    purge(slot)


def test_a_deep_tree_goes(slot: Path, data: Path) -> None:
    parent = os.open(data, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=parent)
        os.chown("d", UID, UID, dir_fd=parent)
        child = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)
    purge(slot)
    assert not data.exists()


def test_files_of_others_are_beyond_it(slot: Path, data: Path) -> None:
    """The helper has only the workspace's rights, so files that root locked there remain."""
    (data / "foreign").mkdir(mode=0o700)
    (data / "foreign" / "file").write_text("kept")
    with pytest.raises(PurgeError, match="not permitted"):
        purge(slot)
    assert (data / "foreign" / "file").read_text() == "kept"


def test_it_is_bounded_in_time(slot: Path, data: Path) -> None:
    (data / "file").write_text("x")
    own(data)
    with pytest.raises(PurgeError, match="within 0 s"):
        purge_directory(slot, data, UID, time_limit=0)
    purge(slot)
    assert not data.exists()


def test_an_empty_slot_needs_no_helper(slot: Path, data: Path) -> None:
    """A crash may leave a data directory that does not belong to its uid yet."""
    os.chown(data, 0, 0)
    purge(slot)
    assert not data.exists()


def test_never_as_root(slot: Path, data: Path) -> None:
    (data / "file").write_text("x")
    with pytest.raises(PurgeError, match="never used as root"):
        PlainDirectories().remove(slot, 0)
