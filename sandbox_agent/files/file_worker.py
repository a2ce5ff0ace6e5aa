"""Runs file operations in a separate process as the session's user.

The agent and the worker talk over a stream socket in frames: one byte of kind, four of length.

    J  JSON: a request, an answer, or {"error": {code, message, rule}}
    D  bytes of a file
"""

import json
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Entry
from sandbox_agent.enforce import privileges
from sandbox_agent.files import files, listing
from sandbox_agent.files.condition import Condition
from sandbox_agent.files.places import Place, Places

if TYPE_CHECKING:
    from sandbox_agent.decide.globs import Globs
    from sandbox_agent.files.archives.packing import Packing
    from sandbox_agent.files.archives.unpacking import Unpacking
    from sandbox_agent.files.watching import Watching

HEADER = struct.Struct(">cI")
# An archive with more entries than its bound allows fails instead of using up the session's memory.
_ARCHIVE_MEMORY = 384 * 1024 * 1024

# The methods that change nothing; others may only name what may be written.
_READING = frozenset({"read", "list", "stat", "pack", "search", "watch"})

Cut = Callable[[str], str]


def run(
    agent: socket.socket,
    lock: int,
    uid: int,
    workspace: str,
    anywhere: bool,
    links: bool,
    cut: Cut,
) -> None:
    """Runs the worker; never returns. `cut` removes secrets from what is recorded.

    `lock` is a file that is locked while a file is replaced.
    """
    try:
        low, high = sorted((agent.fileno(), lock))
        os.closerange(3, low)
        os.closerange(low + 1, high)
        os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
        privileges.default_signals()
        privileges.prefer_for_oom_kill()
        privileges.drop_to(uid)
        places = Places(workspace, anywhere=anywhere, links=links)
        _Worker(agent, lock, places, cut).serve()
    except ConnectionError:
        pass  # the agent no longer wants the answer
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's loop
        # The error itself is not printed: it may contain a path, and a path may contain a secret.
        number = getattr(error, "errno", None)
        print(f"file worker failed: {type(error).__name__} {number}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


class _Worker:
    """Answers requests until the agent closes the socket."""

    def __init__(self, agent: socket.socket, lock: int, places: Places, cut: Cut) -> None:
        self._agent = agent
        self._lock = lock
        self._places = places
        self._cut = cut
        # The file or archive that is read, written or unpacked in chunks.
        self._source: files.Reader | Packing | None = None
        self._target: files.Writer | files.Appender | None = None
        self._unpacking: Unpacking | None = None
        self._watching: Watching | None = None

    def serve(self) -> None:
        while True:
            header = self._receive(HEADER.size)
            if not header:
                break
            kind, length = HEADER.unpack(header)
            payload = self._receive(length)
            path = ""
            try:
                if kind == b"D":
                    self._answer(b"J", json.dumps(self._push(payload)).encode())
                    continue
                request = json.loads(payload)
                path = str(request.get("path", request.get("source", "")))
                self._handle(request)
            except OSError as error:
                self._fail(files.refusal(error, path))
            except AgentError as error:
                self._fail(error)
            except MemoryError:
                self._fail(AgentError("too_large", "the directory needs too much memory"))
            except (LookupError, TypeError, ValueError):
                self._fail(AgentError("validation_error", "not a file operation"))

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._agent.recv(count - len(data))
            if not part:
                return b""
            data += part
        return bytes(data)

    def _answer(self, kind: bytes, payload: bytes) -> None:
        self._agent.sendall(HEADER.pack(kind, len(payload)) + payload)

    def _fail(self, error: AgentError) -> None:
        self._answer(b"J", json.dumps({"error": _error_members(error)}).encode())

    def _push(self, data: bytes) -> dict[str, Any]:
        if self._unpacking is None:
            self._pushing().push(data)
            return {}
        self._unpacking.push(data)
        # The agent records this if the process is killed before the end.
        return {"summary": self._unpacking.news()}

    def _pushing(self) -> "files.Writer | files.Appender":
        if self._target is None:
            raise AgentError("conflict", "no file is open for writing")
        return self._target

    def _handle(self, request: dict[str, Any]) -> None:
        method = request["method"]
        if method == "pull":
            if self._source is None:
                raise AgentError("conflict", "no file is open for reading")
            self._answer(b"D", self._source.pull(request["limit"]))
            return
        self._answer(b"J", json.dumps(self._perform(method, request)).encode())

    def _perform(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        if method == "commit":
            writer = self._pushing()
            writer.commit()
            self._target = None
            version = {"version": writer.version} if isinstance(writer, files.Writer) else {}
            return {"bytes": writer.size, **version}
        if method in ("finish", "unpacked"):
            return self._unpacked(finishes=method == "finish")
        if method == "move":
            names = request["source"], request["destination"]
            files.move(*(self._places.find(name, writes=True) for name in names))
            return {}
        if method == "digest":
            return self._digest(request["paths"], request["identities"])
        if method == "copy":
            return self._copy(request)
        if method == "patch":
            return self._patch(request)
        if method == "changes":
            return self._changes(request["limit"], request["wait_ms"])
        reads = method in _READING
        place, path = self._places.find(request.get("path", ""), writes=not reads)
        if method == "read":
            return self._read(place, path, request)
        if method == "pack":
            return self._pack(place, path, request["format"])
        if method == "unpack":
            return self._unpack(place, path, request)
        parents = bool(request.get("parents"))
        if method == "write":
            facts = {"permissions": request.get("permissions"), "modified": request.get("modified")}
            self._target = files.Writer(
                place, path, parents=parents, condition=self._condition(request), **facts
            )
            return {"size": 0}
        if method == "append":
            self._target = files.Appender(place, path, parents=parents)
            return {"size": 0}
        if method == "list":
            chosen = request.get("glob") and [request["glob"]]
            entries, cut = listing.list_entries(
                *(place, path, request["depth"], request["limit"]), _globs(chosen)
            )
            listed = [_entry_members(place, entry) for entry in entries]
            return {"entries": listed, "truncated": cut}
        if method == "stat":
            return _entry_members(place, listing.stat_entry(place, path))
        if method == "search":
            return self._search(place, path, request)
        if method == "watch":
            from sandbox_agent.files.watching import Watching  # only here: it takes memory

            self._watching = Watching(place, path, recursive=request["recursive"])
            return {}
        if method == "delete":
            return self._delete(place, path, request)
        if method == "mkdir":
            files.make_directory(place, path)
        elif method == "chmod":
            files.change_mode(place, path, request["permissions"])
        elif method == "symlink":
            files.make_link(place, path, request["target"])
        else:
            raise AgentError("validation_error", f"unknown file operation: {method}")
        return {}

    def _condition(self, request: dict[str, Any]) -> Condition:
        return Condition(request.get("match"), request.get("none_match"), self._lock)

    def _read(self, place: Place, path: str, request: dict[str, Any]) -> dict[str, Any]:
        reader = files.Reader(place, path, links=request.get("links") is not False)
        self._source = reader
        known = {"permissions": reader.permissions, "modified": reader.modified}
        answer = {"size": reader.size, **known, "version": reader.version}
        if "range" in request:
            start, length = reader.choose(*request["range"])
            answer |= {"start": start, "length": length}
        return answer

    def _delete(self, place: Place, path: str, request: dict[str, Any]) -> dict[str, Any]:
        condition = self._condition(request)
        with condition.held():
            condition.check(place, path)
            if not request.get("recursive"):
                files.delete(place, path)
                return {}
        from sandbox_agent.files import trees  # only here: it takes memory

        return {"removed": trees.remove(place, path)}

    def _copy(self, request: dict[str, Any]) -> dict[str, Any]:
        from sandbox_agent.files import trees  # only here: it takes memory

        source = self._places.find(request["source"], writes=False)
        destination = self._places.find(request["destination"], writes=True)
        copied = trees.copy(source, destination, request["most_bytes"], parents=request["parents"])
        return {"copied": copied._asdict()}

    def _search(self, place: Place, path: str, request: dict[str, Any]) -> dict[str, Any]:
        from sandbox_agent.decide.patterns import Pattern, PatternError  # only here: memory
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

    def _patch(self, request: dict[str, Any]) -> dict[str, Any]:
        from sandbox_agent.files.patching import Patching  # only here: it takes memory

        _limit_memory()
        together = Condition(lock=self._lock)
        patching = Patching(self._places, request["patch"], request["names"], together)
        return patching.apply(writes=not request["dry_run"])

    def _changes(self, limit: int, wait_ms: int) -> dict[str, Any]:
        if self._watching is None:
            raise AgentError("conflict", "nothing is watched")
        return self._watching.next(self._agent.fileno(), limit, wait_ms)

    def _digest(self, paths: list[str], identities: list[Any]) -> dict[str, Any]:
        from sandbox_agent.files.digests import digests  # only here: it takes memory

        workspace, _ = self._places.find(".", writes=False)
        return {"digests": digests(workspace, paths, identities)}

    def _pack(self, place: Place, path: str, kind: str) -> dict[str, Any]:
        from sandbox_agent.files.archives.packing import Packing  # only here: it takes memory
        from sandbox_agent.files.archives.scan import Scan
        from sandbox_agent.files.archives.tally import Tally

        _limit_memory()
        tally = Tally(self._cut)
        scan = Scan(place, path, tally)
        self._source = Packing(scan, kind)
        return {"summary": tally.members() | scan.skipped.members()}

    def _unpack(self, place: Place, path: str, request: dict[str, Any]) -> dict[str, Any]:
        from sandbox_agent.files.archives.unpacking import Unpacking  # only here: it takes memory

        _limit_memory()
        kind, most = request["format"], request["most_bytes"]
        self._unpacking = Unpacking(place, path, kind, most, self._cut)
        return {}

    def _unpacked(self, *, finishes: bool) -> dict[str, Any]:
        """What was unpacked so far; with `more`, it is not done and must be asked again."""
        if self._unpacking is None:
            raise AgentError("conflict", "no archive is being unpacked")
        answer: dict[str, Any] = {"more": False}
        try:
            if finishes:
                answer["more"] = not self._unpacking.finish()
            else:
                self._unpacking.stop()
        except AgentError as error:
            answer["error"] = _error_members(error)
        return answer | {"summary": self._unpacking.members()}


def _error_members(error: AgentError) -> dict[str, str | None]:
    return {"code": error.code, "message": error.message, "rule": error.rule}


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


def _entry_members(place: Place, entry: Entry) -> dict[str, Any]:
    """An entry's members; its path is absolute if it is in the image, else relative."""
    members = entry._asdict()
    if entry.version is None:
        del members["version"]  # a list has none
    if place.image:
        members["path"] = "/" + ("" if entry.path == "." else entry.path.lstrip("/"))
    return members
