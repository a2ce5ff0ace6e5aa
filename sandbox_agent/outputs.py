"""What the commands of one sandbox print: read while they run, and for a while after."""

import base64
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sandbox_agent import params as given
from sandbox_agent.errors import AgentError
from sandbox_agent.loop import Loop, Timer
from sandbox_agent.output import Chunk, Output
from sandbox_agent.protocol import CHUNK_BYTES, MOST_TOLD_BYTES, MOST_TOLD_CHUNKS, Message
from sandbox_agent.stored_output import Room, StoredOutput

Reply = Callable[[Message | AgentError], None]

# The output of ended commands that stays readable, for clients that lost their connection.
_KEPT_COMMANDS = 8
_KEPT_BYTES = 8 * 1024 * 1024
# A foreground command's output stays, whatever else ends, until its caller has read it;
# of callers that never do, only so many are waited for.
_UNREAD_SECONDS = 30.0
_UNREAD_COMMANDS = 256
# So many callers wait at once, of all commands; one that has gone away waits on for its time.
_MOST_WAITING = 1024


def encoded(chunks: Iterable[Chunk]) -> list[list[str | int]]:
    """As output travels."""
    return [[stream, offset, base64.b64encode(data).decode()] for stream, offset, data in chunks]


def told(output: Output) -> list[list[str | int]] | None:
    """All that is kept of it; None where that is too much for an event."""
    if output.kept > MOST_TOLD_BYTES:
        return None
    chunks, _ = output.read(0, MOST_TOLD_BYTES)
    return encoded(chunks) if len(chunks) <= MOST_TOLD_CHUNKS else None


class _Waiting(NamedTuple):
    """A caller who waits for output beyond `after`."""

    after: int
    limit: int
    # It is not whom the output is kept for.
    looks: bool
    whole: bool
    reply: Reply
    timer: Timer


class Outputs:
    """Outputs by command id; `unread_bytes` bounds what is kept for callers to come."""

    def __init__(self, loop: Loop, unread_bytes: int) -> None:
        self._loop = loop
        self._unread_bytes = unread_bytes
        self._running: dict[str, Output] = {}
        self._ended: OrderedDict[str, Output] = OrderedDict()
        # Ended commands of which only what is stored is left.
        self._stored: dict[str, Output] = {}
        # Until when those wait for their caller.
        self._unread: dict[str, Timer] = {}
        self._waiting: dict[str, list[_Waiting]] = {}

    @property
    def ended(self) -> list[str]:
        """Ids of ended commands whose output, or its beginning, is still here."""
        return [*self._stored, *self._ended]

    def add(self, command_id: str, output: Output) -> None:
        """A command that runs from now on."""
        self._running[command_id] = output

    def restore(self, command_id: str, chunks: list[Chunk], total: int, room: Room) -> int:
        """More of what an ended command printed in an earlier sandbox, of `total` bytes.

        Returns how many bytes are stored of it. Raises: AgentError for a command of this one.
        """
        if command_id in self._running or command_id in self._ended:
            raise AgentError("conflict", f"command {command_id} is of this sandbox")
        output = self._stored.get(command_id)
        if output is None:
            output = self._stored[command_id] = Output.restored(StoredOutput(room), total)
        return output.restore(chunks)

    def progress(self, command_id: str) -> None:
        """It has printed something: whoever waits gets it."""
        if command_id in self._waiting:
            self._answer(command_id)

    def end(self, command_id: str, unread: bool) -> None:
        """It has ended; `unread` when somebody will come for what it printed."""
        output = self._ended[command_id] = self._running.pop(command_id)
        if unread and output.kept:
            expire = functools.partial(self._on_read, command_id)
            self._unread[command_id] = self._loop.after(_UNREAD_SECONDS, expire)
        self._evict()
        self.progress(command_id)

    def read(self, params: Message, reply: Reply) -> None:
        """Answers with what was printed from `after` on; waits for some when there is none yet.

        Raises: AgentError not_found when it is no longer kept, busy when too many wait.
        """
        command_id, after = given.text(params, "command_id"), given.number(params, "after")
        limit, looks = min(given.number(params, "limit", 1), CHUNK_BYTES), bool(params.get("looks"))
        whole = params.get("whole") is True
        wait_ms = given.number(params, "wait_ms", 0, given.MOST_MS)
        running = self._running.get(command_id)
        if running is None or running.total > after or not wait_ms:
            reply(self._page(command_id, after, limit, looks, whole))
            return
        if sum(map(len, self._waiting.values())) >= _MOST_WAITING:
            raise AgentError("busy", "too many wait for output already: try again")
        expire = functools.partial(self._answer, command_id)
        timer = self._loop.after(wait_ms / 1000, expire)
        waiting = _Waiting(after, limit, looks, whole, reply, timer)
        self._waiting.setdefault(command_id, []).append(waiting)

    def _page(self, command_id: str, after: int, limit: int, looks: bool, whole: bool) -> Message:
        output = self._running.get(command_id) or self._ended.get(command_id)
        if output is None and whole:
            output = self._stored.get(command_id)
        if output is None:
            raise AgentError("not_found", f"the output of command {command_id} is no longer kept")
        chunks, position = output.read(after, limit, whole)
        ended = command_id not in self._running
        if ended and position >= output.total and not looks:
            self._on_read(command_id)
        return {"chunks": encoded(chunks), "next": position, "ended": ended}

    def _answer(self, command_id: str) -> None:
        for waiting in self._waiting.pop(command_id, []):
            waiting.timer.cancel()
            try:
                after, limit, looks, whole, *_ = waiting
                waiting.reply(self._page(command_id, after, limit, looks, whole))
            except AgentError as error:
                waiting.reply(error)

    def forget_callers(self) -> None:
        """The connection was lost: nobody waits, or comes, for output any more."""
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
        """Drops the oldest outputs; those that a caller still has to read are counted apart."""
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
