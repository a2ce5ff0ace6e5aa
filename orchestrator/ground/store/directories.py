"""Directories of stored files, for their owner only, whose names survive a loss of power.

Every call blocks, so run it in a thread.
"""

import fcntl
import os
from pathlib import Path

_MODE = 0o700
_LOCK = "lock"


def make(directory: Path) -> None:
    """Makes it, and the two above it if they are missing, all with restricted modes.

    Raises: FileExistsError if it exists, OSError.
    """
    for path in (directory.parent.parent, directory.parent):
        path.mkdir(mode=_MODE, exist_ok=True)
    directory.mkdir(mode=_MODE)


def sync(directory: Path) -> None:
    """Makes the names in it durable, and its own and those of the two above it. Raises: OSError."""
    for path in (directory, *list(directory.parents)[:3]):
        _sync(path)


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces a file, which survives a loss of power complete: as it was, or as it is now.

    Raises: OSError.
    """
    draft = path.with_name(f".{path.name}.draft")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def sync_tree(directory: Path) -> None:
    """Makes the names in it and below it durable. Raises: OSError."""
    for parent, _, _ in os.walk(directory):
        _sync(Path(parent))


def lock(directory: Path) -> int:
    """A descriptor that has the directory for this process, until it is closed.

    Raises: BlockingIOError while another process has it; OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(directory / _LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
