"""One accepted connection of an agent: frames, pending requests, and the order of events."""

import asyncio
import logging
import time
from typing import Any, NamedTuple, Protocol

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.host.link.frames import EVENT, LARGE, bounds, parse_frame
from orchestrator.host.link.messages import AgentEvent, parse_event
from sandbox_agent.decide.frames import FrameDecoder, encode, notification, request
from sandbox_agent.decide.protocol import MOST_UNACKNOWLEDGED_EXECS, Message

log = logging.getLogger(__name__)

# The most that is buffered for an agent to which the control plane can't write.
_MOST_UNSENT_BYTES = 16 * 1024 * 1024
# Acknowledgements wait this long for other data to send, or until this many are due: sending each
# one separately would wake the agent for nothing else. A command that executes one program after
# another never waits for this time.
_ACK_SECONDS = 0.02
_MOST_UNACKNOWLEDGED = MOST_UNACKNOWLEDGED_EXECS // 2
# After either limit, other work of the event loop comes first.
_PORTION_FRAMES = 32
_PORTION_BYTES = 64 * 1024
_PORTION_SECONDS = 0.002
# Time of the ledger's thread per event, in addition to the time measured here.
_EVENT_SECONDS = 0.00025
# Requests that were abandoned by their callers but not answered by the agent yet.
_MOST_GIVEN_UP = 1024


class Link(Protocol):
    """The receiver of a connection's events."""

    def opened(self, connection: "Connection") -> None:
        """The connection was made."""

    def start_greeting(self, connection: "Connection", message: Message) -> None:
        """An agent said hello."""

    def start_recording(self, connection: "Connection", event: AgentEvent, size: int) -> None:
        """An agent reported an event of this size in bytes."""

    def stopping(self) -> None:
        """An agent stops something of its sandbox."""

    def spend(self, seconds: float) -> float:
        """Charges seconds of the event loop's time; returns how long the connection must pause."""

    def violated(self, connection: "Connection", reason: str) -> None:
        """An agent sent what our agent never sends; no more is read from it."""

    def failed(self, connection: "Connection") -> None:
        """An unexpected internal error occurred; no more is read from the agent."""

    def lost(self, connection: "Connection") -> None:
        """The connection has ended."""


class Asked(NamedTuple):
    """A request that was sent, and its answer once it arrives."""

    id: int
    answer: asyncio.Future[Message]


