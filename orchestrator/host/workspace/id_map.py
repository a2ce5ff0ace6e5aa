"""Shows files of one user as another's: the user namespace of an id-mapped mount.

A volume's files belong to the volume's own uid, those of a workspace that began as a snapshot to
the uid of the workspace that it was taken of. Each session has a uid of its own, so each mounts
them with a map from the one to the other. Nothing is changed on the disk, and any number of
sessions can have maps at the same time.
"""

import errno
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace.mounts import MountError, explained

# Only a process with one thread can get a namespace of its own, so a child does. It ends when its
# input ends, also if this process is killed.
_CHILD = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
failed = libc.unshare(0x10000000)
print(ctypes.get_errno() if failed else 0, flush=True)
sys.stdin.read()
"""
_SECONDS = 20.0


@contextmanager
def namespace(shown: Mapping[int, int], *, unchanged: int = 0) -> Iterator[int]:
    """Provides a user namespace, as a descriptor: as which uid and gid each stored one is shown.

    The ids from 1 to `unchanged`, which `shown` must not have, are shown as they are. All others
    have no meaning in it. Raises: MountError.
    """
    try:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
        ) as child:
            try:
                lines = [f"{stored} {each} 1" for stored, each in shown.items()]
                lines += [f"1 1 {unchanged}"] if unchanged else []
                handle = _mapped(child, "\n".join(lines).encode())
            finally:
                child.kill()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise MountError(
                "files can't be given to a session: this host lets nobody have a user "
                "namespace; raise user.max_user_namespaces"
            ) from error
        raise explained("files can't be given to a session", error) from error
    try:
        yield handle
    finally:
        os.close(handle)


def _mapped(child: subprocess.Popen[bytes], lines: bytes) -> int:
    """Raises: OSError."""
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    if not select.select([child.stdout], [], [], _SECONDS)[0]:
        raise TimeoutError(0, f"no user namespace within {_SECONDS:g} s")
    answer = child.stdout.readline().strip()
    if answer != b"0":
        code = int(answer) if answer.isdigit() else 0
        raise OSError(code, os.strerror(code) if code else "no user namespace")
    for name in ("uid_map", "gid_map"):
        with opened(f"/proc/{child.pid}/{name}", os.O_WRONLY | os.O_CLOEXEC) as handle:
            os.write(handle, lines)
    return os.open(f"/proc/{child.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
