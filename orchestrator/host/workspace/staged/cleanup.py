"""Removes from the staging area what was committed; the rest stays staged."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace.staged import descriptors
from orchestrator.host.workspace.staged.commit_steps import parents

_OPAQUE = "user.overlay.opaque"
_WRITABLE = 0o700


def clear(upper: int, lower: int, refs: Sequence[str]) -> None:
    """Removes the staged entries at `refs`, which are sorted. It may be repeated. Raises: OSError.

    No overlay of the two directories may be mounted meanwhile.
    """
    above = sorted({parent for ref in refs for parent in parents(ref)})
    closed = _opened(upper, above)
    for ref in reversed(refs):
        _remove(upper, ref)
    for ref in reversed(above):
        _prune(upper, lower, ref, closed.get(ref))
    for ref, mode in closed.items():
        with suppress(FileNotFoundError, NotADirectoryError):
            _set_mode(upper, ref, mode)


def _opened(upper: int, directories: Sequence[str]) -> dict[str, int]:
    """Makes staged directories writable; returns the modes of those that were not."""
    closed = {}
    for ref in directories:
        try:
            with descriptors.parent_of(upper, ref) as (parent, name):
                facts = descriptors.facts(parent, name)
        except OSError:
            continue
        if facts is None or not descriptors.is_directory(facts):
            continue
        if facts.st_mode & _WRITABLE != _WRITABLE:
            closed[ref] = facts.st_mode & 0o7777
            _set_mode(upper, ref, closed[ref] | _WRITABLE)
    return closed


def _remove(upper: int, ref: str) -> None:
    try:
        with descriptors.parent_of(upper, ref) as (parent, name):
            facts = descriptors.facts(parent, name)
            if facts is None:
                return
            if not descriptors.is_directory(facts):
                os.unlink(name, dir_fd=parent)
                return
            if not _rmdir(parent, name):
                _unhide(parent, name)
    except FileNotFoundError:
        return  # it was removed with its directory


def _rmdir(parent: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


def _unhide(parent: int, name: str) -> None:
    """Lets the committed part of a directory show through, although more is staged in it."""
    with opened(name, dir_fd=parent) as handle, suppress(OSError):
        os.removexattr(handle, _OPAQUE)


def _prune(upper: int, lower: int, ref: str, mode: int | None) -> None:
    """Removes a staged directory in which nothing is staged, if it is like the workspace's."""
    try:
        with descriptors.parent_of(lower, ref) as (base_parent, name):
            base = descriptors.facts(base_parent, name)
        with descriptors.parent_of(upper, ref) as (parent, name):
            staged = descriptors.facts(parent, name)
            if base is None or staged is None:
                return
            if base.st_mode != (staged.st_mode if mode is None else 0o040000 | mode):
                return
            with opened(name, dir_fd=parent) as handle:
                opaque = descriptors.is_opaque(handle)
            if not opaque:
                _rmdir(parent, name)
    except (FileNotFoundError, NotADirectoryError):
        return


def _set_mode(top: int, ref: str, mode: int) -> None:
    with descriptors.parent_of(top, ref) as (parent, name):
        descriptors.set_mode(parent, name, mode)
