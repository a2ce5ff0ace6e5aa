"""The control plane's end of one sandbox's control socket.

The control plane listens in the sandbox's run directory, the agent dials. What arrives
belongs to the session by the socket it arrives on, and is checked before it is believed:
the agent shares a kernel with hostile commands.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import (
    AuditUnavailableError,
    BusyError,
    ConflictError,
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
    TooLargeError,
    ValidationError,
)
from sandbox_agent.protocol import (
    AGENT_OPERATIONS,
    PROTOCOL_VERSION,
    SOCKET_NAME,
    FrameDecoder,
    FrameError,
    Message,
    encode,
    failure,
    notification,
    request,
    result,
)

log = logging.getLogger(__name__)

# An agent whose connection broke dials again within a second; a request waits this long for it.
_RECONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 40.0
# A control plane that can't write to its agent holds at most this much for it.
_MOST_UNSENT_BYTES = 16 * 1024 * 1024
# Acknowledgements wait this long for something to travel with, or until so many are due:
# each one on its own would wake the agent for nothing else.
_ACK_SECONDS = 0.02
_MOST_UNACKNOWLEDGED = 64
_BOOT_ID = re.compile(r"[0-9a-f]{16}")
_COMMAND_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_MOST_LISTED = 256
# More than an agent has unacknowledged at any time; beyond it nothing more is read from it.
_MOST_RECORDING = 2048
_MOST_CONNECTIONS = 8
# An event says what happened to one thing: a few members, none longer than a path's text.
_MOST_MEMBERS = 32
_LONGEST_TEXT = 16 * 1024
_ERRORS: dict[str, type[PaddockError]] = {
    error.code: error
    for error in (
        AuditUnavailableError,
        BusyError,
        ConflictError,
        NotFoundError,
        PermissionDeniedError,
        TooLargeError,
        ValidationError,
    )
}


@dataclass(frozen=True, slots=True)
class Hello:
    """What an agent says when it connects."""

    boot_id: str
    running: frozenset[str]
    finished: frozenset[str]
    landlock_abi: int


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One audit event of an agent, checked for form."""

    boot_id: str
    seq: int
    operation: str
    decision: str | None
    rule: str | None
    command_id: str | None
    args: dict[str, Any]
    result: dict[str, Any] | None
    error: str | None
    duration_ms: int | None


