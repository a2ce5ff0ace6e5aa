"""Directories of stored files, for their owner only, whose names survive a loss of power.

Every call blocks, so run it in a thread.
"""

import fcntl
import os
from pathlib import Path

from orchestrator.ground.file_handles import opened

_MODE = 0o700
_LOCK = "lock"


def make(directory: Path) -> None:
    """Makes it, and the two directories above it if they are missing, for their owner only.

    Raises: FileExistsError if it exists, OSError.
    """
    for path in (directory.parent.parent, directory.parent):
        path.mkdir(mode=_MODE, exist_ok=True)
    directory.mkdir(mode=_MODE)


def sync(directory: Path) -> None:
    """Makes its entries' names durable, its own, and those of the two above it. Raises: OSError."""
    for path in (directory, *list(directory.parents)[:3]):
        sync_names(path)


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces a file. After a loss of power it is complete, either the old one or the new one.

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
    sync_names(path.parent)


def sync_tree(directory: Path) -> None:
    """Makes the names of all entries below it durable. Raises: OSError."""
    for parent, _, _ in os.walk(directory):
        sync_names(Path(parent))


def lock(directory: Path) -> int:
    """Locks the directory for this process until the returned descriptor is closed.

    Raises: BlockingIOError while another process has the lock; OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(directory / _LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync_names(directory: Path) -> None:
    """Makes the names of its entries durable. Raises: OSError."""
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as descriptor:
        os.fsync(descriptor)
