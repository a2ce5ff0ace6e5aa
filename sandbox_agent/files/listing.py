"""Files and directories as they are listed. Runs in the helper that does file operations."""

import json
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import ranges
from sandbox_agent.decide.files.names import shown
from sandbox_agent.decide.protocol import MAX_FRAME_BYTES, Entry
from sandbox_agent.files import attributes as extended
from sandbox_agent.files.places import Place, open_in

if TYPE_CHECKING:
    from sandbox_agent.decide.globs import Globs

# The most bytes of one answer, and what an entry takes in addition to its path and target.
_MOST_LISTED_BYTES = MAX_FRAME_BYTES * 3 // 4
_ENTRY_BYTES = 100
# The most names that one list with a glob looks at.
_MOST_LOOKED = 200_000
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def stat_entry(workspace: Place, path: str, attributes: str | None = None) -> Entry:
    """Describes `path`; a symbolic link is described, not followed. Raises: OSError.

    `attributes` is the prefix of those that are told, too.
    """
    fd = open_in(workspace, path, os.O_PATH | os.O_NOFOLLOW)
    try:
        status = os.fstat(fd)
        entry = _entry(path, status, "", fd)
        if attributes is not None:
            entry = entry._replace(attributes=_attributes_of(fd, entry, attributes))
        return entry._replace(path=shown(path), version=ranges.version(status))
    finally:
        os.close(fd)


def list_entries(
    workspace: Place,
    path: str,
    depth: int,
    limit: int,
    globs: "Globs | None" = None,
    attributes: str | None = None,
) -> tuple[list[Entry], bool]:
    """Lists a directory, `depth` levels deep and sorted; also returns whether the list was cut.

    With `globs`, only what matches, by the paths below this directory. The list is cut at `limit`
    entries or at the size of an answer. `attributes` is the prefix of those that are told.
    Directories are walked level by level, and each one is opened anew beneath the workspace.

    Raises: OSError if `path` is not a readable directory.
    """
    entries: list[Entry] = []
    level = [path]
    looked = 0
    for current_depth in range(depth):
        below: list[str] = []
        for directory in level:
            try:
                found = sorted(
                    _scan(workspace, directory, attributes), key=lambda entry: entry.path
                )
            except (OSError, AgentError):
                # Only the requested directory must be readable; others are listed by name.
                if current_depth == 0:
                    raise
                continue
            looked += len(found)
            chosen = found
            if globs is not None:
                chosen = [each for each in found if globs.match(_within(path, each.path))]
            if len(entries) + len(chosen) > limit or looked > _MOST_LOOKED:
                entries += chosen[: limit - len(entries)]
                return _sorted(entries, cut=True)
            entries += chosen
            below += [entry.path for entry in found if entry.type == "directory"]
        level = below
        if globs is not None:
            level = [each for each in below if globs.leads(_within(path, each))]
    return _sorted(entries, cut=False)


def _within(path: str, entry: str) -> str:
    """An entry's path below the listed directory."""
    return entry if path in ("", ".") else entry.removeprefix(path.rstrip("/") + "/")


def _sorted(entries: list[Entry], cut: bool) -> tuple[list[Entry], bool]:
    """As many entries as fit into one answer; long or escaped names take more room."""
    found = sorted(entry._replace(path=shown(entry.path)) for entry in entries)
    size = 0
    for index, entry in enumerate(found):
        size += _ENTRY_BYTES + len(json.dumps([entry.path, entry.target, entry.attributes]))
        if size > _MOST_LISTED_BYTES:
            return found[:index], True
    return found, cut


def _scan(workspace: Place, directory: str, attributes: str | None) -> Iterator[Entry]:
    fd = open_in(workspace, directory or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(fd) as names:
            for name in names:
                path = name.name if directory in ("", ".") else f"{directory}/{name.name}"
                try:
                    entry = _entry(path, name.stat(follow_symlinks=False), name.name, fd)
                except FileNotFoundError:
                    continue
                if attributes is not None:
                    place = f"/proc/self/fd/{fd}/{name.name}"
                    entry = entry._replace(attributes=_attributes(entry, place, attributes))
                yield entry
    finally:
        os.close(fd)


def _entry(path: str, status: os.stat_result, name: str, directory: int) -> Entry:
    """Builds an entry; `name` is empty if `directory` is the link itself."""
    kind = _TYPES.get(stat.S_IFMT(status.st_mode), "other")
    mode = stat.S_IMODE(status.st_mode)
    target = _link_target(name, directory) if kind == "symlink" else None
    return Entry(path, kind, status.st_size, mode, status.st_mtime, target)


def _attributes_of(fd: int, entry: Entry, prefix: str) -> dict[str, str]:
    """Those of an open file: its descriptor's own name is a link, which is followed."""
    if entry.type not in ("file", "directory"):
        return {}
    return extended.found(f"/proc/self/fd/{fd}", prefix, follows=True)


def _attributes(entry: Entry, path: str, prefix: str) -> dict[str, str]:
    """What is at the path may be another file by now, and is one of the same directory."""
    return extended.found(path, prefix) if entry.type in ("file", "directory") else {}


def _link_target(name: str, directory: int) -> str | None:
    """The link's target as text; None if the link has been replaced since."""
    try:
        return shown(os.readlink(name, dir_fd=directory))
    except OSError:
        return None
