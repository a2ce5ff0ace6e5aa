"""Walks the staging area beside the workspace: what a session changed, in order of paths."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.ground.file_handles import DIRECTORY, opened
from orchestrator.host.workspace.staged import descriptors
from orchestrator.host.workspace.staged.names import (
    WHITEOUT,
    bad_attributes,
    bad_facts,
    bad_name,
    bad_place,
    bad_target,
    kind_of,
    printable_name,
)

# If more entries are staged, all are refused.
MOST_ENTRIES = 200_000


class TooMuchError(Exception):
    """More is staged than can be looked at."""


class RefusedEntry(NamedTuple):
    """An entry that is neither shown nor committed, and neither is anything below it."""

    ref: str
    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """A staged change of the workspace's `ref`.

    `staged` and `base` are the facts of the staged entry and of the workspace's. `upper` and
    `lower` are the directories that have these; they are open until the next change is taken.
    `replaces`: it takes the place of everything that the workspace has there.
    """

    ref: str
    name: str
    type: str  # write, delete
    kind: str  # file, directory, symlink
    staged: os.stat_result
    base: os.stat_result | None
    upper: int
    lower: int | None
    replaces: bool = False

    @property
    def base_kind(self) -> str | None:
        """The kind of the workspace's entry."""
        return None if self.base is None else kind_of(self.base.st_mode, self.base.st_rdev)

    @property
    def makes_directory(self) -> bool:
        """Whether it makes a directory where nothing was."""
        return self.type == "write" and self.kind == "directory" and self.base is None

    @property
    def removes_directory(self) -> bool:
        """Whether it removes a directory of the workspace with everything in it."""
        goes = self.replaces or self.type == "delete" or self.kind != "directory"
        return goes and self.base_kind == "directory"

    @property
    def mode(self) -> int:
        """Its permission bits."""
        return self.staged.st_mode & 0o7777

    @property
    def base_mode(self) -> int | None:
        """The permission bits of the workspace's entry."""
        return None if self.base is None else self.base.st_mode & 0o7777


class _Level(NamedTuple):
    """An open staged directory, and the workspace's at the same place if there is one."""

    upper: int
    lower: int | None
    prefix: bytes
    names: Iterator[bytes]


def walk(
    upper: int, lower: int, merged: dict[str, int] | None = None
) -> Iterator[Change | RefusedEntry]:
    """Every change that is staged in `upper` over `lower`, which are open directories.

    A directory that is staged only because something in it is staged is added to `merged`, with its
    mode. Raises: OSError, TooMuchError.
    """
    stack = [_level(os.dup(upper), os.dup(lower), b"")]
    seen = 0
    try:
        while stack:
            level = stack[-1]
            name = next(level.names, None)
            if name is None:
                _close(stack.pop())
                continue
            seen += 1
            if seen > MOST_ENTRIES:
                raise TooMuchError
            found, below = _look(level, name, merged)
            if found is not None:
                yield found
            if below is not None:
                stack.append(below)
    finally:
        for level in stack:
            _close(level)


def _look(
    level: _Level, name: bytes, merged: dict[str, int] | None
) -> tuple[Change | RefusedEntry | None, _Level | None]:
    """What is staged under that name, and the level of its entries if it is a directory."""
    place = level.prefix + name
    why = bad_name(name) or bad_place(place)
    if why is not None:
        return RefusedEntry(printable_name(place), why), None
    ref, text = place.decode(), name.decode()
    staged = descriptors.facts(level.upper, text)
    if staged is None:  # removed meanwhile
        return None, None
    kind = kind_of(staged.st_mode, staged.st_rdev)
    try:
        why = _why_refused(level.upper, ref, text, kind, staged)
        base = None if level.lower is None else descriptors.facts(level.lower, text)
        if why is None and kind == WHITEOUT:
            return _deleted(level, ref, text, staged, base), None
        if why is None and kind == "directory":
            return _directory(level, ref, text, staged, base, merged)
    except OSError as error:
        why = f"it can't be read: {error.strerror}"
    if why is not None:
        return RefusedEntry(ref, why), None
    return Change(ref, text, "write", kind, staged, base, level.upper, level.lower), None


def _why_refused(upper: int, ref: str, name: str, kind: str, staged: os.stat_result) -> str | None:
    why = bad_facts(
        kind, staged.st_mode, staged.st_nlink, staged.st_size, getattr(staged, "st_blocks", 0)
    )
    if why is None and kind in ("file", "directory"):
        why = bad_attributes(kind, descriptors.attributes(upper, name, kind))
    if why is None and kind == "symlink":
        why = bad_target(ref, os.readlink(os.fsencode(name), dir_fd=upper))
    return why


def _deleted(
    level: _Level, ref: str, name: str, staged: os.stat_result, base: os.stat_result | None
) -> Change | None:
    """A deletion; None if the workspace no longer has the entry."""
    if base is None:
        return None
    kind = kind_of(base.st_mode, base.st_rdev)
    return Change(ref, name, "delete", kind, staged, base, level.upper, level.lower)


def _directory(
    level: _Level,
    ref: str,
    name: str,
    staged: os.stat_result,
    base: os.stat_result | None,
    merged: dict[str, int] | None,
) -> tuple[Change | None, _Level]:
    """A directory, which is a change if it is new, replaces something or has another mode."""
    handle = os.open(name, DIRECTORY, dir_fd=level.upper)
    try:
        is_there = base is not None and kind_of(base.st_mode, base.st_rdev) == "directory"
        opaque = descriptors.is_opaque(handle)
        replaces = base is not None and (opaque or not is_there)
        lower = None
        if is_there and not replaces and level.lower is not None:
            lower = os.open(name, DIRECTORY, dir_fd=level.lower)
        below = _level(handle, lower, os.fsencode(ref) + b"/")
    except BaseException:
        os.close(handle)
        raise
    same_mode = base is not None and not (base.st_mode ^ staged.st_mode) & 0o7777
    if base is not None and not replaces and same_mode:
        if merged is not None:
            merged[ref] = base.st_mode & 0o7777
        return None, below
    change = Change(
        *(ref, name, "write", "directory", staged, base, level.upper, level.lower, replaces)
    )
    return change, below


def _level(upper: int, lower: int | None, prefix: bytes) -> _Level:
    # Listing moves a descriptor's position, so it gets a descriptor of its own.
    with opened(".", dir_fd=upper) as copy:
        names = sorted(map(os.fsencode, os.listdir(copy)))
    return _Level(upper, lower, prefix, iter(names))


def _close(level: _Level) -> None:
    os.close(level.upper)
    if level.lower is not None:
        os.close(level.lower)
