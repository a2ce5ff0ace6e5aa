"""The output of one sandbox's commands, readable while they run and for a while after."""

import base64
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sandbox_agent.core import params as given
from sandbox_agent.core.loop import Loop, Timer
from sandbox_agent.core.output import Chunk, Output, Room, StoredOutput
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import (
    CHUNK_BYTES,
    MOST_EVENT_OUTPUT_BYTES,
    MOST_EVENT_OUTPUT_CHUNKS,
    Message,
)

Reply = Callable[[Message | AgentError], None]

# Limits of the output that stays readable after a command ended, for clients that lost their
# connection.
_KEPT_COMMANDS = 8
_KEPT_BYTES = 8 * 1024 * 1024
# A foreground command's output stays until its caller has read it, even if many other commands end.
# These limits are for callers that never read it.
_UNREAD_SECONDS = 30.0
_UNREAD_COMMANDS = 256
# The most callers that may wait at once, over all commands. A caller that has gone away still
# counts until its time is up.
_MOST_WAITING = 1024


def encoded(chunks: Iterable[Chunk]) -> list[list[str | int]]:
    """The chunks in their form on the wire."""
    return [[stream, offset, base64.b64encode(data).decode()] for stream, offset, data in chunks]


def timed(output: Output, chunks: Iterable[Chunk]) -> list[list[str | int | float | None]]:
    """The chunks on the wire, each with its time."""
    return [
        [stream, offset, base64.b64encode(data).decode(), when]
        for (stream, offset, data), when in output.timed(chunks)
    ]


def event_output(output: Output) -> list[list[str | int]] | None:
    """All kept output, as an exit event has it; None if it is too large for an event."""
    if output.kept > MOST_EVENT_OUTPUT_BYTES:
        return None
    chunks, _ = output.read(0, MOST_EVENT_OUTPUT_BYTES)
    return encoded(chunks) if len(chunks) <= MOST_EVENT_OUTPUT_CHUNKS else None


class _Reading(NamedTuple):
    """What a caller wants to read: output from `after` on."""

    after: int
    limit: int
    # Whether this is another caller than the one that the output is kept for.
    looks: bool
    whole: bool
    # Whether each chunk comes with its time.
    times: bool


class _Waiting(NamedTuple):
    """A caller that waits for output."""

    reading: _Reading
    reply: Reply
    timer: Timer


class Outputs:
    """Outputs by command id; `unread_bytes` limits what is kept for callers still to come."""

    def __init__(self, loop: Loop, unread_bytes: int) -> None:
        self._loop = loop
        self._unread_bytes = unread_bytes
        self._running: dict[str, Output] = {}
        self._ended: OrderedDict[str, Output] = OrderedDict()
        # Ended commands whose stored output is all that is left.
        self._stored: dict[str, Output] = {}
        # Timers of the outputs that wait for their caller.
        self._unread: dict[str, Timer] = {}
        self._waiting: dict[str, list[_Waiting]] = {}

    @property
    def ended(self) -> list[str]:
        """Ids of ended commands whose output, or the beginning of it, is still here."""
        return [*self._stored, *self._ended]

    def add(self, command_id: str, output: Output) -> None:
        """Adds a running command."""
        self._running[command_id] = output

    def restore(self, command_id: str, chunks: list[Chunk], total: int, room: Room) -> int:
        """Stores more output of a command that ended in an earlier sandbox, `total` bytes in all.

        Returns the number of stored bytes. Raises: AgentError if the command belongs to this
        sandbox.
        """
        if command_id in self._running or command_id in self._ended:
            raise AgentError("conflict", f"command {command_id} belongs to this sandbox")
        output = self._stored.get(command_id)
        if output is None:
            output = self._stored[command_id] = Output.restored(StoredOutput(room), total)
        return output.restore(chunks)

    def progress(self, command_id: str) -> None:
        """Answers the waiting callers, because the command has printed something."""
        if command_id in self._waiting:
            self._answer(command_id)

    def end(self, command_id: str, unread: bool) -> None:
        """Marks the command as ended; `unread` if a caller will come for its output."""
        output = self._ended[command_id] = self._running.pop(command_id)
        if unread and output.kept:
            expire = functools.partial(self._on_read, command_id)
            self._unread[command_id] = self._loop.after(_UNREAD_SECONDS, expire)
        self._evict()
        self.progress(command_id)

    def read(self, params: Message, reply: Reply) -> None:
        """Answers with the output from `after` on; waits at most `wait_ms` until there is some.

        Raises: AgentError not_found if the output is no longer kept, busy if too many callers wait.
        """
        command_id = given.text(params, "command_id")
        reading = _Reading(
            after=given.number(params, "after"),
            limit=min(given.number(params, "limit", 1), CHUNK_BYTES),
            looks=bool(params.get("looks")),
            whole=params.get("whole") is True,
            times=params.get("times") is True,
        )
        wait_ms = given.number(params, "wait_ms", 0, given.MOST_MS)
        running = self._running.get(command_id)
        if running is None or running.total > reading.after or not wait_ms:
            reply(self._page(command_id, reading))
            return
        if sum(map(len, self._waiting.values())) >= _MOST_WAITING:
            raise AgentError("busy", "too many callers wait for output: try again")
        expire = functools.partial(self._answer, command_id)
        timer = self._loop.after(wait_ms / 1000, expire)
        self._waiting.setdefault(command_id, []).append(_Waiting(reading, reply, timer))

    def _page(self, command_id: str, reading: _Reading) -> Message:
        output = self._running.get(command_id) or self._ended.get(command_id)
        if output is None and reading.whole:
            output = self._stored.get(command_id)
        if output is None:
            raise AgentError("not_found", f"the output of command {command_id} is no longer kept")
        chunks, position = output.read(reading.after, reading.limit, reading.whole)
        ended = command_id not in self._running
        if ended and position >= output.total and not reading.looks:
            self._on_read(command_id)
        sent = timed(output, chunks) if reading.times else encoded(chunks)
        return {"chunks": sent, "next": position, "ended": ended}

    def _answer(self, command_id: str) -> None:
        for waiting in self._waiting.pop(command_id, []):
            waiting.timer.cancel()
            try:
                waiting.reply(self._page(command_id, waiting.reading))
            except AgentError as error:
                waiting.reply(error)

    def forget_callers(self) -> None:
        """Drops all waiting and expected callers after the connection was lost."""
        for waiting in self._waiting.values():
            for caller in waiting:
                caller.timer.cancel()
        self._waiting.clear()
        for timer in self._unread.values():
            timer.cancel()
        self._unread.clear()
        self._evict()

    def _on_read(self, command_id: str) -> None:
        if command_id in self._unread:
            self._unread.pop(command_id).cancel()
            self._evict()

    def _evict(self) -> None:
        """Drops the oldest outputs; those with a caller still to come have limits of their own."""
        read = [command_id for command_id in self._ended if command_id not in self._unread]
        self._drop(read, _KEPT_COMMANDS, _KEPT_BYTES)
        unread = [command_id for command_id in self._ended if command_id in self._unread]
        self._drop(unread, _UNREAD_COMMANDS, self._unread_bytes)

    def _drop(self, oldest_first: list[str], most: int, most_bytes: int) -> None:
        kept = sum(self._ended[command_id].kept for command_id in oldest_first)
        while len(oldest_first) > most or kept > most_bytes:
            command_id = oldest_first.pop(0)
            output = self._ended.pop(command_id)
            kept -= output.kept
            if command_id in self._unread:
                self._unread.pop(command_id).cancel()
            if output.stored:
                output.forget()
                self._stored[command_id] = output
