"""What needs a path although only a descriptor is known. Standard library only."""

import os


def set_mode(handle: int, mode: int) -> None:
    """Sets the permissions of what an `O_PATH` descriptor refers to. Raises: OSError."""
    os.chmod(f"/proc/self/fd/{handle}", mode)


def attribute_names(handle: int) -> list[str]:
    """The names of its extended attributes. Raises: OSError."""
    return os.listxattr(f"/proc/self/fd/{handle}")
