"""Files that are open until a block ends. Standard library only, because helpers import it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(
    path: str | os.PathLike[str],
    flags: int = DIRECTORY,
    mode: int = 0o600,
    *,
    dir_fd: int | None = None,
) -> Iterator[int]:
    """Provides a descriptor, and closes it when the block ends. Raises: OSError."""
    handle = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        yield handle
    finally:
        os.close(handle)
