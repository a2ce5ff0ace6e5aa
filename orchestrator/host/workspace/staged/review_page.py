"""What a reviewer sees of the staged changes: a page with fingerprints and diffs, bounded."""

import os
from typing import Any

from orchestrator.host.workspace.staged import descriptors
from orchestrator.host.workspace.staged.base import Base
from orchestrator.host.workspace.staged.changes import Change, RefusedEntry, walk
from orchestrator.host.workspace.staged.diff import Effort, unified

_DIFFED_BYTES = 1024 * 1024
_DIFF_BYTES = 256 * 1024
_ALL_DIFF_BYTES = 4 * 1024 * 1024
# So much is read for the fingerprints of one page; further files have none.
_ALL_READ_BYTES = 1024 * 1024 * 1024
MOST_REFUSED = 100

Json = dict[str, Any]


def page(upper: int, lower: int, base: Base, after: str, limit: int) -> Json:
    """At most `limit` changes after the path `after`, and the number of all changes."""
    view = _View(base)
    start = tuple(after.split("/")) if after else ()
    items: list[Json] = []
    refused: list[Json] = []
    counts = {"write": 0, "delete": 0, "refused": 0}
    more = False
    for found in walk(upper, lower):
        item = view.item(found) if _wanted(found, start, items, limit) else None
        if isinstance(item, RefusedEntry):
            found = item
        if isinstance(found, RefusedEntry):
            counts["refused"] += 1
            if len(refused) < MOST_REFUSED:
                refused.append(found._asdict())
            continue
        counts[found.type] += 1
        if item is not None and not isinstance(item, RefusedEntry):
            items.append(item)
        else:
            more = more or len(items) >= limit
    _find_renames(items)
    return {"items": items, "refused": refused, "counts": counts, "more": more}


def _wanted(
    found: Change | RefusedEntry, start: tuple[str, ...], items: list[Json], limit: int
) -> bool:
    if isinstance(found, RefusedEntry) or len(items) >= limit:
        return False
    return tuple(found.ref.split("/")) > start


class _View:
    """Makes the items of one page, and counts what it may still read."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._effort = Effort()
        self._diff_bytes = _ALL_DIFF_BYTES
        self._read_bytes = _ALL_READ_BYTES

    def item(self, change: Change | RefusedEntry) -> Json | RefusedEntry:
        """The change as a reviewer sees it, or why it can't be read."""
        if isinstance(change, RefusedEntry):
            return change
        try:
            return self._item(change)
        except OSError as error:
            return RefusedEntry(change.ref, f"it can't be read: {error.strerror or error}")

    def _item(self, change: Change) -> Json:
        deleted = change.type == "delete"
        new = None if deleted else self._content(change.upper, change, change.staged)
        fingerprint = None if deleted else self._fingerprint(change.upper, change, change.staged)
        old = old_fingerprint = None
        if change.base is not None and change.lower is not None:
            old, old_fingerprint = self._of_base(change.lower, change, change.base)
        diff, cut = self._diff(change, old, new)
        facts = change.base if deleted and change.base is not None else change.staged
        return {
            "type": change.type,
            "ref": change.ref,
            "kind": change.kind,
            "mode": None if deleted else change.mode,
            "old_mode": change.base_mode,
            "replaces": change.replaces,
            "removes": self._removed(change),
            "size": facts.st_size if change.kind == "file" else 0,
            "binary": any(text is not None and not _is_text(text) for text in (old, new)),
            "diff": diff,
            "diff_truncated": cut,
            "fingerprint": fingerprint,
            "expected_fingerprint": old_fingerprint,
            "base_changed": self._base.changed(change),
            "renamed_from": None,
            "timestamp_ns": change.staged.st_mtime_ns,
        }

    def _removed(self, change: Change) -> int:
        """The number of entries that are removed with a directory."""
        if not change.removes_directory or change.lower is None:
            return 0
        return sum(1 for _ in descriptors.below(change.lower, change.name))

    def _of_base(
        self, lower: int, change: Change, facts: os.stat_result
    ) -> tuple[bytes | None, str | None]:
        try:
            content = self._content(lower, change, facts)
            return content, self._fingerprint(lower, change, facts)
        except OSError:
            return None, None  # the base need not be readable

    def _fingerprint(self, directory: int, change: Change, facts: os.stat_result) -> str | None:
        """The hash of a file's content or of a link's target; None for other kinds."""
        kind = _kind(facts)
        if kind == "symlink":
            return descriptors.digest_of_text(
                os.readlink(os.fsencode(change.name), dir_fd=directory)
            )
        if kind != "file" or facts.st_size > self._read_bytes:
            return None
        self._read_bytes -= facts.st_size
        with descriptors.reading(directory, change.name, facts) as handle:
            return descriptors.digest_of(handle)

    def _content(self, directory: int, change: Change, facts: os.stat_result) -> bytes | None:
        """The content of a file that is small enough for a diff, or a link's target."""
        kind = _kind(facts)
        if kind == "symlink":
            return os.readlink(os.fsencode(change.name), dir_fd=directory) + b"\n"
        if kind != "file" or facts.st_size > _DIFFED_BYTES:
            return None
        with descriptors.reading(directory, change.name, facts) as handle:
            return b"".join(descriptors.chunks(handle))

    def _diff(
        self, change: Change, old: bytes | None, new: bytes | None
    ) -> tuple[str | None, bool]:
        """The diff of two texts, and whether a part of it, or all of it, is left out."""
        if change.kind == "directory":
            return None, False
        large = change.staged.st_size > _DIFFED_BYTES and change.type == "write"
        if large or (change.base is not None and change.base.st_size > _DIFFED_BYTES):
            return None, change.kind == "file"
        if not _is_text(old or b"") or not _is_text(new or b""):
            return None, False
        if self._diff_bytes <= 0:
            return None, True
        gone = change.type == "delete"
        names = (
            "/dev/null" if change.base is None else f"a/{change.ref}",
            "/dev/null" if gone else f"b/{change.ref}",
        )
        text = unified((old or b"").decode(), (new or b"").decode(), *names, self._effort)
        most = min(_DIFF_BYTES, self._diff_bytes)
        encoded = text.encode()
        cut = len(encoded) > most
        if cut:
            encoded = encoded[: encoded.rfind(b"\n", 0, most) + 1]
        self._diff_bytes -= len(encoded)
        return encoded.decode(), cut


def _kind(facts: os.stat_result) -> str:
    return {0o100000: "file", 0o120000: "symlink"}.get(facts.st_mode & 0o170000, "other")


def _is_text(content: bytes | None) -> bool:
    if content is None or b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _find_renames(items: list[Json]) -> None:
    """Names the origin of new files whose content is that of a deleted file of the page."""
    gone = {
        item["expected_fingerprint"]: item["ref"]
        for item in items
        if item["type"] == "delete" and item["kind"] == "file" and item["size"]
    }
    for item in items:
        if item["type"] == "write" and item["kind"] == "file" and item["old_mode"] is None:
            item["renamed_from"] = gone.get(item["fingerprint"])
