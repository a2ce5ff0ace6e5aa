"""Empties one workspace. It runs as a separate process and uses the standard library only.

It gives up the network and root before it reads anything, and it refers to directories by
descriptors, never by paths. A tree of any depth needs neither a deep stack nor many descriptors:
entries of nested directories are moved up to the top until everything there is a file or an empty
directory.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main(arguments: list[str]) -> int:
    """`PATH UID`: empties the directory PATH as UID. Returns 0 if nothing is left in it."""
    try:
        top = os.open(arguments[0], DIRECTORY)
        give_up_privileges(int(arguments[1]))
        empty(top)
    except OSError as error:
        # Leave the name out: the workspace chose it, and it may contain anything.
        sys.stderr.write(f"{error.strerror}\n")
        return 1
    return 0


def give_up_privileges(uid: int) -> None:
    """Drops the network and all rights except those of `uid`.

    Raises: OSError; ValueError for root, because root must never touch a workspace's files.
    """
    if uid <= 0:
        raise ValueError("a workspace is never purged as root")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def empty(top: int) -> None:
    """Removes everything in the directory with the descriptor `top`. Raises: OSError."""
    os.fchmod(top, 0o700)
    names = fresh_names()
    while entries := _listed(top):
        for name in entries:
            if not _remove(top, name):
                _flatten(top, name, names)


def fresh_names() -> Iterator[str]:
    """Names that no workspace can guess."""
    prefix = os.urandom(16).hex()
    number = 0
    while True:
        number += 1
        yield f"{prefix}-{number}"


def _flatten(top: int, name: str, names: Iterator[str]) -> None:
    """Removes a directory of `top`. Its non-empty directories move to `top`."""
    directory = _open(top, name)
    try:
        for entry in _listed(directory):
            if not _remove(directory, entry):
                # Moving a directory writes its "..", so it must be writable.
                os.close(_open(directory, entry))
                os.rename(entry, next(names), src_dir_fd=directory, dst_dir_fd=top)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)


def _listed(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _remove(parent: int, name: str) -> bool:
    """Removes a file of any kind or an empty directory; False for a non-empty directory."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError:
            return False
    return True


def _open(parent: int, name: str) -> int:
    """Opens a directory after making it readable and writable for its owner."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
    return os.open(name, DIRECTORY, dir_fd=parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