class AgentLink:
    """Listens for one sandbox's agent and talks to it.

    `committed` gives the last committed event number of a boot id; `on_event` makes an
    event durable, in order; `on_hello` is told of every connection that was accepted.
    """

    def __init__(
        self,
        run_dir: Path,
        committed: Callable[[str], Awaitable[int]],
        on_event: Callable[[AgentEvent], Awaitable[None]],
        on_hello: Callable[[Hello], None],
    ) -> None:
        self._run_dir = run_dir
        self._committed = committed
        self._on_event = on_event
        self._on_hello = on_hello
        self._server: asyncio.Server | None = None
        self._current: _Connection | None = None
        self._open: dict[_Connection, None] = {}
        self._connected = asyncio.Event()
        self._refusal: str | None = None
        self._greeting: set[asyncio.Task[None]] = set()
        self._recording: set[asyncio.Task[bool]] = set()

    async def listen(self) -> None:
        """Opens the socket, replacing one that an earlier control plane left. Raises: OSError."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self._run_dir, os.O_PATH | os.O_DIRECTORY)
        try:
            # By descriptor, because a socket's path may have only 107 bytes.
            path = f"/proc/self/fd/{directory}/{SOCKET_NAME}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
            os.chmod(path, 0o600)
        except BaseException:
            listener.close()
            raise
        finally:
            os.close(directory)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), sock=listener)

    @property
    def connected(self) -> bool:
        """Whether an agent is connected and was accepted."""
        return self._connected.is_set() and self._refusal is None

    async def wait_connected(self, timeout: float) -> None:
        """Waits for an agent's hello.

        Raises: SandboxUnavailableError when none came in time, or it spoke another protocol.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            detail = self._refusal or "the sandbox agent did not connect in time"
            raise SandboxUnavailableError(detail) from None
        if self._refusal is not None:
            raise SandboxUnavailableError(self._refusal)

    async def request(
        self, method: str, params: Message, timeout: float = _REQUEST_SECONDS
    ) -> Message:
        """Asks the agent. Raises: SandboxUnavailableError, or the error that the agent named."""
        if not self.connected:
            await self.wait_connected(_RECONNECT_SECONDS)
        connection = self._current
        if connection is None:
            raise SandboxUnavailableError("the sandbox agent is not connected")
        try:
            async with asyncio.timeout(timeout):
                answer = await connection.request(method, params)
        except TimeoutError:
            detail = f"the sandbox agent did not answer {method} within {timeout:g} s"
            raise SandboxUnavailableError(detail) from None
        except FrameError as error:
            raise TooLargeError(str(error)) from None
        if "error" in answer:
            raise _domain_error(answer["error"])
        value = answer.get("result")
        if not isinstance(value, dict):
            raise SandboxUnavailableError(f"the sandbox agent answered {method} with garbage")
        return value

    async def settled(self) -> None:
        """Waits until every event received so far is durable.

        An agent sends an operation's event before its answer, so whoever has the answer
        and then this, has the operation on record. Raises: AuditUnavailableError.
        """
        recorded = await asyncio.gather(*self._recording)
        if not all(recorded):
            raise AuditUnavailableError("an audit event could not be recorded")

    async def close(self) -> None:
        """Stops listening, drops the connection, and finishes what is being recorded."""
        if self._server is not None:
            self._server.close()
        # Whoever waits for the agent need not wait any longer.
        self._refusal = "the sandbox has ended"
        self._connected.set()
        if self._current is not None:
            self._current.drop("closed")
        for task in self._greeting:
            task.cancel()
        await asyncio.gather(*self._greeting, *self._recording, return_exceptions=True)

    # Called by connections

    def opened(self, connection: "_Connection") -> None:
        """A connection was made; of too many, the oldest that is not in use goes."""
        self._open[connection] = None
        if len(self._open) > _MOST_CONNECTIONS:
            oldest = next(known for known in self._open if known is not self._current)
            oldest.drop("too many connections")

    def start_greeting(self, connection: "_Connection", message: Message) -> None:
        """Checks and answers a hello."""
        task = asyncio.create_task(self._greet(connection, message))
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    def start_recording(self, connection: "_Connection", event: AgentEvent) -> None:
        """Makes an event durable; events are handed on in the order of these calls."""
        task = asyncio.create_task(self._record(connection, event))
        self._recording.add(task)
        task.add_done_callback(self._recorded)
        if len(self._recording) >= _MOST_RECORDING:
            connection.pause()

    def _recorded(self, task: asyncio.Task[bool]) -> None:
        self._recording.discard(task)
        if len(self._recording) < _MOST_RECORDING and self._current is not None:
            self._current.resume()

    async def _greet(self, connection: "_Connection", message: Message) -> None:
        """Answers an agent's hello; a connection that says anything else first is dropped."""
        request_id = message.get("id")
        params = message.get("params")
        version = params.get("protocol") if isinstance(params, dict) else None
        if version != PROTOCOL_VERSION:
            self._refuse(connection, request_id, version)
            return
        try:
            hello = _parse_hello(params)
            committed = await self._committed(hello.boot_id)
        except (ValueError, AuditUnavailableError) as error:
            connection.drop(f"bad hello: {error}")
            return
        if connection.closing:
            return
        previous, self._current = self._current, connection
        if previous is not None and previous is not connection:
            previous.drop("replaced by a new connection")
        connection.accept(hello.boot_id, committed)
        self._refusal = None
        connection.send(result(request_id, {"committed_seq": committed}))
        self._connected.set()
        self._on_hello(hello)

    def _refuse(self, connection: "_Connection", request_id: Any, version: Any) -> None:
        self._refusal = (
            f"the image's sandbox agent speaks protocol {version!r}, this control plane speaks "
            f"{PROTOCOL_VERSION}: rebuild the image with `make run` or `python -m images build`"
        )
        connection.send(failure(request_id, "conflict", self._refusal))
        connection.drop("protocol mismatch", flush=True)
        self._connected.set()

    async def _record(self, connection: "_Connection", event: AgentEvent) -> bool:
        """Makes an event durable, then acknowledges it; on failure the agent sends it again."""
        try:
            await self._on_event(event)
        except PaddockError as error:
            connection.drop(f"event {event.seq} not recorded: {error.detail}")
            return False
        connection.acknowledge(event.seq)
        return True

    def lost(self, connection: "_Connection") -> None:
        """A connection has ended."""
        self._open.pop(connection, None)
        if self._current is connection:
            self._current = None
            if self._refusal is None:
                self._connected.clear()


