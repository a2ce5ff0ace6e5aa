"""Searches, patches, copies and watches: what concerns several files at once."""

from functools import partial
from typing import Any, NamedTuple

from orchestrator.ground.errors import ConflictError, ValidationError
from orchestrator.ground.threads import Aside
from orchestrator.host.link.messages import malformed
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session
from orchestrator.work.files.file_agent import FileAgent
from orchestrator.work.files.file_entries import whole_number
from orchestrator.work.files.file_requests import FileRequests, stream_of
from orchestrator.work.files.file_stream import FileStream
from sandbox_agent.decide.files import patches
from sandbox_agent.decide.files.names import MOST_TEXT
from sandbox_agent.decide.files.pattern_parser import PatternError
from sandbox_agent.decide.files.patterns import Pattern
from sandbox_agent.decide.globs import GlobError, Globs
from sandbox_agent.decide.protocol import Message

_MOST_CHANGES = 500
_KINDS = frozenset({"create", "write", "delete", "move", "attributes", "overflow"})
_ACTIONS = frozenset({"create", "write", "delete", "rename", "copy"})


class FileMatch(NamedTuple):
    """A line that was found; its number begins at 1, and its text is its beginning."""

    path: str
    line: int
    text: str


class SearchResult(NamedTuple):
    """What a search found in how many files; `skipped` are binary, long or unreadable ones."""

    matches: tuple[FileMatch, ...]
    files: int
    skipped: int
    truncated: bool


class PatchedFile(NamedTuple):
    """What a patch did to one file; `source` is the former path, if it renamed or copied it."""

    path: str
    action: str
    hunks: int
    source: str | None


class FileCopy(NamedTuple):
    """What was copied; `skipped` are FIFOs, sockets and devices."""

    files: int
    directories: int
    links: int
    bytes: int
    skipped: int


class FileChange(NamedTuple):
    """What happened to a path; `source` is the former path of one that was moved."""

    kind: str
    path: str
    directory: bool
    source: str | None


class FileWatch:
    """An open watch. The caller must close it."""

    def __init__(self, link: FileAgent, stream: FileStream, number: int) -> None:
        self._link, self._stream, self._number = link, stream, number
        self.ended = False

    async def next(self, wait: float) -> tuple[FileChange, ...]:
        """The next changes, none if there were none in `wait` seconds.

        `ended` says whether there will be no others. Raises: ConflictError if the watch is gone;
        SandboxUnavailableError.
        """
        params = {"stream": self._number, "limit": _MOST_CHANGES, "wait_ms": int(wait * 1000)}
        answer = await self._link.request("file.changes", params)
        self.ended = answer.get("ended") is True
        return tuple(_change(each) for each in _items(answer, "changes", _MOST_CHANGES))

    async def close(self) -> None:
        """Ends the watch."""
        await self._stream.close()


