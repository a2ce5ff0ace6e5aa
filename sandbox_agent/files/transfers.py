"""Runs the control plane's file operations, each in its own worker process."""

import functools
import os
from collections.abc import Callable

from sandbox_agent.core import params as given
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import (
    CHUNK_BYTES,
    MOST_AHEAD,
    Configuration,
    Message,
)
from sandbox_agent.enforce.reads.pack_files import Held
from sandbox_agent.enforce.syscalls import borrow_file_identity
from sandbox_agent.files import journal, operations
from sandbox_agent.files.file_helper import FileHelper
from sandbox_agent.files.stream_requests import (
    FACTS,
    OPERATIONS,
    READING,
    asked_by,
    error_of,
    for_caller,
    for_event,
    for_record,
    worker_params,
)
from sandbox_agent.files.transfer_stream import TransferStream

_MOST_HELPERS = 8
_MOST_WATCHES = 4
_MOST_CHANGES = 500
# A worker that takes longer to answer is killed.
_LONGEST_WAIT_MS = 15_000
# An idle stream is closed after this time, and an unfinished write is rolled back.
_STREAM_IDLE_SECONDS = 60.0
_GONE = AgentError("conflict", "the archive did not arrive completely")


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
        self._workspace = configuration.workspace
        # With a context pack, no link may lead to a file outside the pack.
        self._links = configuration.consume is None
        self._anywhere = configuration.commands is None and self._links
        written = configuration.writable
        self._volumes = {path: path in written for path in configuration.volumes}
        self._events = events
        self._helpers: set[FileHelper] = set()
        self._watchers: set[FileHelper] = set()
        # All workers lock it while they replace a file, so that conditions hold until then.
        self._lock = os.memfd_create("paddock-files")
        self._streams: dict[int, TransferStream] = {}
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
                *(self._loop, self._uid, self._workspace, self._anywhere, self._links),
                *(self._volumes, self._cut, self._on_helper_end, self._lock),
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
        args |= asked_by(params)
        helper = self._helper()

        def answered(answer: Message, _data: bytes) -> None:
            helper.close()
            error = error_of(answer)
            self._record(f"file.{method}", args, operations.result(answer), error)
            reply(error or answer)

        helper.ask(request, answered)

    def recover(self, done: Callable[[], None]) -> None:
        """Completes a patch in whose last step an earlier sandbox was killed; calls back then."""
        borrow_file_identity(self._uid)
        try:
            left = os.path.lexists(f"{self._workspace}/{journal.NAME}")
        finally:
            borrow_file_identity(0)
        try:
            helper = self._helper() if left else None
        except AgentError:
            helper = None  # the next operation does it
        if helper is None:
            done()
            return

        def answered(answer: Message, _data: bytes) -> None:
            helper.close()
            error = error_of(answer)
            if error is not None or answer.get("files"):
                self._record("file.patch", {"path": "."}, operations.result(answer), error)
            done()

        helper.ask({"method": "recover"}, answered)

    def digest(self, permitted: Held, params: Message, reply: Reply) -> None:
        """Answers with the digests of some files; this is not recorded. Raises: AgentError.

        `permitted` are the files that the session's rules permit; a file that has taken the place
        of one of them has no digest.
        """
        paths = given.texts(params, "paths")
        helper = self._helper()

        def answered(answer: Message, _data: bytes) -> None:
            helper.close()
            reply(error_of(answer) or {"digests": answer.get("digests", [])})

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
        if mode not in OPERATIONS:
            raise AgentError("validation_error", f"unknown mode: {mode}")
        request = {"method": mode, "path": path, **worker_params(mode, params)}
        args = {"path": path, **for_record(mode, request), **asked_by(params)}
        helper = self._helper(watches=mode == "watch")

        def answered(answer: Message, _data: bytes) -> None:
            error = error_of(answer)
            if error is not None or mode in READING:
                result = {"bytes": answer.get("size", 0)} if mode == "read" else for_event(answer)
                self._record(OPERATIONS[mode], args, result, error)
            if error is not None:
                helper.close()
                reply(error)
                return
            number, self._next_stream = self._next_stream, self._next_stream + 1
            self._streams[number] = TransferStream(helper, mode, args)
            self._touch(number)
            known: Message = {name: answer[name] for name in FACTS if name in answer}
            if mode == "pack":
                known["summary"] = for_caller(answer)
            links = {"links": False} if "links" in request else {}
            reply({"stream": number, "size": answer.get("size", 0), **known, **links})

        helper.ask(request, answered)

    def _stream(self, params: Message) -> TransferStream:
        number = given.number(params, "stream")
        stream = self._streams.get(number)
        if stream is None:
            raise AgentError("conflict", f"file stream {number} is closed: it did not finish")
        self._touch(number)
        return stream

    def _ready(self, params: Message) -> TransferStream:
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

    def _forget(self, number: int) -> TransferStream:
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

    def _end_unpacking(
        self, stream: TransferStream, answer: Message, error: AgentError | None
    ) -> None:
        stream.helper.close()
        known = {"summary": stream.unpacked} | answer
        self._record("file.unpack", stream.args, for_event(known), error)

    def pull(self, params: Message, reply: Reply) -> None:
        """Reads the next bytes of an open file. Raises: AgentError."""
        stream = self._ready(params)
        request = {"method": "pull", "limit": min(given.number(params, "limit", 1), CHUNK_BYTES)}
        stream.helper.ask(request, lambda answer, data: reply(error_of(answer) or {"data": data}))

    def changes(self, params: Message, reply: Reply) -> None:
        """Answers with the next changes of a watch. Raises: AgentError."""
        stream = self._ready(params)
        request = {
            "method": "changes",
            "limit": min(given.number(params, "limit", 1), _MOST_CHANGES),
            "wait_ms": min(given.number(params, "wait_ms"), _LONGEST_WAIT_MS),
        }
        stream.helper.ask(request, lambda answer, _: reply(error_of(answer) or answer))

    def push(self, params: Message, reply: Reply) -> None:
        """Writes more bytes to an open file. Raises: AgentError."""
        data = given.raw(params, "data")
        stream = self._ready(params)

        def answered(answer: Message, _data: bytes) -> None:
            error = error_of(answer)
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
        if not commit or stream.mode in READING:
            self._abandon(number, reply)
            return
        if stream.mode == "unpack":
            self._finish_unpacking(number, stream, reply)
            return

        def answered(answer: Message, _data: bytes) -> None:
            error = error_of(answer)
            result = {"bytes": answer.get("bytes", 0)}
            self._record("file.write", stream.args, result, error)
            stream.helper.close()
            known = {"version": answer["version"]} if "version" in answer else {}
            reply(error or result | known)

        stream.helper.ask({"method": "commit"}, answered)

    def _finish_unpacking(self, number: int, stream: TransferStream, reply: Reply) -> None:
        """Unpacks the rest for some time; answers with `more` if it is not done yet."""

        def answered(answer: Message, _data: bytes) -> None:
            error = error_of(answer)
            if error is None and answer.get("more"):
                stream.unpacked = answer.get("summary", stream.unpacked)
                reply({"bytes": 0, "more": True})
                return
            if number in self._streams:
                self._forget(number)
                self._end_unpacking(stream, answer, error)
            reply(error or {"bytes": 0, "more": False, "summary": for_caller(answer)})

        stream.helper.ask({"method": "finish"}, answered)

    def close_all(self) -> None:
        """Rolls back what was not committed, because the connection was lost."""
        ending = {each.helper for each in self._streams.values() if each.mode == "unpack"}
        for number in list(self._streams):
            self._abandon(number)
        for helper in self._helpers - ending:
            helper.close()
