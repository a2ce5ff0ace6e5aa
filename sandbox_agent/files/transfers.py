"""Runs the control plane's file operations, each in its own worker process."""

import functools
import os
from collections.abc import Callable

from sandbox_agent.core import params as given
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import Loop, Timer
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.excerpts import LONGEST_PATHS, MOST_PATHS, json_size
from sandbox_agent.decide.protocol import (
    CHUNK_BYTES,
    MOST_AHEAD,
    WORKSPACE_DIR,
    Configuration,
    Message,
)
from sandbox_agent.enforce.reads.pack_files import Held
from sandbox_agent.files import operations
from sandbox_agent.files.file_helper import FileHelper

_MOST_HELPERS = 8
_MOST_WATCHES = 4
_MOST_CHANGES = 500
# A worker that takes longer to answer is killed.
_LONGEST_WAIT_MS = 15_000
# An idle stream is closed after this time, and an unfinished write is rolled back.
_STREAM_IDLE_SECONDS = 60.0
_OPERATIONS = {
    **{"read": "file.read", "write": "file.write", "append": "file.write"},
    **{"pack": "file.pack", "unpack": "file.unpack", "watch": "file.watch"},
}
_ARCHIVES = ("pack", "unpack")
# The members that describe a file that is read.
_FACTS = ("permissions", "modified", "version", "start", "length")
# The streams that change nothing: their start is recorded, and not their end.
_READING = ("read", "pack", "watch")
# Seconds since the epoch.
_LATEST_TIME = 2**40
_FORMATS = ("tar", "zip")
_GONE = AgentError("conflict", "the archive did not arrive completely")


class _Stream:
    """A file or tree that is read or written in chunks; `args` are the arguments in its event."""

    def __init__(self, helper: FileHelper, mode: str, args: Message) -> None:
        self.helper = helper
        self.mode = mode
        self.args = args
        self.timer: Timer | None = None
        # Why an archive can't be unpacked.
        self.failure: AgentError | None = None
        # The last known summary of what was unpacked.
        self.unpacked: Message = {}
        self._room = LONGEST_PATHS

    def note(self, summary: Message) -> None:
        """Stores the latest summary, and adds its new paths to the earlier ones."""
        paths = self.unpacked.get("paths", [])
        for path in summary.get("paths", ()):
            self._room -= json_size(path)
            if self._room < 0 or len(paths) >= MOST_PATHS:
                break
            paths.append(path)
        self.unpacked = {**summary, "paths": paths}


