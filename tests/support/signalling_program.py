"""What a command's processes can do with signals; runs in a sandbox and prints JSON.

Arguments: the pids of another command's process and of its guard, or none.
"""

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_INTEL = os.uname().machine == "x86_64"
_TKILL, _TGKILL = (200, 234) if _INTEL else (130, 131)
_QUEUE, _THREAD_QUEUE = (129, 297) if _INTEL else (138, 240)
_BY_DESCRIPTOR = 424
_F_SETOWN_EX, _FIOSETOWN = 15, 0x8901
_SIGNAL = signal.SIGUSR1
_PATIENCE_SECONDS = 20
# Says when it is ready, then who has sent the signal, with which code and value.
_RECEIVER = """
import ctypes, os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print(flush=True)
info = (ctypes.c_int * 32)()
wanted = (ctypes.c_ulong * 16)(1 << 9)
ctypes.CDLL(None).sigwaitinfo(wanted, info)
print(info[2], info[4] == os.getppid(), info[5] == os.getuid(), info[6])
"""
_WAITING = "import time; print(flush=True); time.sleep(100)"


def call(number: int, *arguments: object) -> None:
    if _LIBRARY.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def info(number: int, code: int) -> bytes:
    head = struct.pack("<iiiiiIQ", number, 0, code, 0, os.getpid(), os.getuid(), 42)
    return head.ljust(128, b"\0")


