"""Emptying a directory of any shape, through its descriptor."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.ground.file_handles import DIRECTORY
from orchestrator.host.workspace import mounts
from orchestrator.host.workspace.helper_limits import give_up_privileges
from orchestrator.host.workspace.purge_helper import empty


def purge(top: Path) -> None:
    descriptor = os.open(top, DIRECTORY)
    try:
        empty(descriptor)
    finally:
        os.close(descriptor)


def make_deep(top: Path, depth: int) -> None:
    """A chain of directories whose path is longer than the kernel permits."""
    parent = os.open(top, DIRECTORY)
    for _ in range(depth):
        os.mkdir("d" * 8, dir_fd=parent)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
        child = os.open("d" * 8, DIRECTORY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)


@contextmanager
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_deep_tree(tmp_path: Path) -> None:
    make_deep(tmp_path, 5_000)
    with few_descriptors():
        purge(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_wide_tree_with_equal_names(tmp_path: Path) -> None:
    for a in range(12):
        for b in range(12):
            (tmp_path / str(a) / str(b) / "x").mkdir(parents=True)
            (tmp_path / str(a) / str(b) / "x" / "file").write_text("x")
    purge(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_inside_goes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "directory").mkdir(parents=True)
    (outside / "file").write_text("kept")
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "to-file").symlink_to(outside / "file")
    (inside / "sub" / "to-directory").symlink_to(outside)
    (inside / "to-root").symlink_to("/")
    (inside / "up").symlink_to("..")
    os.link(outside / "file", inside / "sub" / "hard")
    purge(inside)
    assert list(inside.iterdir()) == []
    assert (outside / "file").read_text() == "kept"
    assert (outside / "directory").is_dir()


def test_special_files_and_names(tmp_path: Path) -> None:
    top = os.fsencode(tmp_path)
    directory = top + b"/new\nline \xff\xfe"
    os.mkdir(directory)
    os.mkfifo(directory + b"/fifo")
    for name in (b"\xff", b"-rf", b"a\nb", b"\\", b"x" * 255, b" "):
        Path(os.fsdecode(directory + b"/" + name)).write_text("x")
    os.mkdir(directory + b"/\xc3\x28")
    os.mkdir(directory + b"/\xc3\x28/more")
    purge(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_workspaces_files_are_never_used_as_root() -> None:
    with pytest.raises(ValueError, match="never used as root"):
        give_up_privileges(0)


def test_mount_points_are_decoded_and_in_order_of_removal() -> None:
    text = (
        b"1 0 8:1 / / rw - ext4 /dev/x rw\n"
        b"2 1 8:1 /a /state/sand\\040box/one rw - ext4 /dev/x rw\n"
        b"3 2 8:1 /a /state/sand\\040box/one/in\\134ner//deleted rw - ext4 /dev/x rw\n"
        b"4 1 8:1 /a /some\rbody rw - ext4 /dev/x rw\n"
        b"5 1 8:1 /a /state/sand\\040boxes rw shared:1 - ext4 /dev/x rw\n"
    )
    assert mounts.mount_points(text, "/state/sand box") == [
        "/state/sand box/one/in\\ner",
        "/state/sand box/one",
    ]
    assert mounts.mount_points(text, "/elsewhere") == []
