"""One accepted connection of an agent: frames, requests under way, and the order of events."""

import asyncio
import logging
from typing import Any, Protocol

from orchestrator.agent_messages import AgentEvent, parse_event
from orchestrator.errors import SandboxUnavailableError
from sandbox_agent.protocol import (
    FrameDecoder,
    FrameError,
    Message,
    encode,
    notification,
    request,
)

log = logging.getLogger(__name__)

# A control plane that can't write to its agent holds at most this much for it.
_MOST_UNSENT_BYTES = 16 * 1024 * 1024
# Acknowledgements wait this long for something to travel with, or until so many are due:
# each one on its own would wake the agent for nothing else.
_ACK_SECONDS = 0.02
_MOST_UNACKNOWLEDGED = 64


class Link(Protocol):
    """Whom a connection tells what happens on it."""

    def opened(self, connection: "Connection") -> None:
        """It was made."""

    def start_greeting(self, connection: "Connection", message: Message) -> None:
        """An agent said hello."""

    def start_recording(self, connection: "Connection", event: AgentEvent) -> None:
        """An agent reported an event."""

    def lost(self, connection: "Connection") -> None:
        """It has ended."""


class Connection(asyncio.Protocol):
    """Speaks frames with one agent; what is not a frame, or out of order, ends it."""

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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """An agent has dialled."""
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
        """Takes up every frame that `data` completes."""
        try:
            for message in self._decoder.feed(data):
                self._receive(message)
        except (FrameError, ValueError) as error:
            self.drop(str(error))

    def connection_lost(self, _error: Exception | None) -> None:
        """Whoever waits for an answer gets none."""
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
        event = parse_event(params)
        if event.boot_id != self._boot_id:
            raise ValueError("event of another boot id")
        if event.seq <= self._last_seq:
            return  # a repetition of what is on its way to the ledger already
        if event.seq != self._last_seq + 1:
            raise ValueError(f"event {event.seq} after event {self._last_seq}")
        self._last_seq = event.seq
        self._link.start_recording(self, event)