class _Connection(asyncio.Protocol):
    """One accepted connection: frames, requests under way, and the order of events."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        self._accepted = False
        self._boot_id = ""
        self._last_seq = 0
        self._recorded = self._acknowledged = 0
        self._recorded_early: set[int] = set()
        self._ack_timer: asyncio.TimerHandle | None = None
        self._next_id = 1
        self._waiting: dict[int, asyncio.Future[Message]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        self._link.opened(self)

    def pause(self) -> None:
        """Reads nothing for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads again, where it was paused."""
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._receive(message)
        except (FrameError, ValueError) as error:
            self.drop(str(error))

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._link.lost(self)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(SandboxUnavailableError("the sandbox agent disconnected"))
        self._waiting.clear()

    @property
    def closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    def accept(self, boot_id: str, committed: int) -> None:
        """From here on events count from `committed`."""
        self._accepted, self._boot_id, self._last_seq = True, boot_id, committed
        self._recorded = self._acknowledged = committed

    async def request(self, method: str, params: Message) -> Message:
        """Sends a request and waits for its answer. Raises: SandboxUnavailableError, FrameError."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        try:
            self.send(request(request_id, method, params))
            return await waiting
        finally:
            self._waiting.pop(request_id, None)

    def send(self, message: Message) -> None:
        """Sends one frame. Raises: FrameError when it is too large."""
        if self._transport is None or self.closing:
            return
        self._transport.write(self._due_acknowledgement() + encode(message))
        if self._transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self.drop("the agent does not read")

    def acknowledge(self, seq: int) -> None:
        """Tells the agent, soon, up to which of its events all are durable: `seq` is, too."""
        self._recorded_early.add(seq)
        while self._recorded + 1 in self._recorded_early:
            self._recorded += 1
            self._recorded_early.remove(self._recorded)
        if self._recorded - self._acknowledged >= _MOST_UNACKNOWLEDGED:
            self._send_acknowledgement()
        elif self._ack_timer is None:
            loop = asyncio.get_running_loop()
            self._ack_timer = loop.call_later(_ACK_SECONDS, self._send_acknowledgement)

    def _send_acknowledgement(self) -> None:
        due = self._due_acknowledgement()
        if due and self._transport is not None and not self.closing:
            self._transport.write(due)

    def _due_acknowledgement(self) -> bytes:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self._recorded == self._acknowledged:
            return b""
        self._acknowledged = self._recorded
        return encode(notification("ack", {"seq": self._recorded}))

    def drop(self, reason: str, *, flush: bool = False) -> None:
        """Ends the connection; a living agent dials again and repeats what was not acknowledged."""
        if self._transport is not None:
            log.debug("agent connection dropped: %s", reason)
            # From here on requests wait for the next connection.
            self._link.lost(self)
            if flush:
                self._transport.close()
            else:
                self._transport.abort()

    def _receive(self, message: Message) -> None:
        if not self._accepted:
            if self._greeted or message.get("method") != "hello":
                raise ValueError("expected one hello first")
            self._greeted = True
            self._link.start_greeting(self, message)
        elif message.get("method") == "event":
            self._receive_event(message.get("params"))
        elif "method" in message:
            raise ValueError("an agent may only send hello and events")
        else:
            request_id = message.get("id")
            waiting = self._waiting.get(request_id) if isinstance(request_id, int) else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def _receive_event(self, params: Any) -> None:
        event = _parse_event(params)
        if event.boot_id != self._boot_id:
            raise ValueError("event of another boot id")
        if event.seq <= self._last_seq:
            return  # a repetition of what is on its way to the ledger already
        if event.seq != self._last_seq + 1:
            raise ValueError(f"event {event.seq} after event {self._last_seq}")
        self._last_seq = event.seq
        self._link.start_recording(self, event)


