"""Directories of what is kept, for their owner only, whose names outlive a loss of power.

All of it blocks: call it in a thread.
"""

import os
from pathlib import Path

_MODE = 0o700


def make(directory: Path) -> None:
    """Makes it, and the two above it where they are not there: no mode of them is the default.

    Raises: FileExistsError where it is there, OSError.
    """
    for path in (directory.parent.parent, directory.parent):
        path.mkdir(mode=_MODE, exist_ok=True)
    directory.mkdir(mode=_MODE)


def sync(directory: Path) -> None:
    """Makes the names in it durable, and those of it and of the two above it. Raises: OSError."""
    for path in (directory, *list(directory.parents)[:3]):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
