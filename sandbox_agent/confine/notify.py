"""Calls of execve that the filter reports: who made one, and with which arguments.

What is read here is read while the caller waits, but another thread of its program may
change it before the kernel looks: it is a record, and never what a decision rests on.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sandbox_agent.confine import caller
from sandbox_agent.confine.caller import Process, Program
from sandbox_agent.confine.syscalls import borrow_file_identity
from sandbox_agent.excerpts import MOST_WORDS

_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ID_VALID = 0x40082102
_CONTINUE = 1
# id, pid, flags; number, architecture, instruction pointer, six arguments
_NOTICE = struct.Struct("<QII iIQ 6Q")
_RESPONSE = struct.Struct("<QqiI")
_POINTER_BYTES = 8
# What the kernel takes of one word, and what is read of all of them: a digest is of so much.
_LONGEST_WORD = 128 * 1024
_MOST_WORDS = 8192
_MOST_BYTES = 256 * 1024
# Most words are short: no more is read at first.
_SHORT_WORD = 256
_LONGEST_PATH = 4096
# Of an offset in a file, as which the kernel takes an address.
_HIGHEST_ADDRESS = 2**63 - 1


class Notice(NamedTuple):
    """One call that waits for its answer; the addresses are in the caller's memory."""

    id: int
    pid: int
    path_at: int
    argv_at: int


class Execution(NamedTuple):
    """What a process is about to execute: the path as it gave it, and the program behind that.

    The path is empty, and the program not known, where its memory can't be read: it has asked
    the kernel to hide it. `whole`: these are all of its words. `running` is what it runs now.
    """

    path: str
    program: Program
    argv: list[str]
    whole: bool
    process: Process
    running: Program


def receive(listener: int) -> Notice | None:
    """The next call that waits; None where its caller is gone. Raises: OSError."""
    buffer = bytearray(_NOTICE.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    notice_id, pid, _, _, _, _, path_at, argv_at, *_ = _NOTICE.unpack(buffer)
    return Notice(notice_id, pid, path_at, argv_at)


def let_go_on(listener: int, notice: Notice) -> None:
    """The call is carried out now, as far as the kernel permits it. Raises: OSError."""
    _answer(listener, _RESPONSE.pack(notice.id, 0, 0, _CONTINUE))


def refuse(listener: int, notice: Notice, number: int) -> None:
    """The call fails with that error number. Raises: OSError."""
    _answer(listener, _RESPONSE.pack(notice.id, 0, -number, 0))


def _answer(listener: int, response: bytes) -> None:
    try:
        fcntl.ioctl(listener, _SEND, response)
    except OSError as error:
        # Its caller was killed, or a signal has made it ask again.
        if error.errno not in (errno.ENOENT, errno.EINPROGRESS):
            raise


def describe(listener: int, notice: Notice, uid: int) -> Execution:
    """What the call would execute, looked at as the session's user.

    Raises: OSError where there is no such file, or the caller is gone: then nothing may be
    executed either, for a path that changes could lead somewhere a moment later.
    """
    with _as_user(uid):
        process, running = caller.process(notice.pid), caller.running(notice.pid)
        try:
            memory = os.open(f"/proc/{notice.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            return Execution("", caller.NOT_KNOWN, [], True, process, running)
        try:
            path = _path(memory, notice.path_at)
            argv, whole = _words(memory, notice.argv_at)
        finally:
            os.close(memory)
        program = caller.program(notice.pid, path)
        # The number may have gone to another process before, or while, it was looked at.
        fcntl.ioctl(listener, _ID_VALID, struct.pack("<Q", notice.id))
        return Execution(_shown(path), program, argv, whole, process, running)


def look_again(process: Process, uid: int) -> Program | None:
    """What the process runs now, looked at as the session's user; None where it is gone."""
    with _as_user(uid):
        try:
            running = caller.running(process.id)
            # Its number may have gone to another process by then.
            return running if caller.process(process.id) == process else None
        except OSError:
            return None


@contextmanager
def _as_user(uid: int) -> Iterator[None]:
    borrow_file_identity(uid)
    try:
        yield
    finally:
        borrow_file_identity(0)


def _path(memory: int, at: int) -> bytes:
    """Raises: OSError, as the kernel would for a path that is none."""
    data = _read(memory, _LONGEST_PATH, at)
    path, end, _ = data.partition(b"\0")
    if not end:
        raise _error(errno.ENAMETOOLONG if len(data) == _LONGEST_PATH else errno.EFAULT)
    if not path:
        raise _error(errno.ENOENT)
    return path


def _words(memory: int, at: int) -> tuple[list[str], bool]:
    """The words of a vector, and whether these are all of them."""
    words: list[str] = []
    left = _MOST_BYTES
    for pointer in _pointers(memory, at):
        if not pointer:
            return words, True
        word = _text(memory, pointer, _SHORT_WORD)
        if len(word) == _SHORT_WORD:
            word = _text(memory, pointer, _LONGEST_WORD)
        left -= len(word) + 1
        if left < 0:
            return words, False
        words.append(_shown(word))
    return words, not at


def _pointers(memory: int, at: int) -> Iterator[int]:
    """Those of a vector, the last one 0 unless there are more than are looked at."""
    size = _POINTER_BYTES * MOST_WORDS
    for start in range(0, _POINTER_BYTES * _MOST_WORDS if at else 0, size):
        table = _read(memory, size, at + start)
        for (pointer,) in struct.iter_unpack("<Q", table[: len(table) // 8 * 8]):
            yield pointer
        if len(table) < size:
            return


def _text(memory: int, at: int, longest: int) -> bytes:
    return _read(memory, longest, at).split(b"\0", 1)[0]


def _read(memory: int, most: int, at: int) -> bytes:
    """What is at that address, up to where nothing is. Raises: OSError where nothing is at all."""
    if at > _HIGHEST_ADDRESS:
        raise _error(errno.EFAULT)
    try:
        return os.pread(memory, most, at)
    except OSError:  # of a file it would be EIO
        raise _error(errno.EFAULT) from None


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
