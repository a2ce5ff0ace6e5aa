"""The calls that a filter reports to its listener, and what a call of execve would execute.

Arguments in the caller's memory are read while it waits, but another thread of its program may
change them before the kernel reads them. What `describe` returns is a record only: no decision may
rest on it.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sandbox_agent.decide.excerpts import MOST_WORDS
from sandbox_agent.enforce import caller
from sandbox_agent.enforce.caller import Process, Program
from sandbox_agent.enforce.privileges import as_user

_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ID_VALID = 0x40082102
_ADD_DESCRIPTOR = 0x40182103
_CONTINUE = 1
_SEND_IT = 2
# id, pid, flags; number, architecture, instruction pointer, six arguments
_NOTICE = struct.Struct("<QII iIQ 6Q")
_RESPONSE = struct.Struct("<QqiI")
# id, flags, our descriptor, no wanted number, flags of the new one
_DESCRIPTOR = struct.Struct("<QIIII")
_POINTER_BYTES = 8
# The kernel's limit for one word, and the limit here for all words, which the digest covers.
_LONGEST_WORD = 128 * 1024
_MOST_WORDS = 8192
_MOST_BYTES = 256 * 1024
# Most words are short, so this much is read at first.
_SHORT_WORD = 256
_LONGEST_PATH = 4096
# The kernel treats the address as a file offset, with this limit.
_HIGHEST_ADDRESS = 2**63 - 1
# The caller was killed, or a signal interrupted the call, which it will repeat.
_OVER = (errno.ENOENT, errno.EINPROGRESS)


class Notice(NamedTuple):
    """One call that waits for its answer, by a thread; addresses refer to the caller's memory."""

    id: int
    pid: int
    number: int
    arguments: tuple[int, ...]


class Execution(NamedTuple):
    """What a process is about to execute: the path that it passed and the program behind it.

    The path is empty and the program unknown if the process has asked the kernel to hide its
    memory, so that it can't be read. `whole`: all words are included. `running` is the current
    program.
    """

    path: str
    program: Program
    argv: list[str]
    whole: bool
    process: Process
    running: Program


def receive(listener: int) -> Notice | None:
    """The next waiting call; None if its caller is gone. Raises: OSError."""
    buffer = bytearray(_NOTICE.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    notice_id, pid, _, number, _, _, *arguments = _NOTICE.unpack(buffer)
    return Notice(notice_id, pid, number, tuple(arguments))


def let_go_on(listener: int, notice: Notice) -> None:
    """Lets the call proceed as far as the kernel permits it. Raises: OSError."""
    _answer(listener, _RESPONSE.pack(notice.id, 0, 0, _CONTINUE))


def refuse(listener: int, notice: Notice, number: int) -> None:
    """Makes the call fail with that error number. Raises: OSError."""
    _answer(listener, _RESPONSE.pack(notice.id, 0, -number, 0))


def succeed(listener: int, notice: Notice) -> None:
    """Makes the call return 0. Raises: OSError."""
    _answer(listener, _RESPONSE.pack(notice.id, 0, 0, 0))


def give(listener: int, notice: Notice, descriptor: int, *, inherited: bool) -> None:
    """Makes the call return a copy of our descriptor, which an execution keeps if `inherited`.

    Raises: OSError, the kernel's: EMFILE if the caller has too many. The call then still waits.
    """
    flags = 0 if inherited else os.O_CLOEXEC
    message = _DESCRIPTOR.pack(notice.id, _SEND_IT, descriptor, 0, flags)
    try:
        fcntl.ioctl(listener, _ADD_DESCRIPTOR, message)
    except OSError as error:
        if error.errno not in _OVER:
            raise


def check_waiting(listener: int, notice: Notice) -> None:
    """Raises: OSError if the call is over: its pid may belong to another process by now."""
    fcntl.ioctl(listener, _ID_VALID, struct.pack("<Q", notice.id))


def _answer(listener: int, response: bytes) -> None:
    try:
        fcntl.ioctl(listener, _SEND, response)
    except OSError as error:
        if error.errno not in _OVER:
            raise


def describe(listener: int, notice: Notice, uid: int) -> Execution:
    """What the call would execute, examined as the session's user.

    Raises: OSError if there is no such file or the caller is gone. The call must then be refused,
    as a path that changes could lead to a file a moment later.
    """
    with as_user(uid):
        process, running = caller.process(notice.pid), caller.running(notice.pid)
        try:
            memory = os.open(f"/proc/{notice.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            return Execution("", caller.NOT_KNOWN, [], True, process, running)
        try:
            path = read_path(memory, notice.arguments[0])
            argv, whole = _words(memory, notice.arguments[1])
        finally:
            os.close(memory)
        program = caller.program(notice.pid, path)
        check_waiting(listener, notice)
        return Execution(_shown(path), program, argv, whole, process, running)


def look_again(process: Process, uid: int) -> Program | None:
    """What the process runs now, examined as the session's user; None if it is gone."""
    with as_user(uid):
        try:
            running = caller.running(process.id)
            # The pid may have passed to another process by then.
            return running if caller.process(process.id) == process else None
        except OSError:
            return None


def read_path(memory: int, at: int) -> bytes:
    """The path at that address. Raises: OSError, the kernel's for an invalid path."""
    # Most paths are short. A longer read may also touch pages that the path does not need.
    data = _read(memory, _SHORT_WORD, at)
    path, end, _ = data.partition(b"\0")
    if not end:
        data = _read(memory, _LONGEST_PATH, at)
        path, end, _ = data.partition(b"\0")
    if not end:
        raise _error(errno.ENAMETOOLONG if len(data) == _LONGEST_PATH else errno.EFAULT)
    if not path:
        raise _error(errno.ENOENT)
    return path


def read_whole(task: int, at: int, size: int, uid: int) -> bytes:
    """That many bytes at an address of a thread's memory, read as the session's user.

    Raises: OSError, the kernel's for an invalid address; PermissionError if the memory is hidden.
    """
    with as_user(uid):
        memory = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = _read(memory, size, at)
    finally:
        os.close(memory)
    if len(data) < size:
        raise _error(errno.EFAULT)
    return data


def _words(memory: int, at: int) -> tuple[list[str], bool]:
    """The words of a vector, and whether they are complete."""
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
    """The pointers of a vector; the last one is 0 unless the limit was reached."""
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
    """The bytes at that address, up to unmapped memory. Raises: OSError if it is unmapped."""
    if at > _HIGHEST_ADDRESS:
        raise _error(errno.EFAULT)
    try:
        return os.pread(memory, most, at)
    except OSError:  # a file would give EIO
        raise _error(errno.EFAULT) from None


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
