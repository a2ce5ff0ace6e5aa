"""What is a context miss, and how many are reported."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.denials import Denials
from sandbox_agent.decide.manifest import Consume, ReadManifest
from sandbox_agent.enforce.reads.misses import (
    LONGEST_PATH,
    MISS,
    MOST_DETAILED,
    Miss,
    Misses,
    cut_path,
    decode,
    encode,
)

CONSUME = Consume("m", ("listed", "src/a.py"), ("src",), ("out",), ("/usr/lib",), "hard_fail")
DENIALS = Denials(ReadManifest(CONSUME), absent=("/etc",), refused=("/proc/self", "/dev/tty"))
MISSED = Miss("/workspace/secret", "openat", "/usr/bin/cat", 12, denied=True)


@pytest.mark.parametrize(
    ("path", "number", "parent"),
    [
        ("/workspace/secret", errno.EACCES, "/workspace"),
        ("/workspace/secret", errno.EROFS, "/workspace"),
        ("/workspace/secret", errno.ELOOP, "/workspace"),
        ("/workspace/src/b.py", errno.EACCES, "/workspace/src"),
        ("/etc/shadow", errno.EACCES, "/etc"),
        ("/proc/1/environ", errno.EACCES, "/proc/1"),
        # Something else has taken the place of a listed file.
        ("/workspace/listed", errno.EACCES, "/workspace"),
        ("/usr/lib/x", errno.EPERM, "/usr/lib"),
        # Whether it exists is nothing that the session may know.
        ("/workspace/absent", errno.ENOENT, "/workspace"),
        ("/workspace/src/in/absent", errno.ENOENT, "/workspace/src/in"),
        ("/absent", errno.ENOENT, "/"),
        # What it writes, it may not read back.
        ("/workspace/out/made", errno.EACCES, "/workspace/out"),
    ],
)
def test_a_miss(path: str, number: int, parent: str) -> None:
    assert DENIALS.is_miss(path, number, parent)


@pytest.mark.parametrize(
    ("path", "number", "parent"),
    [
        ("/workspace/listed", errno.ENOENT, "/workspace"),
        ("/workspace/src", errno.EISDIR, "/workspace"),
        ("/workspace/src/absent", errno.ENOENT, "/workspace/src"),
        ("/workspace/src/new/absent", errno.ENOENT, "/workspace/src"),
        ("/workspace/out/absent", errno.ENOENT, "/workspace/out"),
        ("/usr/lib/absent", errno.ENOENT, "/usr/lib"),
        ("/etc/absent", errno.ENOENT, "/etc"),
        ("/proc/self/maps", errno.EACCES, "/proc/self"),
        ("/dev/tty", errno.ENXIO, "/dev"),
        ("/tmp/absent", errno.ENOENT, "/tmp"),
        ("/workspace/secret", errno.EMFILE, "/workspace"),
        ("/workspace/secret", errno.EAGAIN, "/workspace"),
    ],
)
def test_harmless(path: str, number: int, parent: str) -> None:
    assert not DENIALS.is_miss(path, number, parent)


def test_a_listed_file_that_its_own_bits_close_is_no_miss() -> None:
    path, parent = "/workspace/listed", "/workspace"
    assert not DENIALS.is_miss(path, errno.EACCES, parent, permitted=False)
    assert DENIALS.is_miss("/workspace/secret", errno.EACCES, parent, permitted=False)


@given(st.text(alphabet="/.ab", max_size=8))
def test_any_path_is_judged(path: str) -> None:
    assert DENIALS.is_miss(path, errno.EACCES, path) in (True, False)


@given(st.integers(0, 200), st.integers(1, 50))
def test_no_miss_is_lost(number: int, every: int) -> None:
    misses, told = Misses(), 0
    for index in range(1, number + 1):
        told += misses.take(MISSED._replace(pid=index, path=f"/{index}"))
        if index % every == 0 and (counted := misses.drain()) is not None:
            told += counted[1]
            assert counted[0].pid == index
    assert min(number, MOST_DETAILED) <= told
    assert told + misses.counted == number


def test_the_first_misses_are_told_one_by_one() -> None:
    misses = Misses()
    taken = [misses.take(MISSED._replace(path=f"/{n}")) for n in range(MOST_DETAILED + 2)]
    assert taken == [True] * MOST_DETAILED + [False] * 2
    assert misses.drain() == (MISSED._replace(path=f"/{MOST_DETAILED + 1}"), 2)
    assert misses.drain() is None


def test_the_same_miss_is_told_once() -> None:
    misses = Misses()
    executed = MISSED._replace(syscall="execve")
    again = MISSED._replace(pid=13)
    assert [misses.take(miss) for miss in (MISSED, again, executed, again)] == [
        *(True, False, True, False),
    ]
    assert misses.drain() == (again, 2)


@given(st.binary(max_size=9000))
def test_a_path_becomes_short_text(path: bytes) -> None:
    text = cut_path(path)
    assert len(text.encode()) <= LONGEST_PATH
    if len(path) * 4 <= LONGEST_PATH:
        assert text == path.decode("utf-8", "backslashreplace")


def test_a_message_is_read_back() -> None:
    kind, number, miss, count = decode(encode(MISS, 7, MISSED, 3))
    assert (kind, number, Miss(*miss), count) == (MISS, 7, MISSED, 3)
