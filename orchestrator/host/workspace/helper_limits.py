"""A helper's main function: it takes its limits, gives up all rights, then serves one request.

It runs as a separate process, which `helper.py` starts.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
_MEMORY_BYTES = 1024 * 1024 * 1024
_FILES = 1024


def main(arguments: list[str], perform: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """`UID SECONDS FILE_BYTES PARENT`; a size of 0 is no limit.

    The request is JSON on standard input, the answer JSON on standard output. Nothing is read
    before the rights are gone.
    """
    uid, seconds, file_bytes, parent = map(int, arguments)
    try:
        _limit(seconds, file_bytes)
        give_up_privileges(uid)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return _tell({"error": why, "kind": "failed"})
    if os.getppid() != parent:
        return 1  # it died before this process had asked to end with it
    try:
        answer = perform(json.load(sys.stdin))
    except (OSError, MemoryError, ValueError, RecursionError) as error:
        # Without names, because the session chose them.
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        answer = {"error": why or type(error).__name__, "kind": "failed"}
    return _tell(answer)


def _tell(answer: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 0


def _limit(seconds: int, file_bytes: int) -> None:
    """Bounds what hostile files can make this process use."""
    limits = [
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ]
    if file_bytes:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits.append((resource.RLIMIT_FSIZE, file_bytes))
    for kind, most in limits:
        resource.setrlimit(kind, (most, most))
    os.umask(0o077)


def give_up_privileges(uid: int) -> None:
    """Drops the network and all rights except those of `uid`.

    Raises: OSError; ValueError for root, because root must never touch a workspace's files.
    """
    if uid <= 0:
        raise ValueError("a workspace's files are never used as root")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