def _domain_error(error: Any) -> PaddockError:
    if not isinstance(error, dict):
        return SandboxUnavailableError("the sandbox agent answered with garbage")
    data = error.get("data")
    if not isinstance(data, dict):
        data = {}
    kind = _ERRORS.get(str(data.get("code")), SandboxUnavailableError)
    rule = data.get("rule")
    return kind(str(error.get("message"))[:2048], rule=rule if isinstance(rule, str) else None)


def _parse_hello(params: Any) -> Hello:
    boot_id, abi = params.get("boot_id"), params.get("landlock_abi")
    if not isinstance(boot_id, str) or not _BOOT_ID.fullmatch(boot_id):
        raise ValueError("boot_id must be 16 hex digits")
    if isinstance(abi, bool) or not isinstance(abi, int) or not 0 <= abi <= 1000:
        raise ValueError("landlock_abi must be a small number")
    return Hello(boot_id, _ids(params.get("running")), _ids(params.get("finished")), abi)


def _ids(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > _MOST_LISTED:
        raise ValueError("command ids must be a short list")
    if not all(isinstance(item, str) and _COMMAND_ID.fullmatch(item) for item in value):
        raise ValueError("command ids must be short strings")
    return frozenset(value)


def _parse_event(params: Any) -> AgentEvent:
    """Raises: ValueError where an event has not the form that an agent's events have."""
    if not isinstance(params, dict):
        raise ValueError("event must be an object")
    operation, decision = params.get("operation"), params.get("decision")
    if not isinstance(operation, str) or operation not in AGENT_OPERATIONS:
        raise ValueError("an agent may not report this operation")
    if decision not in ("allow", "deny", None):
        raise ValueError("decision must be allow, deny or null")
    args, outcome = params.get("args"), params.get("result")
    if not isinstance(args, dict) or not isinstance(outcome, dict | None):
        raise ValueError("args and result must be objects")
    _check_flat(args)
    _check_flat(outcome or {})
    command_id = _text(params, "command_id")
    if command_id is not None and not _COMMAND_ID.fullmatch(command_id):
        raise ValueError("command_id must be a short string")
    return AgentEvent(
        boot_id=str(params.get("boot_id")),
        seq=_number(params, "seq", least=1),
        operation=operation,
        decision=decision,
        rule=_text(params, "rule"),
        command_id=command_id,
        args=args,
        result=outcome,
        error=_text(params, "error"),
        duration_ms=_number(params, "duration_ms", least=0),
    )


def _check_flat(members: Message) -> None:
    """Raises: ValueError where they are more, larger or deeper than an agent's ever are."""
    if len(members) > _MOST_MEMBERS:
        raise ValueError("args and result must have few members")
    for text in (*members, *members.values()):
        too_long = isinstance(text, str) and len(text) > _LONGEST_TEXT
        if too_long or isinstance(text, dict | list):
            raise ValueError("members of args and result must be short")


def _text(params: Message, name: str) -> str | None:
    value = params.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _LONGEST_TEXT):
        raise ValueError(f"{name} must be a string of a reasonable length")
    return value


def _number(params: Message, name: str, least: int) -> int:
    value = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**53:
        raise ValueError(f"{name} must be an integer")
    return value
