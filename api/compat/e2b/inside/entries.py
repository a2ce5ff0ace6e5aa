"""Files as E2B's SDKs see them, in protobuf's JSON. Pure."""

import posixpath
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from api.compat.e2b.inside.paths import absolute, target_of
from orchestrator.work.files.file_entries import FileEntry

_TYPES = {"file": "FILE_TYPE_FILE", "directory": "FILE_TYPE_DIRECTORY"}
_KINDS = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK}
# The sandbox has one user, usually this one.
OWNER = "user"
# What precedes the names of attributes that these clients see.
ATTRIBUTES = "user.e2b."
_EARLIEST, _LATEST = -62135596800, 253402300799


def time_text(seconds: float) -> str:
    """A moment as protobuf's JSON has it: RFC 3339, in UTC."""
    at = datetime.fromtimestamp(min(max(seconds, _EARLIEST), _LATEST), UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def entry_info(
    entry: FileEntry,
    workspace: str,
    *,
    leads_to: str | None = None,
    owner: str = OWNER,
) -> dict[str, Any]:
    """The members of an `EntryInfo`; `leads_to` is the type of what a link leads to, if known."""
    path = absolute(entry.path, workspace)
    kind = leads_to if entry.type == "symlink" and leads_to is not None else entry.type
    shown: dict[str, Any] = {
        "name": posixpath.basename(path),
        "type": _TYPES.get(kind, "FILE_TYPE_UNSPECIFIED"),
        "path": path,
        "size": str(entry.size),
        "mode": int(entry.mode, 8),
        "permissions": stat.filemode(_KINDS.get(entry.type, 0) | int(entry.mode, 8)),
        "owner": owner,
        "group": owner,
        "modifiedTime": time_text(entry.modified),
    }
    target = target_of(entry, workspace)
    if target is not None:
        shown["symlinkTarget"] = target
    if entry.attributes:
        shown["metadata"] = dict(entry.attributes)
    return shown


def in_order(entries: Iterable[FileEntry]) -> list[FileEntry]:
    """By name, each directory before its content."""
    return sorted(entries, key=lambda entry: entry.path.split("/"))