class Connection(asyncio.Protocol):
    """Exchanges frames with one agent. A malformed, unrequested or misplaced frame ends it.

    Received frames are handled in portions. While some wait, nothing is read.
    """

    def __init__(self, link: Link) -> None:
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
        # The methods of pending requests with large answers, whether or not a caller still waits.
        self._asked: dict[int, str] = {}
        self._given_up: set[int] = set()
        self._next_portion: asyncio.TimerHandle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """An agent has connected."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        self._link.opened(self)

    def pause(self) -> None:
        """Pauses handling."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resumes handling after a pause."""
        if self._paused:
            self._paused = False
            if self._next_portion is None:
                self._handle_portion()

    def data_received(self, data: bytes) -> None:
        """Handles the frames that `data` completes, or the first of them."""
        self._decoder.add(data)
        if self._next_portion is None and not self._paused:
            self._handle_portion()

    def _handle_portion(self) -> None:
        """Handles some frames. The rest waits, and so does an agent that used much time.

        The time used by earlier connections and by recording earlier events counts, too.
        """
        self._next_portion = None
        owed = self._link.spend(0.0)
        if owed and self._transport is not None and not self.closing:
            self._wait(owed)
            return
        # Of this thread, because the agent is not responsible for other processes' use of the CPU.
        began = time.thread_time()
        try:
            taken, events = self._take_up(began + _PORTION_SECONDS)
        except ValueError as error:
            self._link.violated(self, str(error))
            return
        except Exception:
            log.exception("a message of a sandbox agent was not handled")
            self._link.failed(self)
            return
        wait = self._link.spend(time.thread_time() - began + events * _EVENT_SECONDS)
        if self._transport is None or self.closing or self._paused:
            return
        if wait or taken:
            self._wait(wait)
        else:
            self._transport.resume_reading()

    def _wait(self, seconds: float) -> None:
        """Resumes after this many seconds, and reads nothing until then."""
        if self._transport is not None:
            self._transport.pause_reading()
        self._next_portion = asyncio.get_running_loop().call_later(seconds, self._handle_portion)

    def _take_up(self, until: float) -> tuple[bool, int]:
        """Returns whether more frames may follow, and how many of the handled ones were events.

        Raises: FrameError, ValueError for messages that an agent may not send.
        """
        events = size = 0
        for _ in range(_PORTION_FRAMES):
            allowed = bounds(self._accepted, self._asked.values())
            body = None if self.closing or self._paused else self._decoder.take(allowed.bytes)
            if body is None:
                return False, events
            message = parse_frame(body, allowed)
            self._receive(message, len(body))
            events += "method" in message
            size += len(body)
            if time.thread_time() >= until or size >= _PORTION_BYTES:
                break
        return True, events

    def connection_lost(self, _error: Exception | None) -> None:
        """Ends all pending requests without an answer."""
        self._transport = None
        for timer in (self._ack_timer, self._next_portion):
            if timer is not None:
                timer.cancel()
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
        """Accepts the agent: its events are counted from `committed` on."""
        self._accepted, self._boot_id, self._last_seq = True, boot_id, committed
        self._recorded = self._acknowledged = committed

    async def request(self, method: str, params: Message) -> Message:
        """Sends a request and waits for its answer. Raises: SandboxUnavailableError, FrameError."""
        asked = self.ask(method, params)
        try:
            return await asked.answer
        finally:
            self.forget(asked)

    def ask(self, method: str, params: Message) -> "Asked":
        """Sends a request; the caller must `forget` it. Raises: FrameError if it is too large."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        frame = encode(request(request_id, method, params))
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        if method in LARGE:
            self._asked[request_id] = method
        self._write(frame)
        return Asked(request_id, answer)

    def forget(self, asked: "Asked") -> None:
        """Ends the wait for an answer, which may still arrive once."""
        if asked.answer.done() and not asked.answer.cancelled():
            asked.answer.exception()  # retrieved: the caller may not have waited
        if self._waiting.pop(asked.id, None) is None:
            return
        self._given_up.add(asked.id)
        if len(self._given_up) > _MOST_GIVEN_UP:
            self.drop("the agent does not answer")

    def send(self, message: Message) -> None:
        """Sends one frame. Raises: FrameError if it is too large."""
        self._write(encode(message))

    def _write(self, frame: bytes) -> None:
        if self._transport is None or self.closing:
            return
        self._transport.write(self._due_acknowledgement() + frame)
        if self._transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self.drop("the agent does not read")

    def acknowledge(self, seq: int) -> None:
        """Tells the agent, soon, that its events up to and including `seq` are durable."""
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
        """Ends the connection. A living agent reconnects and repeats what was not acknowledged."""
        if self._transport is not None:
            log.debug("agent connection dropped: %s", reason)
            # From here on, requests wait for the next connection.
            self._link.lost(self)
            if flush:
                self._transport.close()
            else:
                self._transport.abort()

    def _receive(self, message: Message, size: int) -> None:
        if not self._accepted:
            if self._greeted or message.get("method") != "hello":
                raise ValueError("expected one hello first")
            self._greeted = True
            self._link.start_greeting(self, message)
        elif message.get("method") == "event":
            self._receive_event(message.get("params"), size)
        elif message.get("method") == "stopping":
            self._link.stopping()
        elif "method" in message:
            raise ValueError("an agent may only send hello, events and stopping")
        else:
            self._receive_answer(message)

    def _receive_answer(self, message: Message) -> None:
        request_id = message.get("id")
        if type(request_id) is int:
            self._asked.pop(request_id, None)
        # A bool would also be found as a number.
        if type(request_id) is int and request_id in self._waiting:
            waiting = self._waiting.pop(request_id)
            if not waiting.done():
                waiting.set_result(message)
        elif type(request_id) is int and request_id in self._given_up:
            self._given_up.remove(request_id)
        else:
            raise ValueError("an answer without a request")

    def _receive_event(self, params: Any, size: int) -> None:
        if size > EVENT.bytes:
            raise ValueError(f"an event of {size} bytes")
        event = parse_event(params)
        if event.boot_id != self._boot_id:
            raise ValueError("event of another boot id")
        # Uncommitted events are repeated on the next connection only.
        if event.seq != self._last_seq + 1:
            raise ValueError(f"event {event.seq} after event {self._last_seq}")
        self._last_seq = event.seq
        self._link.start_recording(self, event, size)
