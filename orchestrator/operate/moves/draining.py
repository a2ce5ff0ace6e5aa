"""Empties this node: idle sessions move to others, busy ones are waited for until a deadline."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from orchestrator.cluster.targets import best_target
from orchestrator.ground.errors import PaddockError
from orchestrator.operate.moves.mover import Mover
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.sessions.in_cluster.departures import unmovable
from orchestrator.sessions.session_ends import SYSTEM
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.session import Session
from paddock.contract.words import Rationale, Status

log = logging.getLogger(__name__)

# What may have kept a session where it is has ended.
_ENDS = frozenset(
    {
        "command.exit",
        "code.exit",
        "pty.exit",
        "pty.close",
        "port.close",
        "turn.end",
        "session.resume",
        "session.unfenced",
        "session.terminated",
    }
)
# Streams of files, requests, and other nodes that have room tell nobody.
_AGAIN_SECONDS = 2.0
_NOWHERE = "no other node takes it: none is ready with its level, its image and room"


@dataclass(slots=True)
class Drained:
    """How many sessions have moved and ended, and why the others stay, by id."""

    moved: int = 0
    ended: int = 0
    stayed: dict[str, str] = field(default_factory=dict)


class Draining:
    """Of this node's sessions, one after the other, so that loads are known."""

    def __init__(self, node: str | None, sessions: Sessions, mover: Mover, ledger: Ledger) -> None:
        """`node` is its name; None: it is in no cluster."""
        self.node = node
        self._sessions = sessions
        self._mover = mover
        self._one = asyncio.Lock()
        # The keys of the sessions that are waited for, and whether something of theirs has ended.
        self._waiting: set[str] = set()
        self._ended = asyncio.Event()
        self._ledger = ledger

    async def run(self, seconds: float, *, ends: bool) -> Drained:
        """Moves what can be moved; waits for busy sessions at most so long.

        `ends`: what is left then ends; otherwise it stays. Raises: ConflictError without a cluster,
        ClusterUnavailableError.
        """
        async with self._one:
            drained = Drained()
            ignore = self._ledger.on_commit(self._look)
            try:
                await self._move_all(drained, asyncio.get_running_loop().time() + seconds)
            finally:
                ignore()
            for session in self._left() if ends else ():
                await self._end(session, drained)
            return drained

    async def _move_all(self, drained: Drained, until: float) -> None:
        """Again and again, until nothing is worth waiting for, or the time is over."""
        while True:
            drained.stayed.clear()
            self._ended.clear()
            sessions = self._left()
            self._waiting = {each.key for each in sessions}
            waits = [await self._moved(each, drained) for each in sessions]
            left = until - asyncio.get_running_loop().time()
            if not any(waits) or left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _AGAIN_SECONDS)):
                    await self._ended.wait()

    def _look(self, committed: Sequence[Recorded] | None) -> None:
        """Asks again at once if something has ended, or if it is unknown what was committed."""
        if committed is None or any(
            each.session_key in self._waiting and each.operation in _ENDS for each in committed
        ):
            self._ended.set()

    def _left(self) -> list[Session]:
        """Parents first, because their children end with them."""
        live = self._sessions.registry.live
        return [each for each in live if each.live and each.family.parent is None]

    async def _moved(self, session: Session, drained: Drained) -> bool:
        """Whether it is worth waiting for: it has not moved, and may be able to later."""
        if not session.live:
            return False
        fixed = unmovable(session)
        if fixed is not None:
            drained.stayed[session.id] = fixed
            return False
        nodes = await self._mover.nodes()
        target = best_target(
            nodes, self.node or "", session.level.name, session.terms.image or None
        )
        if target is None:
            drained.stayed[session.id] = _NOWHERE
            return True
        try:
            await self._mover.move(session, target.name)
        except PaddockError as error:
            log.info("session %s stays for now: %s", session.id, error.detail)
            drained.stayed[session.id] = error.detail
            return session.live
        drained.moved += 1
        return False

    async def _end(self, session: Session, drained: Drained) -> None:
        try:
            session.check_settled()
            await self._sessions.ends.run(
                session,
                SYSTEM,
                Status.ABORTED,
                Rationale.NORMAL,
                error="its node was drained, and it could not be moved",
            )
        except PaddockError as error:
            drained.stayed[session.id] = error.detail
            return
        drained.ended += 1
        drained.stayed.pop(session.id, None)
