"""Changes of files as E2B's watches tell them. Pure."""

import posixpath
from collections.abc import Callable
from typing import NamedTuple

from api.compat.e2b.inside.paths import absolute
from paddock.contract.file_trees import FileChange

_CREATE, _WRITE, _REMOVE, _RENAME, _CHMOD = (
    f"EVENT_TYPE_{name}" for name in ("CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD")
)
_KINDS = {"write": _WRITE, "delete": _REMOVE, "attributes": _CHMOD}


class FileEvent(NamedTuple):
    """An event; `name` is relative to the watched directory, `path` absolute."""

    type: str
    name: str
    path: str


class Changes:
    """Translates the changes of one watch.

    E2B's agent creates a file that is uploaded, sets its mode, and writes it, and its clients
    expect the three events. Here complete content is put in place, which is one `create`. What
    programs do is told as it is.
    """

    def __init__(self, directory: str, workspace: str, uploaded: Callable[[str], int]) -> None:
        """`directory` is the watched one, absolute.

        `uploaded` gives the number of the latest upload to an absolute path, 0 without one.
        """
        self._directory, self._workspace, self._uploaded = directory, workspace, uploaded
        # The greatest number of an upload that is told.
        self._told = 0

    def take(self, change: FileChange) -> list[FileEvent]:
        """The events of a change; none for missing changes, which these clients can't be told."""
        path = absolute(change.path, self._workspace)
        if change.kind == "create":
            kinds = [_CREATE, _CHMOD, _WRITE] if self._is_upload(path) else [_CREATE]
            return [self._event(kind, path) for kind in kinds]
        if change.kind == "move":
            events = [self._event(_CREATE, path)]
            if change.source is None:
                return events
            return [self._event(_RENAME, absolute(change.source, self._workspace)), *events]
        if change.kind == "write":
            self._is_upload(path)
        kind = _KINDS.get(change.kind)
        return [] if kind is None else [self._event(kind, path)]

    def _is_upload(self, path: str) -> bool:
        """Whether the file was uploaded, and that is not told yet."""
        number = self._uploaded(path)
        if number <= self._told:
            return False
        self._told = number
        return True

    def _event(self, kind: str, path: str) -> FileEvent:
        return FileEvent(kind, posixpath.relpath(path, self._directory), path)
