"""A process is signalled only if it certainly belongs to the tree, whatever becomes of numbers."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandbox_agent.enforce import processes, signalling
from sandbox_agent.enforce.processes import Stat, Stats, certain


def stats(*lines: tuple[int, int, int]) -> Stats:
    """Processes as (pid, parent, start)."""
    return {pid: Stat(parent, pid, start, b"S") for pid, parent, start in lines}


ROOT = 10
TREE = stats((11, 10, 5), (12, 11, 6), (13, 12, 7))


def test_two_equal_readings_are_proof() -> None:
    assert all(certain(pid, ROOT, TREE, TREE) for pid in TREE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # An ancestor ended, and its number is another process's, of this tree or not.
        (TREE, stats((11, 10, 5), (12, 11, 9), (13, 12, 7))),
        (TREE, stats((11, 10, 5), (12, 99, 6), (13, 12, 7))),
        (stats((11, 10, 5), (12, 99, 6), (13, 12, 7)), TREE),
        # Its parent ended, and it has another.
        (TREE, stats((11, 10, 5), (12, 11, 6), (13, 10, 7))),
        # It, or an ancestor, was seen once only.
        (TREE, stats((11, 10, 5), (12, 11, 6))),
        (TREE, stats((11, 10, 5), (13, 12, 7))),
        (stats((11, 10, 5), (12, 11, 6)), TREE),
        # Its number is another process's now.
        (TREE, stats((11, 10, 5), (12, 11, 6), (13, 12, 8))),
    ],
)
def test_anything_else_is_none(before: Stats, after: Stats) -> None:
    assert not certain(13, ROOT, before, after)


def test_what_is_not_below_the_root() -> None:
    apart = stats((1, 0, 1), (10, 1, 2), (20, 1, 3), (21, 20, 4))
    assert not any(certain(pid, ROOT, apart, apart) for pid in (1, 20, 21))


@contextlib.contextmanager
def child() -> Iterator[subprocess.Popen[bytes]]:
    source = "import sys; sys.stdout.write('up'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"up"
        try:
            yield process
        finally:
            process.kill()


def test_a_descriptor_of_a_process_of_the_tree() -> None:
    with child() as process, signalling.opened(process.pid, os.getpid()) as descriptor:
        signalling.send(descriptor, signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


@pytest.mark.parametrize("which", ["root", "above", "nobody"])
def test_no_descriptor_of_another_process(which: str) -> None:
    with child() as process:
        pid = {"root": process.pid, "above": os.getpid(), "nobody": 2**22 + 1}[which]
        with pytest.raises(ProcessLookupError), signalling.opened(pid, process.pid):
            pass


def test_everything_below_is_found_once() -> None:
    with child() as first, child() as second:
        found: list[int] = []
        wanted = {first.pid, second.pid}
        signalling.to_all(
            os.getpid(), lambda pid, _fd: found.append(pid), lambda pid, _stat: pid in wanted
        )
        assert sorted(found) == sorted(wanted)
        found.clear()
        signalling.to_all(
            *(os.getpid(), lambda pid, _fd: found.append(pid), lambda pid, _stat: pid in wanted),
            but={first.pid},
        )
        assert found == [second.pid]


def test_a_line_of_ancestors_ends_at_the_root() -> None:
    with child() as process:
        assert list(processes.line(process.pid, os.getpid())) == [process.pid]
        assert os.getpid() in processes.line(process.pid, 0)