class FileTrees:
    """Operations on several files at once. Each is recorded before it is answered.

    All methods raise what those of `Files` do. Sessions with a context pack may not do any of this.
    """

    def __init__(self, requests: FileRequests, aside: Aside) -> None:
        """Long patches are read `aside`."""
        self._requests = requests
        self._aside = aside

    async def search(
        self,
        principal: Principal,
        session: Session,
        path: str,
        text: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        globs: tuple[str, ...] = (),
        limit: int = 1000,
    ) -> SearchResult:
        """The lines of files below a directory that have the text, or that match it as `regex`."""
        check_search(text, regex, globs)
        link, path = await self._requests.prepare(
            principal, session, "file.search", path, whole=True
        )
        params = {
            **{"path": path, "text": text, "regex": regex, "ignore_case": ignore_case},
            **{"globs": list(globs), "limit": limit},
        }
        answer = await self._requests.ask(link, "file.search", params)
        matches = tuple(_match(each) for each in _items(answer, "matches", limit))
        counts = whole_number(answer, "files"), whole_number(answer, "skipped")
        return SearchResult(matches, *counts, answer.get("truncated") is True)

    async def patch(
        self,
        principal: Principal,
        session: Session,
        path: str,
        text: str,
        *,
        dry_run: bool = False,
    ) -> tuple[PatchedFile, ...]:
        """Applies a unified diff below a directory, all or nothing.

        Raises: ValidationError for what is no patch; ConflictError with `rejects`, what does not
        apply, if anything does not.
        """
        names = await self._aside.call(len(text), partial(patch_names, text))
        link = None
        paths: dict[str, str] = {}
        for name in names:
            link, paths[name] = await self._requests.prepare(
                principal, session, "file.patch", patches.target(path, name)
            )
        assert link is not None  # noqa: S101 - a patch has a file
        params = {"patch": text, "names": paths, "dry_run": dry_run}
        answer = await self._requests.ask(link, "file.patch", params)
        rejects = [_reject(each) for each in _items(answer, "rejects", patches.MOST_FILES)]
        if rejects:
            raise ConflictError(_why(rejects), rejects=rejects)
        return tuple(_patched(each) for each in _items(answer, "patched", patches.MOST_FILES))

    async def copy(
        self,
        principal: Principal,
        session: Session,
        source: str,
        destination: str,
        *,
        parents: bool = False,
    ) -> FileCopy:
        """Copies a file, or a directory with all that is in it, as a whole or not at all."""
        link, source = await self._requests.prepare(
            principal, session, "file.copy", source, whole=True, name="source", writes=False
        )
        _, destination = await self._requests.prepare(
            principal, session, "file.copy", destination, name="destination"
        )
        params = {
            **{"source": source, "destination": destination, "parents": parents},
            "most_bytes": session.limits.workspace_bytes,
        }
        copied = (await self._requests.ask(link, "file.copy", params)).get("copied")
        if not isinstance(copied, dict):
            raise malformed()
        return FileCopy(*(whole_number(copied, name) for name in FileCopy._fields))

    async def watch(
        self, principal: Principal, session: Session, path: str, *, recursive: bool = True
    ) -> FileWatch:
        """Watches a directory, and those below it, from now on."""
        link, path = await self._requests.prepare(
            principal, session, "file.watch", path, whole=True
        )
        opened = await self._requests.open(link, "watch", path, recursive=recursive)
        return FileWatch(link, stream_of(link, opened), whole_number(opened, "stream"))


def check_search(text: str, regex: bool, globs: tuple[str, ...]) -> None:
    """Raises: ValidationError that names the field."""
    if not text:
        raise ValidationError("text must not be empty", field="text")
    try:
        if regex:
            Pattern(text)
    except PatternError as error:
        raise ValidationError(f"text {error}", field="text") from None
    check_globs(globs)


def check_globs(globs: tuple[str, ...]) -> None:
    """Raises: ValidationError."""
    try:
        Globs(globs)
    except GlobError as error:
        raise ValidationError(f"glob {error}", field="glob") from None


def patch_names(text: str) -> list[str]:
    """The names in a patch, each once. Raises: ValidationError."""
    try:
        files = patches.parse(text)
    except patches.PatchError as error:
        raise ValidationError(f"patch: {error}", field="patch") from None
    names = (name for each in files for name in (each.old, each.new) if name is not None)
    return list(dict.fromkeys(names))


def _why(rejects: list[dict[str, Any]]) -> str:
    first = rejects[0]
    where = f", hunk {first['hunk']}" if first["hunk"] else ""
    more = f"; {len(rejects) - 1} more are in rejects" if len(rejects) > 1 else ""
    return f"nothing was changed: {first['path']}{where}: {first['reason']}{more}"


def _items(answer: Message, name: str, most: int) -> list[Any]:
    items = answer.get(name)
    if not isinstance(items, list) or len(items) > most:
        raise malformed()
    return items


def _text(value: Any, *, optional: bool = False) -> Any:
    if optional and value is None:
        return None
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise malformed()
    return value


def _members(value: Any) -> Message:
    if not isinstance(value, dict):
        raise malformed()
    return value


def _match(value: Any) -> FileMatch:
    found = _members(value)
    return FileMatch(
        _text(found.get("path")), whole_number(found, "line"), _text(found.get("text"))
    )


def _patched(value: Any) -> PatchedFile:
    done = _members(value)
    if done.get("action") not in _ACTIONS:
        raise malformed()
    source = _text(done.get("from"), optional=True)
    return PatchedFile(_text(done.get("path")), done["action"], whole_number(done, "hunks"), source)


def _reject(value: Any) -> dict[str, Any]:
    reject = _members(value)
    texts = {name: _text(reject.get(name)) for name in ("path", "header", "reason")}
    return {**texts, "hunk": whole_number(reject, "hunk")}


def _change(value: Any) -> FileChange:
    change = _members(value)
    if change.get("kind") not in _KINDS or not isinstance(change.get("directory"), bool):
        raise malformed()
    path, source = _text(change.get("path")), _text(change.get("source"), optional=True)
    return FileChange(change["kind"], path, change["directory"], source)
