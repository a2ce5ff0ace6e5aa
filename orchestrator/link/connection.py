"""One accepted connection of an agent: frames, requests under way, and the order of events."""

import asyncio
import logging
import time
from typing import Any, Protocol

from orchestrator.errors import SandboxUnavailableError
from orchestrator.link.frames import EVENT, LARGE, bounds, parse_frame
from orchestrator.link.messages import AgentEvent, parse_event
from sandbox_agent.protocol import (
    MOST_UNACKNOWLEDGED_EXECS,
    FrameDecoder,
    Message,
    encode,
    notification,
    request,
)

log = logging.getLogger(__name__)

# A control plane that can't write to its agent holds at most this much for it.
_MOST_UNSENT_BYTES = 16 * 1024 * 1024
# Acknowledgements wait this long for something to travel with, or until so many are due:
# each one on its own would wake the agent for nothing else. A command that executes one program
# after another never waits for the time to pass.
_ACK_SECONDS = 0.02
_MOST_UNACKNOWLEDGED = MOST_UNACKNOWLEDGED_EXECS // 2
# Beyond either, whatever else the loop has to do comes first.
_FRAMES_A_TURN = 32
_BYTES_A_TURN = 64 * 1024
_TURN_SECONDS = 0.002
# What the ledger's thread does for an event, beside what is measured of this one.
_EVENT_SECONDS = 0.00025
# Requests that nobody waits for any more, and that the agent has not answered yet.
_MOST_GIVEN_UP = 1024


class Link(Protocol):
    """Whom a connection tells what happens on it."""

    def opened(self, connection: "Connection") -> None:
        """It was made."""

    def start_greeting(self, connection: "Connection", message: Message) -> None:
        """An agent said hello."""

    def start_recording(self, connection: "Connection", event: AgentEvent, size: int) -> None:
        """An agent reported an event, in so many bytes."""

    def spend(self, seconds: float) -> float:
        """So much of the loop's time was used; returns how long nothing more may be."""

    def violated(self, connection: "Connection", reason: str) -> None:
        """An agent said what no agent of ours says; it is not heard any more."""

    def failed(self, connection: "Connection") -> None:
        """Something went wrong here that nobody has thought of; the agent is not heard any more."""

    def lost(self, connection: "Connection") -> None:
        """It has ended."""


class Connection(asyncio.Protocol):
    """Speaks frames with one agent; what is not a frame, not asked for, or out of order, ends it.

    What arrives is taken up in turns, and nothing is read while some of it waits for one.
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
        # The methods of what has a large answer that is not there yet, whoever waits for it.
        self._asked: dict[int, str] = {}
        self._given_up: set[int] = set()
        self._turn: asyncio.TimerHandle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """An agent has dialled."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        self._link.opened(self)

    def pause(self) -> None:
        """Takes up nothing for now."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Goes on, where it was paused."""
        if self._paused:
            self._paused = False
            if self._turn is None:
                self._take_turn()

    def data_received(self, data: bytes) -> None:
        """Takes up the frames that `data` completes, all or the first of them."""
        self._decoder.add(data)
        if self._turn is None and not self._paused:
            self._take_turn()

    def _take_turn(self) -> None:
        """Takes up some frames; those that are left, and whoever used much time, wait.

        Also what earlier connections, and the recording of earlier events, have used counts.
        """
        self._turn = None
        owed = self._link.spend(0.0)
        if owed and self._transport is not None and not self.closing:
            self._wait(owed)
            return
        # Of this thread: what others take of the processor is not the agent's doing.
        began = time.thread_time()
        try:
            taken, events = self._take_up(began + _TURN_SECONDS)
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
        """Goes on so much later, and reads nothing until then."""
        if self._transport is not None:
            self._transport.pause_reading()
        self._turn = asyncio.get_running_loop().call_later(seconds, self._take_turn)

    def _take_up(self, until: float) -> tuple[bool, int]:
        """Whether more frames may be there, and how many of those taken up were events.

        Raises: FrameError, ValueError for what an agent may not say.
        """
        events = size = 0
        for _ in range(_FRAMES_A_TURN):
            allowed = bounds(self._accepted, self._asked.values())
            body = None if self.closing or self._paused else self._decoder.take(allowed.bytes)
            if body is None:
                return False, events
            message = parse_frame(body, allowed)
            self._receive(message, len(body))
            events += "method" in message
            size += len(body)
            if time.thread_time() >= until or size >= _BYTES_A_TURN:
                break
        return True, events

    def connection_lost(self, _error: Exception | None) -> None:
        """Whoever waits for an answer gets none."""
        self._transport = None
        for timer in (self._ack_timer, self._turn):
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
        """From here on events count from `committed`."""
        self._accepted, self._boot_id, self._last_seq = True, boot_id, committed
        self._recorded = self._acknowledged = committed

    async def request(self, method: str, params: Message) -> Message:
        """Sends a request and waits for its answer. Raises: SandboxUnavailableError, FrameError."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        frame = encode(request(request_id, method, params))
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        if method in LARGE:
            self._asked[request_id] = method
        try:
            self._write(frame)
            return await waiting
        finally:
            if self._waiting.pop(request_id, None) is not None:
                self._give_up(request_id)

    def _give_up(self, request_id: int) -> None:
        """Its answer may still come, once."""
        self._given_up.add(request_id)
        if len(self._given_up) > _MOST_GIVEN_UP:
            self.drop("the agent does not answer")

    def send(self, message: Message) -> None:
        """Sends one frame. Raises: FrameError when it is too large."""
        self._write(encode(message))

    def _write(self, frame: bytes) -> None:
        if self._transport is None or self.closing:
            return
        self._transport.write(self._due_acknowledgement() + frame)
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

    def _receive(self, message: Message, size: int) -> None:
        if not self._accepted:
            if self._greeted or message.get("method") != "hello":
                raise ValueError("expected one hello first")
            self._greeted = True
            self._link.start_greeting(self, message)
        elif message.get("method") == "event":
            self._receive_event(message.get("params"), size)
        elif "method" in message:
            raise ValueError("an agent may only send hello and events")
        else:
            self._receive_answer(message)

    def _receive_answer(self, message: Message) -> None:
        request_id = message.get("id")
        if type(request_id) is int:
            self._asked.pop(request_id, None)
        # A bool would be found as a number, too.
        if type(request_id) is int and request_id in self._waiting:
            waiting = self._waiting.pop(request_id)
            if not waiting.done():
                waiting.set_result(message)
        elif type(request_id) is int and request_id in self._given_up:
            self._given_up.remove(request_id)
        else:
            raise ValueError("an answer that nobody has asked for")

    def _receive_event(self, params: Any, size: int) -> None:
        if size > EVENT.bytes:
            raise ValueError(f"an event of {size} bytes")
        event = parse_event(params)
        if event.boot_id != self._boot_id:
            raise ValueError("event of another boot id")
        # What was not committed is repeated on the next connection only.
        if event.seq != self._last_seq + 1:
            raise ValueError(f"event {event.seq} after event {self._last_seq}")
        self._last_seq = event.seq
        self._link.start_recording(self, event, size)
