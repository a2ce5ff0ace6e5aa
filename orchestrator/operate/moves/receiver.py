"""Receives sessions that other nodes move here, and offers to take them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from orchestrator.cluster.moves import Moves, Offer
from orchestrator.ground.errors import PaddockError, PermissionDeniedError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.task_scope import TaskScope
from orchestrator.operate.moves.envelope import Envelope, opened
from orchestrator.operate.snapshots.snapshot import ReceivedSnapshot
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.programs.turns.turn import TurnRecord
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sessions.in_cluster.departures import pauses
from orchestrator.sessions.in_cluster.session_moves import SessionMoves
from orchestrator.state.requests import NewSession

log = logging.getLogger(__name__)

# How long a source may take from the offer to its word; then this node asks the cluster by itself.
_PATIENCE_SECONDS = 15.0


class Receiver:
    """This node as the target of moves."""

    def __init__(
        self,
        snapshots: Snapshots,
        sessions: SessionMoves,
        moves: Moves,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._snapshots = snapshots
        self._arrivals = sessions.arrivals
        self._moves = moves
        self._patience = patience
        self._tasks = TaskScope("a session that arrives")

    async def receive(
        self,
        source: Callable[[str], bool],
        upload: AsyncIterator[bytes],
        check: Callable[[TurnRecord], object],
        request_in: Callable[[ReceivedSnapshot], Awaitable[NewSession]],
    ) -> str:
        """Receives a session and offers to take it; returns its key here. It is not active.

        `source` says whether the caller is the node of that name; `check` and `request_in` read
        turns and the session of the snapshot. Nothing is left if it fails. Raises:
        PermissionDeniedError for another node's session; the errors of `Snapshots.receive`, of
        `Arrivals.arrive` and `Moves.offer`.
        """
        envelope, archive = await opened(upload)
        name = envelope.continued.earlier.node
        if not source(name):
            raise PermissionDeniedError(f"only the node {name[:64]} may move its own sessions")
        received = await self._snapshots.receive(Principal(name, Role.ADMIN), archive, check)
        try:
            request = await request_in(received)
        except BaseException:
            received.close()
            raise
        # From here on it is complete, or nothing of it is left, whatever becomes of the source.
        return await self._tasks.shield(self._arrive(envelope, received, request))

    async def _arrive(
        self, envelope: Envelope, received: ReceivedSnapshot, request: NewSession
    ) -> str:
        with received:
            wanted = self._snapshots.wanted(received, request)
            session = await self._arrivals.arrive(wanted, envelope.continued)
        self._tasks.spawn(self._settle_later(session.key))
        earlier = envelope.continued.earlier
        offer = Offer(session.key, earlier.session_key, earlier.node, envelope.place)
        try:
            await self._moves.offer(offer)
        except PaddockError:
            with suppress(PaddockError):
                await self._arrivals.settle(session.key)
            raise
        FaultPoint.ARRIVE_OFFERED.reached()
        return session.key

    async def settle(self, session_key: str) -> bool:
        """Whether the session is active here now, by the cluster's word.

        Raises: ClusterUnavailableError, AuditUnavailableError; then it is asked again later.
        """
        return await self._tasks.shield(self._arrivals.settle(session_key))

    async def _settle_later(self, session_key: str) -> None:
        """Asks by itself, if the source has not had it asked before."""
        await asyncio.sleep(self._patience)
        for pause in pauses():
            with suppress(PaddockError):
                await self._arrivals.settle(session_key)
                return
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Ends what waits; the next start settles it."""
        await self._tasks.close()
