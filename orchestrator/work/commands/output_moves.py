"""Moves stored long output to the sandbox that replaces an old one.

It passes through memory from agent to agent, because output may contain secrets and is on no disk.
The move has a short time limit: what the old agent has not sent in time is lost.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from orchestrator.ground.errors import NotFoundError, PaddockError
from orchestrator.ground.fair_share import Metered
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.link.messages import malformed
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from sandbox_agent.decide.protocol import CHUNK_BYTES, MOST_CHUNKS, Message

log = logging.getLogger(__name__)

# For one session, and for all concurrent moves: the most that this process holds.
MOST_BYTES = 64 * 1024 * 1024
_MOST_OF_ALL = 4 * MOST_BYTES
# For all of a session's output, from the old agent and to the new one.
SECONDS = 8.0
# For the old agent of a session whose level is lowered, because it may be the reason.
LOWERING_SECONDS = 4.0
# Charged for each piece in addition to its bytes.
_PIECE_COST = 256

_STREAMS = ("stdout", "stderr")

Piece = tuple[str, bytes]  # stream, data


@dataclass(slots=True)
class _Taken:
    """The beginning of a command's output, page by page."""

    command: Command
    pages: list[list[Piece]] = field(default_factory=list)


class _NoRoomError(Exception):
    """There is no room for more of the session's output."""


class Move:
    """One session's output on its way, held until the move ends."""

    def __init__(self, moves: "OutputMoves", most: int = MOST_BYTES) -> None:
        """`most` is the most bytes that it may hold, within the limit of all `moves`."""
        self._moves = moves
        self._most = most
        self._taken: list[_Taken] = []
        self.held = 0

    async def take(self, session: Session, link: AgentLink, seconds: float) -> None:
        """Takes the latest commands' output first; what does not arrive in time is left behind."""
        latest = [command for command in session.commands.values() if command.stored][::-1]
        try:
            async with asyncio.timeout(seconds):
                # The agent may be hostile, so its sandbox is charged for what it makes us read.
                await Metered(self._take_all(link, latest), link.spend)
        except _NoRoomError:
            log.info("output of session %s was left behind: there is no room for it", session.id)
        except (PaddockError, TimeoutError) as error:
            log.info("output of session %s was left behind: %s", session.id, error or "too slow")

    async def give(self, session: Session, link: AgentLink) -> None:
        """Gives it to the new agent, and updates how much of each output is stored."""
        stored: dict[str, int] = {}
        try:
            async with asyncio.timeout(SECONDS):
                for taken in self._taken:
                    await _give(link, taken, stored)
        except (PaddockError, TimeoutError) as error:
            log.info("output of session %s is lost: %s", session.id, error or "too slow")
        for command in session.commands.values():
            if command.result is not None and command.stored:
                command.result.stored_bytes = stored.get(command.id, 0)

    async def _take_all(self, link: AgentLink, latest: list[Command]) -> None:
        for command in latest:
            try:
                await self._take(link, command)
            except NotFoundError:
                log.info("output of command %s was left behind: its agent has none", command.id)

    async def _take(self, link: AgentLink, command: Command) -> None:
        taken, after = _Taken(command), 0
        self._taken.append(taken)
        while (left := command.stored_bytes - after) > 0:
            limit = min(left, CHUNK_BYTES)
            params: Message = {"command_id": command.id, "after": after, "limit": limit}
            params |= {"wait_ms": 0, "looks": True, "whole": True}
            page = _pieces(await link.request("output", params), after)
            size = sum(len(data) for _, data in page)
            if not page or size > limit:
                return
            self._hold(size + _PIECE_COST * len(page))
            taken.pages.append(page)
            after += size

    def _hold(self, size: int) -> None:
        if self.held + size > self._most or not self._moves.hold(size):
            raise _NoRoomError
        self.held += size


class OutputMoves:
    """The running moves, which together hold a limited number of bytes."""

    def __init__(self, most: int = _MOST_OF_ALL) -> None:
        self._left = most

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[Move]:
        """A move; its bytes are released at the end."""
        move = Move(self)
        try:
            yield move
        finally:
            self._left += move.held

    def hold(self, size: int) -> bool:
        """Whether a move may hold this many more bytes."""
        if size > self._left:
            return False
        self._left -= size
        return True


async def _give(link: AgentLink, taken: _Taken, stored: dict[str, int]) -> None:
    sent = 0
    for page in taken.pages:
        answer = await link.request(
            "output.restore",
            {
                "command_id": taken.command.id,
                "total": taken.command.output_bytes,
                "chunks": [[name, base64.b64encode(data).decode()] for name, data in page],
            },
        )
        count = answer.get("stored")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise malformed()
        stored[taken.command.id] = min(count, taken.command.stored_bytes)
        sent += sum(len(data) for _, data in page)
        if count < sent:
            return  # there is no room for the rest


def _pieces(answer: Message, after: int) -> list[Piece]:
    """A page of output that continues where the last one ended, without a gap."""
    pieces: list[Piece] = []
    try:
        if len(answer["chunks"]) > MOST_CHUNKS:
            raise ValueError
        for stream, offset, encoded in answer["chunks"]:
            data = base64.b64decode(encoded, validate=True)
            if stream not in _STREAMS or offset != after or not data:
                return []
            pieces.append((stream, data))
            after += len(data)
    except (KeyError, TypeError, ValueError):
        raise malformed() from None
    return pieces
