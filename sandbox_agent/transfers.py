"""Runs the control plane's file operations, each in its own worker process."""

from typing import Any

from sandbox_agent import params as given
from sandbox_agent.audit import EventBuffer
from sandbox_agent.errors import AgentError
from sandbox_agent.file_helper import FileHelper
from sandbox_agent.loop import Loop, Timer
from sandbox_agent.outputs import Reply
from sandbox_agent.protocol import (
    CHUNK_BYTES,
    MOST_AHEAD,
    WORKSPACE_DIR,
    Configuration,
    Message,
)

_MOST_HELPERS = 8
_MOST_ENTRIES = 10_000
_DEEPEST_LIST = 64
# An idle stream is closed after this time, and an unfinished write is rolled back.
_STREAM_IDLE_SECONDS = 60.0
_OPERATIONS = {"read": "file.read", "write": "file.write", "append": "file.write"}
_TEXTS = {"move": ("source", "destination"), "symlink": ("path", "target")}


class _Stream:
    """A file that is read or written in chunks."""

    def __init__(self, helper: FileHelper, path: str, mode: str) -> None:
        self.helper = helper
        self.path = path
        self.mode = mode
        self.timer: Timer | None = None


class Transfers:
    """Runs file operations and records each one before answering it."""

    def __init__(self, loop: Loop, configuration: Configuration, events: EventBuffer) -> None:
        self._loop = loop
        self._uid = configuration.uid
        self._anywhere = configuration.commands is None
        self._events = events
        self._helpers: set[FileHelper] = set()
        self._streams: dict[int, _Stream] = {}
        self._next_stream = 1

    def _helper(self) -> FileHelper:
        if self._events.full:
            raise AgentError("audit_unavailable", "audit events still wait for the control plane")
        if len(self._helpers) >= _MOST_HELPERS:
            raise AgentError(
                "busy", f"{_MOST_HELPERS} file operations are already running: try again"
            )
        try:
            helper = FileHelper(
                self._loop, self._uid, WORKSPACE_DIR, self._anywhere, self._on_helper_end
            )
        except OSError as error:
            raise AgentError("busy", f"no room for another process: {error.strerror}") from None
        self._helpers.add(helper)
        return helper

    def _on_helper_end(self, helper: FileHelper) -> None:
        self._helpers.discard(helper)
        for number, stream in list(self._streams.items()):
            if stream.helper is helper:
                self._forget(number)

    # Single operations

    def operate(self, method: str, params: Message, reply: Reply) -> None:
        """Runs any operation except streams, records it and answers. Raises: AgentError."""
        args: dict[str, Any] = {
            name: given.text(params, name) for name in _TEXTS.get(method, ("path",))
        }
        if method == "list":
            args["depth"] = min(given.number(params, "depth"), _DEEPEST_LIST)
            args["limit"] = min(given.number(params, "limit"), _MOST_ENTRIES)
        helper = self._helper()

        def answered(answer: Message, _data: bytes) -> None:
            helper.close()
            error = _error_of(answer)
            if method != "stat":
                result = {"entries": len(answer["entries"])} if "entries" in answer else {}
                self._record(f"file.{method}", args, result, error)
            reply(error or answer)

        helper.ask({"method": method, **args}, answered)

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
            result=None if error else result,
            error=error.message if error else None,
            duration_ms=0,
        )

    # Streams

    def open(self, params: Message, reply: Reply) -> None:
        """Opens a file for reading, writing or appending in chunks. Raises: AgentError."""
        mode, path = given.text(params, "op"), given.text(params, "path")
        if mode not in _OPERATIONS:
            raise AgentError("validation_error", f"unknown mode: {mode}")
        permissions = params.get("permissions")
        if permissions is not None:
            permissions = given.number(params, "permissions", 0, 0o777)
        helper = self._helper()

        def answered(answer: Message, _data: bytes) -> None:
            error = _error_of(answer)
            if error is not None or mode == "read":
                result = {"bytes": answer.get("size", 0)}
                self._record(_OPERATIONS[mode], {"path": path, "mode": mode}, result, error)
            if error is not None:
                helper.close()
                reply(error)
                return
            number, self._next_stream = self._next_stream, self._next_stream + 1
            self._streams[number] = _Stream(helper, path, mode)
            self._touch(number)
            told = {"permissions": answer["permissions"]} if mode == "read" else {}
            told |= {"links": False} if "links" in request else {}
            reply({"stream": number, "size": answer.get("size", 0), **told})

        parents = params.get("parents") is True
        request = {"method": mode, "path": path, "permissions": permissions, "parents": parents}
        if params.get("links") is False:
            request["links"] = False
        helper.ask(request, answered)

    def _stream(self, params: Message) -> _Stream:
        number = given.number(params, "stream")
        stream = self._streams.get(number)
        if stream is None:
            raise AgentError("not_found", f"file stream {number} is closed")
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
        stream.timer = self._loop.after(_STREAM_IDLE_SECONDS, stream.helper.close)

    def _forget(self, number: int) -> None:
        stream = self._streams.pop(number)
        if stream.timer is not None:
            stream.timer.cancel()

    def pull(self, params: Message, reply: Reply) -> None:
        """Reads the next bytes of an open file. Raises: AgentError."""
        stream = self._ready(params)
        limit = min(given.number(params, "limit", 1), CHUNK_BYTES)

        def answered(answer: Message, data: bytes) -> None:
            error = _error_of(answer)
            reply(error or {"data": data})

        stream.helper.ask({"method": "pull", "limit": limit}, answered)

    def push(self, params: Message, reply: Reply) -> None:
        """Writes more bytes to an open file. Raises: AgentError."""
        data = given.raw(params, "data")
        self._ready(params).helper.push(data, lambda answer, _: reply(_error_of(answer) or {}))

    def close(self, params: Message, reply: Reply) -> None:
        """Closes a stream; `commit` puts what was written into effect. Raises: AgentError."""
        commit = given.flag(params, "commit")
        stream = self._stream(params)
        if not commit or stream.mode == "read":
            stream.helper.close()
            reply({"bytes": 0})
            return

        def answered(answer: Message, _data: bytes) -> None:
            error = _error_of(answer)
            result = {"bytes": answer.get("bytes", 0)}
            args = {"path": stream.path, "mode": stream.mode}
            self._record("file.write", args, result, error)
            stream.helper.close()
            reply(error or result)

        stream.helper.ask({"method": "commit"}, answered)

    def close_all(self) -> None:
        """Rolls back what was not committed, because the connection was lost."""
        for helper in list(self._helpers):
            helper.close()


def _error_of(answer: Message) -> AgentError | None:
    """The error in a worker's answer, if there is one."""
    if "error" not in answer:
        return None
    error = answer["error"]
    rule = error.get("rule")
    return AgentError(
        str(error.get("code")), str(error.get("message")), rule if isinstance(rule, str) else None
    )