def tried(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def started(source: str, *, away: bool = False) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, start_new_session=away
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def ended_by(*attempts: Callable[[int], object], away: bool = False) -> list[int]:
    """How a child ends to which that was done."""
    found = []
    for attempt in attempts:
        process = started(_WAITING, away=away)
        attempt(process.pid)
        found.append(process.wait())
    return found


def received(attempt: Callable[[int], object]) -> str:
    process = started(_RECEIVER)
    attempt(process.pid)
    assert process.stdout is not None
    return process.stdout.read().decode().strip()


def others(other: int, guard: int) -> dict[str, list[str]]:
    """What comes of signals to what is not of this command."""

    def by_descriptor(pid: int, number: int) -> None:
        descriptor = os.pidfd_open(pid)
        try:
            call(_BY_DESCRIPTOR, descriptor, number, None, 0)
        finally:
            os.close(descriptor)

    def each(pid: int) -> list[str]:
        pair = socket.socketpair()
        owner = struct.pack("ii", 1, pid)
        memory = ctypes.c_int(pid)
        kinds: list[Callable[[], object]] = [
            lambda: os.kill(pid, 0),
            lambda: os.kill(pid, signal.SIGKILL),
            lambda: os.kill(-pid, signal.SIGKILL),
            lambda: call(_TKILL, pid, signal.SIGKILL),
            lambda: call(_TGKILL, pid, pid, signal.SIGKILL),
            lambda: call(_QUEUE, pid, signal.SIGKILL, info(signal.SIGKILL, -1)),
            lambda: call(_THREAD_QUEUE, pid, pid, signal.SIGKILL, info(signal.SIGKILL, -1)),
            lambda: by_descriptor(pid, signal.SIGKILL),
            lambda: fcntl.fcntl(pair[0], fcntl.F_SETOWN, pid),
            lambda: fcntl.fcntl(pair[0], fcntl.F_SETOWN, -pid),
            lambda: fcntl.fcntl(pair[0], _F_SETOWN_EX, owner),
            lambda: call(16 if _INTEL else 29, pair[0].fileno(), _FIOSETOWN, ctypes.byref(memory)),
        ]
        return [tried(kind) for kind in kinds]

    return {"other": each(other), "guard": each(guard), "agent": each(1), "nothing": each(99999)}


def own() -> dict[str, object]:
    """Signals to this process, in each way; the number that arrived."""
    arrivals, written = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(written)

    def arrived() -> int:
        """Another thread takes its own time; so does a descriptor's owner."""
        select.select([arrivals], [], [], _PATIENCE_SECONDS)
        return len(os.read(arrivals, 100))

    signal.signal(_SIGNAL, lambda *_: None)
    me, thread = os.getpid(), threading.get_native_id()
    waiting, ready = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        waiting.wait()

    other = threading.Thread(target=wait)
    other.start()
    ready.wait()
    assert other.native_id is not None
    elsewhere = other.native_id
    descriptor = os.pidfd_open(me)
    ways: list[Callable[[], object]] = [
        lambda: os.kill(me, _SIGNAL),
        lambda: os.kill(0, _SIGNAL),
        lambda: os.kill(-os.getpgrp(), _SIGNAL),
        lambda: os.kill(elsewhere, _SIGNAL),
        lambda: signal.raise_signal(_SIGNAL),
        lambda: call(_TKILL, thread, _SIGNAL),
        lambda: call(_TKILL, elsewhere, _SIGNAL),
        lambda: call(_TGKILL, me, thread, _SIGNAL),
        lambda: call(_TGKILL, me, elsewhere, _SIGNAL),
        lambda: call(_QUEUE, me, _SIGNAL, info(_SIGNAL, -1)),
        lambda: call(_THREAD_QUEUE, me, thread, _SIGNAL, info(_SIGNAL, -1)),
        lambda: call(_BY_DESCRIPTOR, descriptor, _SIGNAL, None, 0),
    ]
    results = [(tried(way), arrived()) for way in ways]
    waiting.set()
    other.join()
    pair = socket.socketpair()
    signal.signal(signal.SIGIO, lambda *_: None)
    fcntl.fcntl(pair[0], fcntl.F_SETOWN, me)
    fcntl.fcntl(pair[0], fcntl.F_SETFL, os.O_ASYNC)
    pair[1].send(b"x")
    return {
        "ways": results,
        "owner": arrived(),
        "invalid": [tried(lambda: os.kill(me, 99)), tried(lambda: call(_TGKILL, me, 0, 1))],
        "by no descriptor": [
            tried(lambda: call(_BY_DESCRIPTOR, 999, 0, None, 0)),
            tried(lambda: call(_BY_DESCRIPTOR, 0, 0, None, 0)),
        ],
    }


def family() -> dict[str, object]:
    """Signals to children."""

    def by_descriptor(pid: int) -> None:
        descriptor = os.pidfd_open(pid)
        select.select([], [], [], 0)
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        os.close(descriptor)

    term = signal.SIGTERM
    gone = started(_WAITING)
    gone.kill()
    gone.wait()
    return {
        "ended": ended_by(
            lambda pid: os.kill(pid, term),
            lambda pid: call(_TKILL, pid, term),
            lambda pid: call(_TGKILL, pid, pid, term),
            lambda pid: call(_QUEUE, pid, term, info(term, -1)),
            lambda pid: call(_THREAD_QUEUE, pid, pid, term, info(term, -1)),
            by_descriptor,
        ),
        "in another session": ended_by(
            lambda pid: os.kill(pid, term), lambda pid: os.killpg(pid, term), away=True
        ),
        "received": [
            received(lambda pid: os.kill(pid, _SIGNAL)),
            received(lambda pid: call(_QUEUE, pid, _SIGNAL, info(_SIGNAL, -1))),
        ],
        "there": tried(lambda: os.kill(started(_WAITING).pid, 0)),
        "gone": tried(lambda: os.kill(gone.pid, 0)),
        "as the kernel": tried(
            lambda: call(_QUEUE, started(_WAITING).pid, _SIGNAL, info(_SIGNAL, 0))
        ),
        "invalid": tried(lambda: os.kill(started(_WAITING).pid, 99)),
        "everybody": ended_by(lambda _pid: os.kill(-1, signal.SIGKILL), away=True),
    }


if __name__ == "__main__":
    targets = [int(word) for word in sys.argv[1:]] or [1, os.getppid()]
    print(json.dumps({"others": others(*targets), "own": own(), "family": family()}))