class Transfers:
    """Runs file operations and records each one before answering it."""

    def __init__(
        self,
        loop: Loop,
        configuration: Configuration,
        events: EventBuffer,
        cut: Callable[[str], str],
    ) -> None:
        """`cut` removes secrets from what is recorded."""
        self._loop = loop
        self._cut = cut
        self._uid = configuration.uid
        # With a context pack, no link may lead to a file outside the pack.
        self._links = configuration.consume is None
        self._anywhere = configuration.commands is None and self._links
        self._events = events
        self._helpers: set[FileHelper] = set()
        self._watchers: set[FileHelper] = set()
        # All workers lock it while they replace a file, so that conditions hold until then.
        self._lock = os.memfd_create("paddock-files")
        self._streams: dict[int, _Stream] = {}
        self._next_stream = 1

    def _helper(self, *, watches: bool = False) -> FileHelper:
        if self._events.full:
            raise AgentError("audit_unavailable", "audit events still wait for the control plane")
        if watches and len(self._watchers) >= _MOST_WATCHES:
            raise AgentError("busy", f"{_MOST_WATCHES} watches are open already: close one")
        if not watches and len(self._helpers - self._watchers) >= _MOST_HELPERS:
            raise AgentError(
                "busy", f"{_MOST_HELPERS} file operations are already running: try again"
            )
        try:
            helper = FileHelper(
                *(self._loop, self._uid, WORKSPACE_DIR, self._anywhere, self._links),
                *(self._cut, self._on_helper_end, self._lock),
            )
        except OSError as error:
            raise AgentError("busy", f"no room for another process: {error.strerror}") from None
        self._helpers.add(helper)
        if watches:
            self._watchers.add(helper)
        return helper

    def _on_helper_end(self, helper: FileHelper) -> None:
        self._helpers.discard(helper)
        self._watchers.discard(helper)
        for number, stream in list(self._streams.items()):
            if stream.helper is helper:
                self._forget(number)
                if stream.mode == "unpack":
                    self._end_unpacking(stream, {}, stream.failure or _GONE)

    # Single operations

    def operate(self, method: str, params: Message, reply: Reply) -> None:
        """Runs any operation except streams, records it and answers. Raises: AgentError."""
        request, args = operations.asked(method, params)
        helper = self._helper()

        def answered(answer: Message, _data: bytes) -> None:
            helper.close()
            error = _error_of(answer)
            self._record(f"file.{method}", args, operations.result(answer), error)
            reply(error or answer)

        helper.ask(request, answered)

    def digest(self, permitted: Held, params: Message, reply: Reply) -> None:
        """Answers with the digests of some files; this is not recorded. Raises: AgentError.

        `permitted` are the files that the session's rules permit; a file that has taken the place
        of one of them has no digest.
        """
        paths = given.texts(params, "paths")
        helper = self._helper()

        def answered(answer: Message, _data: bytes) -> None:
            helper.close()
            reply(_error_of(answer) or {"digests": answer.get("digests", [])})

        identities = [permitted.get(path, (0, 0)) if permitted else None for path in paths]
        request = {"method": "digest", "paths": paths, "identities": identities}
        helper.ask(request, answered)

    def _record(
        self, operation: str, args: Message, result: Message, error: AgentError | None
    ) -> None:
        denied = error is not None and error.code == "permission_denied"
        self._events.emit(
            operation,
            decision="deny" if denied else "allow",
            rule=error.rule if error else None,
            command_id=None,
            args=args,
            # Even a refused archive was unpacked in part.
            result=None if error and operation != "file.unpack" else result,
            error=error.message if error else None,
            duration_ms=0,
        )

    # Streams

    def open(self, params: Message, reply: Reply) -> None:
        """Opens a file or tree that is read or written in chunks. Raises: AgentError."""
        mode, path = given.text(params, "op"), given.text(params, "path")
        if mode not in _OPERATIONS:
            raise AgentError("validation_error", f"unknown mode: {mode}")
        request = {"method": mode, "path": path, **_worker_params(mode, params)}
        args = {"path": path, **_for_record(mode, request)}
        helper = self._helper(watches=mode == "watch")

        def answered(answer: Message, _data: bytes) -> None:
            error = _error_of(answer)
            if error is not None or mode in _READING:
                result = {"bytes": answer.get("size", 0)} if mode == "read" else _for_event(answer)
                self._record(_OPERATIONS[mode], args, result, error)
            if error is not None:
                helper.close()
                reply(error)
                return
            number, self._next_stream = self._next_stream, self._next_stream + 1
            self._streams[number] = _Stream(helper, mode, args)
            self._touch(number)
            known: Message = {name: answer[name] for name in _FACTS if name in answer}
            if mode == "pack":
                known["summary"] = _for_caller(answer)
            links = {"links": False} if "links" in request else {}
            reply({"stream": number, "size": answer.get("size", 0), **known, **links})

        helper.ask(request, answered)

    def _stream(self, params: Message) -> _Stream:
        number = given.number(params, "stream")
        stream = self._streams.get(number)
        if stream is None:
            raise AgentError("conflict", f"file stream {number} is closed: it did not finish")
        self._touch(number)
        return stream

    def _ready(self, params: Message) -> _Stream:
        stream = self._stream(params)
        if stream.helper.requests >= MOST_AHEAD:
            raise AgentError("busy", f"a file stream has {MOST_AHEAD} requests under way")
        return stream

    def _touch(self, number: int) -> None:
        stream = self._streams[number]
        if stream.timer is not None:
            stream.timer.cancel()
        idle = functools.partial(self._abandon, number)
        stream.timer = self._loop.after(_STREAM_IDLE_SECONDS, idle)

    def _forget(self, number: int) -> _Stream:
        stream = self._streams.pop(number)
        if stream.timer is not None:
            stream.timer.cancel()
        return stream

    def _abandon(self, number: int, reply: Reply = lambda _: None) -> None:
        """Rolls back what was not committed; what was unpacked stays, and is recorded."""
        stream = self._forget(number)
        if stream.mode != "unpack":
            stream.helper.close()
            reply({"bytes": 0})
            return

        def answered(answer: Message, _data: bytes) -> None:
            self._end_unpacking(stream, answer, stream.failure or _GONE)
            reply({"bytes": 0})

        stream.helper.ask({"method": "unpacked"}, answered)

    def _end_unpacking(self, stream: _Stream, answer: Message, error: AgentError | None) -> None:
        stream.helper.close()
        known = {"summary": stream.unpacked} | answer
        self._record("file.unpack", stream.args, _for_event(known), error)

    def pull(self, params: Message, reply: Reply) -> None:
        """Reads the next bytes of an open file. Raises: AgentError."""
        stream = self._ready(params)
        limit = min(given.number(params, "limit", 1), CHUNK_BYTES)

        def answered(answer: Message, data: bytes) -> None:
            error = _error_of(answer)
            reply(error or {"data": data})

        stream.helper.ask({"method": "pull", "limit": limit}, answered)

    def changes(self, params: Message, reply: Reply) -> None:
        """Answers with the next changes of a watch. Raises: AgentError."""
        stream = self._ready(params)
        request = {
            "method": "changes",
            "limit": min(given.number(params, "limit", 1), _MOST_CHANGES),
            "wait_ms": min(given.number(params, "wait_ms"), _LONGEST_WAIT_MS),
        }

        def answered(answer: Message, _data: bytes) -> None:
            reply(_error_of(answer) or answer)

        stream.helper.ask(request, answered)

    def push(self, params: Message, reply: Reply) -> None:
        """Writes more bytes to an open file. Raises: AgentError."""
        data = given.raw(params, "data")
        stream = self._ready(params)

        def answered(answer: Message, _data: bytes) -> None:
            error = _error_of(answer)
            stream.failure = stream.failure or error
            if "summary" in answer:
                stream.note(answer["summary"])
            reply(error or {})

        stream.helper.push(data, answered)

    def close(self, params: Message, reply: Reply) -> None:
        """Closes a stream; `commit` puts what was written into effect. Raises: AgentError."""
        commit = given.flag(params, "commit")
        stream = self._stream(params)
        number = given.number(params, "stream")
        if not commit or stream.mode in _READING:
            self._abandon(number, reply)
            return
        if stream.mode == "unpack":
            self._finish_unpacking(number, stream, reply)
            return

        def answered(answer: Message, _data: bytes) -> None:
            error = _error_of(answer)
            result = {"bytes": answer.get("bytes", 0)}
            self._record("file.write", stream.args, result, error)
            stream.helper.close()
            known = {"version": answer["version"]} if "version" in answer else {}
            reply(error or result | known)

        stream.helper.ask({"method": "commit"}, answered)

    def _finish_unpacking(self, number: int, stream: _Stream, reply: Reply) -> None:
        """Unpacks the rest for some time; answers with `more` if it is not done yet."""

        def answered(answer: Message, _data: bytes) -> None:
            error = _error_of(answer)
            if error is None and answer.get("more"):
                stream.unpacked = answer.get("summary", stream.unpacked)
                reply({"bytes": 0, "more": True})
                return
            if number in self._streams:
                self._forget(number)
                self._end_unpacking(stream, answer, error)
            reply(error or {"bytes": 0, "more": False, "summary": _for_caller(answer)})

        stream.helper.ask({"method": "finish"}, answered)

    def close_all(self) -> None:
        """Rolls back what was not committed, because the connection was lost."""
        ending = {each.helper for each in self._streams.values() if each.mode == "unpack"}
        for number in list(self._streams):
            self._abandon(number)
        for helper in self._helpers - ending:
            helper.close()


