"""What a file worker does for each request; its answer is JSON, or bytes of a file."""

import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import names
from sandbox_agent.decide.protocol import Entry
from sandbox_agent.files import directories, journal, listing
from sandbox_agent.files.condition import Condition
from sandbox_agent.files.directories import change_mode, make_directory, make_link
from sandbox_agent.files.places import Place, Places
from sandbox_agent.files.reading import Reader
from sandbox_agent.files.writing import Appender, Writer

if TYPE_CHECKING:
    from sandbox_agent.decide.globs import Globs
    from sandbox_agent.files.archives.packing import Packing
    from sandbox_agent.files.archives.unpacking import Unpacking
    from sandbox_agent.files.watching import Watching

# An archive with more entries than its bound allows fails instead of using up the session's memory.
_ARCHIVE_MEMORY = 384 * 1024 * 1024
# The methods that change nothing; others may only name what may be written.
_READING = frozenset({"read", "list", "stat", "pack", "search", "watch"})

Cut = Callable[[str], str]
_Members = dict[str, Any]


class FileMethods:
    """The methods of one worker, and the file or archive that they have open.

    All raise AgentError, OSError, and LookupError, TypeError or ValueError for a malformed request.
    """

    def __init__(self, places: Places, lock: int, wake: int, cut: Cut) -> None:
        """`lock` is a file that is locked while a file is replaced.

        A wait for changes ends as soon as `wake` can be read.
        """
        self._lock = lock
        self._wake = wake
        self._places = places
        self._cut = cut
        # What is read, written or unpacked in chunks, or watched.
        self._source: Reader | Packing | None = None
        self._target: Writer | Appender | None = None
        self._unpacking: Unpacking | None = None
        self._watching: Watching | None = None
        # How many files were changed because a worker before this one was killed.
        self._recovered: int | None = None
        # The methods that have no path, or several.
        self._without_place: dict[str, Callable[[_Members], _Members]] = {
            **{"commit": self._commit, "finish": self._finish, "unpacked": self._stop},
            **{"move": self._move, "copy": self._copy, "patch": self._patch},
            **{"digest": self._digest, "changes": self._changes, "recover": self._recover},
        }
        self._at_place: dict[str, Callable[[Place, str, _Members], _Members]] = {
            **{"read": self._read, "write": self._write, "append": self._append},
            **{"list": self._list, "stat": self._stat, "search": self._search},
            **{"pack": self._pack, "unpack": self._unpack, "watch": self._watch},
            **{"delete": self._delete, "mkdir": self._mkdir, "chmod": self._chmod},
            "symlink": self._symlink,
        }

    def perform(self, request: _Members) -> _Members:
        """The answer's members."""
        method = request["method"]
        if self._recovered is None:
            self._recovered = journal.recover(self._places, Condition(lock=self._lock))
        if method in self._without_place:
            return self._without_place[method](request)
        if method not in self._at_place:
            raise AgentError("validation_error", f"unknown file operation: {method}")
        writes = method not in _READING
        place, path = self._places.find(request.get("path", ""), writes=writes)
        return self._at_place[method](place, path, request)

    def pull(self, limit: int) -> bytes:
        """The next bytes of what is read; empty at its end."""
        if self._source is None:
            raise AgentError("conflict", "no file is open for reading")
        return self._source.pull(limit)

    def push(self, data: bytes) -> _Members:
        """Takes bytes of what is written or unpacked."""
        if self._unpacking is None:
            self._pushing().push(data)
            return {}
        self._unpacking.push(data)
        # The agent records this if the process is killed before the end.
        return {"summary": self._unpacking.news()}

    def _pushing(self) -> "Writer | Appender":
        if self._target is None:
            raise AgentError("conflict", "no file is open for writing")
        return self._target

    def _commit(self, _request: _Members) -> _Members:
        writer = self._pushing()
        writer.commit()
        self._target = None
        version = {"version": writer.version} if isinstance(writer, Writer) else {}
        return {"bytes": writer.size, **version}

    def _recover(self, _request: _Members) -> _Members:
        return {"files": self._recovered}

    def _finish(self, _request: _Members) -> _Members:
        return self._unpacked(finishes=True)

    def _stop(self, _request: _Members) -> _Members:
        return self._unpacked(finishes=False)

    def _move(self, request: _Members) -> _Members:
        names = request["source"], request["destination"]
        directories.move(*(self._places.find(name, writes=True) for name in names))
        return {}

    def _write(self, place: Place, path: str, request: _Members) -> _Members:
        self._target = Writer(
            *(place, path, request.get("permissions")),
            parents=bool(request.get("parents")),
            modified=request.get("modified"),
            condition=self._condition(request),
            attributes=request.get("attributes") or {},
        )
        return {"size": 0}

    def _append(self, place: Place, path: str, request: _Members) -> _Members:
        self._target = Appender(place, path, parents=bool(request.get("parents")))
        return {"size": 0}

    def _list(self, place: Place, path: str, request: _Members) -> _Members:
        chosen = _globs(request.get("glob") and [request["glob"]])
        given = request["depth"], request["limit"], chosen, request.get("attributes")
        entries, cut = listing.list_entries(place, path, *given)
        return {"entries": [_entry_members(place, each) for each in entries], "truncated": cut}

    def _stat(self, place: Place, path: str, request: _Members) -> _Members:
        found = listing.stat_entry(place, path, request.get("attributes"))
        return _entry_members(place, found)

    def _watch(self, place: Place, path: str, request: _Members) -> _Members:
        from sandbox_agent.files.watching import Watching  # only here: it takes memory

        self._watching = Watching(place, path, recursive=request["recursive"])
        return {}

    def _mkdir(self, place: Place, path: str, _request: _Members) -> _Members:
        make_directory(place, path)
        return {}

    def _chmod(self, place: Place, path: str, request: _Members) -> _Members:
        change_mode(place, path, request["permissions"])
        return {}

    def _symlink(self, place: Place, path: str, request: _Members) -> _Members:
        make_link(place, path, names.real(request["target"]))
        return {}

    def _condition(self, request: _Members) -> Condition:
        return Condition(request.get("match"), request.get("none_match"), self._lock)

    def _read(self, place: Place, path: str, request: _Members) -> _Members:
        reader = Reader(place, path, links=request.get("links") is not False)
        self._source = reader
        known = {"permissions": reader.permissions, "modified": reader.modified}
        answer = {"size": reader.size, **known, "version": reader.version}
        if "range" in request:
            start, length = reader.choose(*request["range"])
            answer |= {"start": start, "length": length}
        return answer

    def _delete(self, place: Place, path: str, request: _Members) -> _Members:
        condition = self._condition(request)
        with condition.held():
            condition.check(place, path)
            if not request.get("recursive"):
                directories.delete(place, path)
                return {}
        from sandbox_agent.files import trees  # only here: it takes memory

        return {"removed": trees.remove(place, path)}

    def _copy(self, request: _Members) -> _Members:
        from sandbox_agent.files import trees  # only here: it takes memory

        source = self._places.find(request["source"], writes=False)
        destination = self._places.find(request["destination"], writes=True)
        copied = trees.copy(source, destination, request["most_bytes"], parents=request["parents"])
        return {"copied": copied._asdict()}

    def _search(self, place: Place, path: str, request: _Members) -> _Members:
        from sandbox_agent.decide.files.pattern_parser import PatternError  # only here: memory
        from sandbox_agent.decide.files.patterns import Pattern  # only here: memory
        from sandbox_agent.files.search import Search, Wanted

        text, ignore_case = request["text"], request["ignore_case"]
        try:
            pattern = Pattern(text, ignore_case=ignore_case) if request["regex"] else None
        except PatternError as error:
            raise AgentError("validation_error", f"text {error}") from None
        globs = _globs(request["globs"])
        return Search(
            place, path, Wanted(text, pattern, ignore_case, globs, request["limit"])
        ).run()

    def _patch(self, request: _Members) -> _Members:
        from sandbox_agent.files.patching import Patching  # only here: it takes memory

        _limit_memory()
        together = Condition(lock=self._lock)
        patching = Patching(self._places, request["patch"], request["names"], together)
        return patching.apply(writes=not request["dry_run"])

    def _changes(self, request: _Members) -> _Members:
        if self._watching is None:
            raise AgentError("conflict", "nothing is watched")
        return self._watching.next(self._wake, request["limit"], request["wait_ms"])

    def _digest(self, request: _Members) -> _Members:
        from sandbox_agent.files.digests import digests  # only here: it takes memory

        workspace, _ = self._places.find(".", writes=False)
        return {"digests": digests(workspace, request["paths"], request["identities"])}

    def _pack(self, place: Place, path: str, request: _Members) -> _Members:
        from sandbox_agent.files.archives.packing import Packing  # only here: it takes memory
        from sandbox_agent.files.archives.scan import Scan
        from sandbox_agent.files.archives.tally import Tally

        _limit_memory()
        tally = Tally(self._cut)
        scan = Scan(place, path, tally, texts=request["format"] == "zip")
        self._source = Packing(scan, request["format"])
        return {"summary": tally.members() | scan.skipped.members()}

    def _unpack(self, place: Place, path: str, request: _Members) -> _Members:
        from sandbox_agent.files.archives.unpacking import Unpacking  # only here: it takes memory

        _limit_memory()
        kind, most = request["format"], request["most_bytes"]
        self._unpacking = Unpacking(place, path, kind, most, self._cut)
        return {}

    def _unpacked(self, *, finishes: bool) -> _Members:
        """What was unpacked so far; with `more`, it is not done and must be asked again."""
        if self._unpacking is None:
            raise AgentError("conflict", "no archive is being unpacked")
        answer: _Members = {"more": False}
        try:
            if finishes:
                answer["more"] = not self._unpacking.finish()
            else:
                self._unpacking.stop()
        except AgentError as error:
            answer["error"] = error_members(error)
        return answer | {"summary": self._unpacking.members()}


def error_members(error: AgentError) -> dict[str, str | None]:
    """The members of an error in an answer."""
    return {"code": error.code, "message": names.plain(error.message), "rule": error.rule}


def _globs(patterns: list[str] | None) -> "Globs | None":
    """The patterns that choose files; None: all. Raises: AgentError."""
    if not patterns:
        return None
    from sandbox_agent.decide.globs import GlobError, Globs  # only here: it takes memory

    try:
        # As in .gitignore, a pattern without a slash is about names in any directory.
        return Globs(each if "/" in each else f"**/{each}" for each in patterns)
    except GlobError as error:
        raise AgentError("validation_error", f"glob: {error}") from None


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ARCHIVE_MEMORY, _ARCHIVE_MEMORY))


def _entry_members(place: Place, entry: Entry) -> _Members:
    """An entry's members; its path is absolute if it is in the image, else relative."""
    members = entry._asdict()
    if entry.version is None:
        del members["version"]  # a list has none
    if entry.attributes is None:
        del members["attributes"]  # nobody asked for them
    if place.image:
        members["path"] = "/" + ("" if entry.path == "." else entry.path.lstrip("/"))
    return members
