"""A tracer: which files a program really ran, opened and changed, as the kernel resolved them."""

import contextlib
import ctypes
import os
import signal
import struct
import sys
from types import FrameType
from typing import NamedTuple

from tests.support.traced.calls import CWD, EXEC, OPEN, READ, WRITE, Call, calls

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_LIBC.ptrace.restype = ctypes.c_long

_TRACEME, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
# Marked system calls; new processes and exec are reported; all end with the tracer.
_OPTIONS = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x100000
_CALL_STOP = signal.SIGTRAP | 0x80
_ENTRY, _EXIT = 1, 2
_ANY_CHILD = 0x40000000  # __WALL
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_MOST_OUTPUT = 1 << 20
# The path of the file that takes what a program prints.
OUTPUT = "/memfd:output"


class Trace(NamedTuple):
    """What a program did.

    `touched` has (kind, path) of every call that succeeded, with the links in each path
    resolved; kind is exec, read or write. `exit_code` is negative for a signal.
    """

    touched: list[tuple[str, str]]
    exit_code: int
    output: bytes


class _Tracer:
    """Follows one program and whatever it starts."""

    def __init__(self) -> None:
        self.touched: list[tuple[str, str]] = []
        self._calls = calls()
        self._info = ctypes.create_string_buffer(88)
        self._pending: dict[int, tuple[str, list[tuple[str, str]]]] = {}

    def follow(self, first: int) -> int:
        """Lets the program go on until it has ended; its exit code."""
        known = {first}
        exit_code = 0
        while known:
            pid, status = os.waitpid(-1, _ANY_CHILD)
            if not os.WIFSTOPPED(status):
                known.discard(pid)
                if pid == first:
                    exit_code = os.waitstatus_to_exitcode(status)
                continue
            stop, event = os.WSTOPSIG(status), status >> 16
            deliver = 0
            if pid not in known or (pid == first and pid not in self._pending):
                known.add(pid)
                self._pending[pid] = ("", [])
                _ptrace(_SETOPTIONS, pid, 0, _OPTIONS)
            elif stop == _CALL_STOP:
                self._on_call(pid)
            elif not event:
                deliver = stop
            _ptrace(_SYSCALL, pid, 0, deliver)
        return exit_code

    def _on_call(self, pid: int) -> None:
        _ptrace(_GET_SYSCALL_INFO, pid, len(self._info), ctypes.addressof(self._info))
        raw = self._info.raw
        if raw[0] == _ENTRY:
            number, *arguments = struct.unpack_from("=7Q", raw, 24)
            name, call = self._calls.get(number, ("", None))
            self._pending[pid] = name, self._found(pid, name, call, arguments) if call else []
        elif raw[0] == _EXIT:
            name, found = self._pending[pid]
            (value,) = struct.unpack_from("=q", raw, 24)
            if found and value >= 0:
                if name.startswith(("open", "creat")):
                    found = [(found[0][0], _of_descriptor(pid, value))]
                self.touched += found
            self._pending[pid] = ("", [])

    def _found(
        self, pid: int, name: str, call: Call, arguments: list[int]
    ) -> list[tuple[str, str]]:
        if call.kind == OPEN:
            return [(WRITE if self._open_flags(pid, name, arguments) & _WRITING else READ, "")]
        flags = arguments[call.flags] if call.flags is not None else 0
        follows = call.follows and not flags & _AT_SYMLINK_NOFOLLOW
        paths = [
            _resolved(pid, _signed(arguments[at]) if at != CWD else _AT_FDCWD, text, follows)
            for at, text in (
                (at, None if where is None else _text(pid, arguments[where]))
                for at, where in call.paths
            )
        ]
        return [(EXEC if call.kind == EXEC else call.kind, path) for path in paths]

    def _open_flags(self, pid: int, name: str, arguments: list[int]) -> int:
        if name == "creat":
            return _WRITING
        if name == "openat2":
            return int.from_bytes(_memory(pid, arguments[2], 8), sys.byteorder)
        return arguments[1 if name == "open" else 2]


def trace(program: str, argv: list[str], env: dict[str, str], cwd: int, seconds: float) -> Trace:
    """Runs a program in the directory `cwd` refers to, without input.

    It is killed after that many seconds. Raises: ValueError for a word that is no text.
    """
    words = [os.fsencode(word) for word in argv]
    if any(b"\0" in word for word in words):
        raise ValueError("a word has a NUL")
    output = os.memfd_create(OUTPUT.removeprefix("/memfd:"))
    pid = os.fork()
    if pid == 0:
        _become(program, words, env, cwd, output)

    def stop(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    tracer = _Tracer()
    try:
        exit_code = tracer.follow(pid)
        return Trace(tracer.touched, exit_code, os.pread(output, _MOST_OUTPUT, 0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(output)


def _become(program: str, words: list[bytes], env: dict[str, str], cwd: int, output: int) -> None:
    try:
        os.setsid()
        os.fchdir(cwd)
        nothing = os.open("/dev/null", os.O_RDONLY)
        for target, fd in enumerate((nothing, output, output)):
            os.dup2(fd, target)
        os.closerange(3, 256)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        _ptrace(_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execve(program, words, env)
    finally:
        os._exit(127)


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    if _LIBC.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        # It was killed meanwhile: the next wait says so.
        if number != 3:
            raise OSError(number, f"ptrace {request:#x}: {os.strerror(number)}")


def _signed(value: int) -> int:
    return int(ctypes.c_int32(value & 0xFFFFFFFF).value)


def _memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _text(pid: int, address: int) -> str | None:
    """The string at that address; None for a null pointer."""
    if not address:
        return None
    found = b""
    while b"\0" not in found:
        page_end = 4096 - (address + len(found)) % 4096
        found += _memory(pid, address + len(found), page_end)
    return os.fsdecode(found.partition(b"\0")[0])


def _of_descriptor(pid: int, descriptor: int) -> str:
    return os.readlink(f"/proc/{pid}/fd/{descriptor}").removesuffix(" (deleted)")


def _resolved(pid: int, directory: int, path: str | None, follows: bool) -> str:
    """Where a path leads that a stopped process names; links count, as for the kernel."""
    try:
        if directory == _AT_FDCWD:
            base = os.readlink(f"/proc/{pid}/cwd")
        elif path is not None and path.startswith("/"):
            base = "/"
        else:
            base = _of_descriptor(pid, directory)
    except FileNotFoundError:
        return f"descriptor {directory} of nothing"
    if not path:
        return base
    whole = os.path.join(base, path)
    if follows:
        return os.path.realpath(whole)
    parent, _, name = whole.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        return os.path.realpath(whole)
    return os.path.join(os.path.realpath(parent or "/"), name)
