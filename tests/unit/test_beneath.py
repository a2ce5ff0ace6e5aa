"""Paths resolved component by component, compared with the kernel's own resolution."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.enforce.beneath import open_path
from sandbox_agent.enforce.syscalls import open_beneath

NAMES = ["a", "b", "file", "up", "abs", "loop", "in", "deep", "out", "dangling", ".", "..", ""]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    base = tmp_path_factory.mktemp("beneath")
    top = base / "top"
    (top / "a" / "b").mkdir(parents=True)
    (base / "secret").write_text("outside")
    for directory in (top, top / "a", top / "a" / "b"):
        (directory / "file").write_text("inside")
        for name, target in (
            ("up", ".."),
            ("abs", "/etc"),
            ("loop", "loop"),
            ("in", "a/b"),
            ("deep", "a/../a/./b"),
            ("out", "../secret"),
            ("dangling", "nothing/here"),
        ):
            (directory / name).symlink_to(target)
    fd = os.open(top, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def outcome(opened: int) -> tuple[int, int]:
    found = os.fstat(opened)
    os.close(opened)
    return found.st_dev, found.st_ino


def by_steps(root: int, path: str, follow: bool) -> object:
    try:
        return outcome(open_path(root, path, follow))
    except OSError as error:
        return error.errno


def at_once(root: int, path: str, follow: bool) -> object:
    flags = os.O_PATH if follow else os.O_PATH | os.O_NOFOLLOW
    try:
        return outcome(open_beneath(root, path, flags))
    except OSError as error:
        return error.errno


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8), st.booleans())
def test_it_is_where_the_kernel_would_be(root: int, parts: list[str], follow: bool) -> None:
    path = "/".join(parts).lstrip("/") or "."
    ours, kernels = by_steps(root, path, follow), at_once(root, path, follow)
    if isinstance(kernels, tuple):
        assert ours == kernels
    elif isinstance(ours, tuple):
        # Only where the path uses a file as a directory, which leads nowhere else.
        assert kernels in (errno.ENOTDIR, errno.ELOOP), path
    elif kernels == errno.EXDEV:
        assert ours in (errno.EXDEV, errno.ELOOP, errno.ENOENT, errno.ENOTDIR), path


def test_a_way_out_is_refused_as_such(root: int) -> None:
    for path in ("..", "a/../..", "abs", "abs/passwd", "out", "a/up/up", "a/b/out/x/../../.."):
        assert by_steps(root, path, True) in (errno.EXDEV, errno.ENOENT, errno.ENOTDIR), path
    assert by_steps(root, "out", True) == errno.EXDEV
    assert by_steps(root, "loop", True) == errno.ELOOP


def test_no_descriptor_is_left(root: int) -> None:
    before = os.listdir("/proc/self/fd")
    for path in ("a/b/file", "a/b/../../in/file", "out", "loop", "nothing", "a/b"):
        by_steps(root, path, True)
    assert os.listdir("/proc/self/fd") == before


def test_a_link_itself_can_be_meant(root: int, tmp_path: Path) -> None:
    assert isinstance(by_steps(root, "out", False), tuple)
    assert by_steps(root, "out/", False) == errno.EXDEV
