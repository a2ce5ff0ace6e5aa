"""Directories of stored files, for their owner only, whose names survive a loss of power.

Every call blocks, so run it in a thread.
"""

import os
from pathlib import Path

_MODE = 0o700


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
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
