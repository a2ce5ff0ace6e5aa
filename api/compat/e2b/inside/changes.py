"""Changes of files as E2B's watches tell them. Pure."""

import posixpath
from collections import OrderedDict
from typing import NamedTuple

from api.compat.e2b.inside.paths import absolute
from paddock.contract.file_trees import FileChange

_CREATE, _WRITE, _REMOVE, _RENAME, _CHMOD = (
    f"EVENT_TYPE_{name}" for name in ("CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD")
)
_KINDS = {"write": _WRITE, "delete": _REMOVE, "attributes": _CHMOD}
# New files whose first content and mode are told already.
_MOST_NEW = 1024


class FileEvent(NamedTuple):
    """An event; `name` is relative to the watched directory, `path` absolute."""

    type: str
    name: str
    path: str


class Changes:
    """Translates the changes of one watch.

    E2B's agent creates a file, sets its mode, and writes it, and its clients expect the three
    events. Here a file operation puts complete content in place, which is one `create`; a program
    that creates a file is told as `create` and `write`. So a new file is told as the three events,
    and its next `write` and `attributes` are those that are told already.
    """

    def __init__(self, directory: str, workspace: str) -> None:
        """`directory` is the watched one, absolute."""
        self._directory, self._workspace = directory, workspace
        # The kinds that are told already, by path.
        self._new: OrderedDict[str, set[str]] = OrderedDict()

    def take(self, change: FileChange) -> list[FileEvent]:
        """The events of a change; none for missing changes, which these clients can't be told."""
        path = absolute(change.path, self._workspace)
        if change.kind == "create":
            return self._created(path, change.directory)
        if change.kind == "move":
            events = [] if change.source is None else self._moved_from(change.source)
            return [*events, self._event(_CREATE, path)]
        told = self._new.get(path)
        if told is not None and change.kind in told:
            told.discard(change.kind)
            return []
        self._new.pop(path, None)
        kind = _KINDS.get(change.kind)
        return [] if kind is None else [self._event(kind, path)]

    def _created(self, path: str, is_directory: bool) -> list[FileEvent]:
        if is_directory:
            return [self._event(_CREATE, path)]
        self._new[path] = {"write", "attributes"}
        if len(self._new) > _MOST_NEW:
            self._new.popitem(last=False)
        return [self._event(kind, path) for kind in (_CREATE, _CHMOD, _WRITE)]

    def _moved_from(self, source: str) -> list[FileEvent]:
        path = absolute(source, self._workspace)
        self._new.pop(path, None)
        return [self._event(_RENAME, path)]

    def _event(self, kind: str, path: str) -> FileEvent:
        name = posixpath.relpath(path, self._directory)
        return FileEvent(kind, name, path)
