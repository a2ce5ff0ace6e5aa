"""Empties one workspace, in a helper; it uses the standard library only.

It refers to directories by descriptors, never by paths. A tree of any depth needs neither a deep
stack nor many descriptors: entries of nested directories are moved up to the top until everything
there is a file or an empty directory.
"""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from orchestrator.ground.file_handles import opened

_MOST_NAMES = 500_000


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Empties the request's directory `top`. Raises: OSError if something is left in it."""
    empty(request["top"])
    return {}


def empty(top: int) -> None:
    """Removes everything in the directory with the descriptor `top`. Raises: OSError."""
    os.fchmod(top, 0o700)
    names = fresh_names()
    while entries := _some_of(top):
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
    _permit(top, name)
    with opened(name, dir_fd=top) as directory:
        while entries := _some_of(directory):
            for entry in entries:
                if not _remove(directory, entry):
                    # Moving a directory writes its "..", so it must be writable.
                    _permit(directory, entry)
                    os.rename(entry, next(names), src_dir_fd=directory, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


def _some_of(directory: int) -> list[str]:
    """Entries of a directory, as many as fit the process's memory; none if it is empty."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _MOST_NAMES)]


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


def _permit(parent: int, name: str) -> None:
    """Makes a directory readable and writable for its owner."""
    with opened(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent) as handle:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