def _worker_params(mode: str, params: Message) -> Message:
    """The parameters of a worker's request besides the path. Raises: AgentError."""
    if mode in _ARCHIVES:
        kind = given.text(params, "format")
        if kind not in _FORMATS:
            raise AgentError("validation_error", f"unknown format: {kind}")
        return {"format": kind, "most_bytes": given.number(params, "most_bytes")}
    if mode == "watch":
        return {"recursive": given.flag(params, "recursive")}
    permissions = params.get("permissions")
    if permissions is not None:
        permissions = given.number(params, "permissions", 0, 0o777)
    modified = params.get("modified")
    if modified is not None:
        modified = given.number(params, "modified", 0, _LATEST_TIME)
    facts = {"permissions": permissions, "modified": modified}
    links = {"links": False} if params.get("links") is False else {}
    more = {**links, **operations.conditions(params), **_range(params)}
    return {**facts, "parents": params.get("parents") is True, **more}


def _range(params: Message) -> Message:
    """The bytes that are wanted, if not all. Raises: AgentError."""
    wanted = params.get("range")
    if wanted is None:
        return {}
    if not isinstance(wanted, list) or len(wanted) != 2:
        raise AgentError("validation_error", "range must have two numbers")
    ends = {"first": wanted[0], "last": wanted[1]}
    found = [None if ends[name] is None else given.number(ends, name) for name in ends]
    return {"range": found}


def _for_record(mode: str, request: Message) -> Message:
    """How a stream is opened, in its event."""
    if mode == "watch":
        return {"recursive": request["recursive"]}
    if mode in _ARCHIVES:
        return {"format": request["format"]}
    wanted = request.get("range")
    chosen = {} if wanted is None else {"range": "-".join(map(_text, wanted))}
    return {"mode": mode, **chosen}


def _text(end: int | None) -> str:
    return "" if end is None else str(end)


def _for_event(answer: Message) -> Message:
    """The summary of an archive as its event has it: without the names of skipped entries."""
    summary: Message = answer.get("summary", {})
    return {name: value for name, value in summary.items() if name != "skipped_names"}


def _for_caller(answer: Message) -> Message:
    """The summary of an archive as the caller gets it: without the paths."""
    summary: Message = answer.get("summary", {})
    return {name: value for name, value in summary.items() if name != "paths"}


def _error_of(answer: Message) -> AgentError | None:
    """The error in a worker's answer, if there is one."""
    if "error" not in answer:
        return None
    error = answer["error"]
    rule = error.get("rule")
    return AgentError(
        str(error.get("code")), str(error.get("message")), rule if isinstance(rule, str) else None
    )
