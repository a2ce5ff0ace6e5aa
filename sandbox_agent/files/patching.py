"""Applies a patch to files, all or nothing. Runs in a file worker."""

import os
from collections.abc import Iterable
from contextlib import closing
from typing import Any, NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import hunks, patches
from sandbox_agent.decide.files.hunks import Reject
from sandbox_agent.decide.files.patches import FilePatch
from sandbox_agent.decide.files.ranges import ANY
from sandbox_agent.files import directories, journal
from sandbox_agent.files.condition import Condition
from sandbox_agent.files.directories import replaceable
from sandbox_agent.files.journal import Step
from sandbox_agent.files.places import Place, Places, open_parent
from sandbox_agent.files.reading import Reader
from sandbox_agent.files.writing import Writer

# Of one patch: of a file, and of all old and new content together.
_MOST_FILE_BYTES = 16 * 1024 * 1024
_MOST_BYTES = 64 * 1024 * 1024
_MOST_REJECTS = 100
_MOST_SEARCHED_LINES = 4_000_000
_PIECE = 1024 * 1024


class _Content(NamedTuple):
    """A file's bytes and mode; `version` only of what was read."""

    data: bytes
    mode: int
    version: str = ""


class Patching:
    """One patch that is applied; `names` has the path of each name in it."""

    def __init__(
        self, places: Places, text: str, names: dict[str, str], together: Condition
    ) -> None:
        """`together` keeps other workers from replacing files meanwhile. Raises: AgentError."""
        self._places = places
        self._together = together
        self._names = names
        try:
            self._files = patches.parse(text)
        except patches.PatchError as error:
            raise AgentError("validation_error", f"patch: {error}") from None
        self._left = _MOST_BYTES
        self._lines = _MOST_SEARCHED_LINES
        # By path: what there was, and what the patch makes of it; None: nothing.
        self._before: dict[str, _Content | None] = {}
        self._after: dict[str, _Content | None] = {}
        self._rejects: list[Reject] = []

    def apply(self, *, writes: bool = True) -> dict[str, Any]:
        """The answer: what was done to each file, or why nothing was done to any.

        Without `writes`, it only says what would be done. Raises: AgentError, OSError.
        """
        done = [self._plan(each) for each in self._files]
        if self._rejects:
            kept = self._rejects[:_MOST_REJECTS]
            return {"patched": [], "rejects": [each._asdict() for each in kept]}
        if writes:
            self._write()
        return {"patched": done, "rejects": []}

    def _find(self, path: str) -> tuple[Place, str]:
        return self._places.find(path, writes=True)

    def _path(self, name: str) -> str:
        path = self._names.get(name)
        if path is None:
            raise AgentError("validation_error", f"the patch has a name that was not said: {name}")
        return path

    def _content(self, path: str) -> _Content | None:
        if path in self._after:
            return self._after[path]
        if path not in self._before:
            self._before[path] = self._read(path)
        return self._before[path]

    def _read(self, path: str) -> _Content | None:
        """Raises: OSError; AgentError for what is no file, and for a link."""
        place, within = self._find(path)
        try:
            opened = Reader(place, within, links=False)
        except FileNotFoundError:
            return None
        with closing(opened) as reader:
            data = bytearray()
            while piece := reader.pull(_PIECE):
                data += piece
                if len(data) > _MOST_FILE_BYTES:
                    text = f"a patched file may have {_MOST_FILE_BYTES} bytes: {path}"
                    raise AgentError("too_large", text)
            self._spend(len(data))
            return _Content(bytes(data), reader.permissions, reader.version)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise AgentError("too_large", f"a patch may concern {_MOST_BYTES} bytes of files")

    def _plan(self, wanted: FilePatch) -> dict[str, Any]:
        """What a file becomes; reasons against it are noted. Raises: AgentError, OSError."""
        old = None if wanted.old is None else self._path(wanted.old)
        new = None if wanted.new is None else self._path(wanted.new)
        shown = new or old or ""
        before = _Content(b"", 0o644)
        if old is not None:
            found = self._content(old)
            if found is None:
                return self._refuse(wanted, shown, f"there is no such file: {old}")
            before = found
        if new is not None and new != old and self._content(new) is not None:
            return self._refuse(wanted, shown, "the file exists already")
        data, rejects, searched = hunks.applied(before.data, wanted.hunks, shown, self._lines)
        self._lines -= searched
        self._rejects += rejects
        if new is None and data and not rejects:
            self._refuse(wanted, shown, "the file has more lines than the patch removes")
        if new is not None:
            self._spend(len(data))
        if old is not None and old != new and not wanted.copies:
            self._after[old] = None
        if new is not None:
            mode = before.mode if wanted.mode is None else wanted.mode
            self._after[new] = _Content(data, mode)
        actions = {(True, False): "create", (False, True): "delete"}
        action = actions.get((old is None, new is None)) or ("write" if old == new else "rename")
        renamed = {"from": old} if action == "rename" else {}
        if renamed and wanted.copies:
            action = "copy"
        return {"path": shown, "action": action, "hunks": len(wanted.hunks), **renamed}

    def _refuse(self, wanted: FilePatch, path: str, reason: str) -> dict[str, Any]:
        header = wanted.hunks[0].header if wanted.hunks else ""
        self._rejects.append(Reject(path, 0, header, reason))
        return {}

    def _write(self) -> None:
        """Puts everything into effect, or takes it back. Raises: AgentError, OSError."""
        changed = {
            path: content
            for path, content in self._after.items()
            if (content and content[:2]) != ((before := self._before.get(path)) and before[:2])
        }
        # Everything is on the disk before the first file changes.
        writers = {
            path: self._writer(path, content)
            for path, content in changed.items()
            if content is not None
        }
        removed = changed.keys() - writers.keys()
        with self._together.held():
            journal.recover_alone(self._places)
            self._check(changed, removed)
            if len(changed) == 1:
                self._write_one(next(iter(changed)), writers)
            else:
                self._write_together(writers, removed)

    def _check(self, changed: Iterable[str], removed: Iterable[str]) -> None:
        """Whether all are still what was read, and may be removed. Raises: AgentError, OSError."""
        try:
            for path in changed:
                self._unchanged(path).check(*self._find(path))
        except AgentError as error:
            if error.code != "precondition_failed":
                raise
            text = "a file changed while the patch was applied: repeat the request"
            raise AgentError("conflict", text) from None
        for path in removed:
            _check_removable(*self._find(path))

    def _write_one(self, path: str, writers: dict[str, Writer]) -> None:
        if path in writers:
            writers[path].commit()
        else:
            directories.delete(*self._find(path))

    def _write_together(self, writers: dict[str, Writer], removed: Iterable[str]) -> None:
        """Changes all files, even if this process is killed in the middle."""
        versions = {path: self._version(path) for path in removed}
        steps = journal.Journal(self._places, versions, list(writers))

        def prepare(step: Step) -> None:
            assert step.content is not None  # noqa: S101 - others are not prepared
            writers[step.path].stage(step.content)

        steps.write(prepare)
        done: list[str] = []
        try:
            for step in steps.steps:
                steps.take(step)
                done.append(step.path)
        except BaseException:
            # The directory of a file has become something else.
            steps.drop()
            for path in reversed(done):
                self._restore(path)
            raise
        steps.drop()

    def _version(self, path: str) -> str:
        before = self._before[path]
        return "" if before is None else before.version

    def _writer(self, path: str, content: _Content) -> Writer:
        writer = Writer(*self._find(path), content.mode, parents=True)
        writer.push(content.data)
        return writer

    def _unchanged(self, path: str) -> Condition:
        """That the file is still what was read."""
        before = self._before.get(path)
        if before is None:
            return Condition(none_match=[ANY])
        return Condition(match=[before.version])

    def _restore(self, path: str) -> None:
        before = self._before.get(path)
        if before is None:
            directories.delete(*self._find(path))
            return
        self._writer(path, before).commit()


def _check_removable(place: Place, path: str) -> None:
    """Raises: OSError if the file's mode protects it."""
    directory, name = open_parent(place, path)
    try:
        replaceable(directory, name)
    finally:
        os.close(directory)
