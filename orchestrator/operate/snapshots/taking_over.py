"""Takes over sessions of nodes that are lost, from the last copies that the cluster has of them.

One after the other, so that a lost machine causes no storm on the others; each is reserved for one
node. The session is complete here before its place is taken by one row.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from orchestrator.cluster.base import Membership
from orchestrator.cluster.copies import LostSession, LostSessions
from orchestrator.cluster.moves import Moves, Offer
from orchestrator.ground.errors import ClusterUnavailableError, PaddockError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.operate.snapshots.copied_session import continued_of, request_of
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.programs.turns.turn import TurnRecord
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sessions.in_cluster.arrivals import Arrivals

log = logging.getLogger(__name__)

# Nobody tells of a lease that ends.
_LOOK_SECONDS = 5.0
_ROUND_SECONDS = 3600.0
_ACTOR = Principal("takeover", Role.ADMIN)


class TakingOver:
    """By this node, as long as it takes sessions and has room for them."""

    def __init__(
        self,
        snapshots: Snapshots,
        arrivals: Arrivals,
        moves: Moves,
        lost: LostSessions,
        membership: Membership,
        has_room: Callable[[], bool],
    ) -> None:
        self._snapshots = snapshots
        self._arrivals = arrivals
        self._moves = moves
        self._lost = lost
        self._membership = membership
        self._has_room = has_room
        # Keys of sessions here of which the cluster has not said yet whose they are.
        self._unsettled: set[str] = set()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins."""
        self._task = tasks.start(TaskName.TAKEOVER, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Stops; what is not complete is settled at the next start."""
        if self._task is not None:
            await self._task.close()

    async def _run(self) -> None:
        while True:
            with self._rounds.round(), suppress(ClusterUnavailableError):
                await self.take_all()
            await asyncio.sleep(_LOOK_SECONDS)

    async def take_all(self) -> None:
        """Takes over what there is room for. Raises: ClusterUnavailableError."""
        for key in [*self._unsettled]:
            await self._settle(key)
        while self._membership.state == "ready" and self._has_room():
            lost = await self._lost.reserve()
            if lost is None:
                return
            try:
                await self._take(lost)
            except ClusterUnavailableError:
                raise
            except (PaddockError, OSError, TimeoutError) as error:
                detail = error.detail if isinstance(error, PaddockError) else str(error)
                where = f"session {lost.copy.session_id} of the lost node {lost.node}"
                log.warning("%s is not taken over here: %s", where, detail)

    async def _take(self, lost: LostSession) -> None:
        """Raises: PaddockError, and nothing is left of it here, now or when it is settled."""
        continued = continued_of(lost)
        received = await self._snapshots.receive(_ACTOR, self._lost.pieces(lost), _shown)
        with received:
            request = request_of(received.manifest.session)
            wanted = self._snapshots.wanted(received, request)
            session = await self._arrivals.arrive(wanted, continued)
        self._unsettled.add(session.key)
        try:
            source = lost.copy.session_key
            await self._moves.offer(Offer(session.key, source, lost.node, lost.place))
            await self._lost.take(lost, session.key)
        finally:
            # By the cluster's word, whatever was answered.
            await self._settle(session.key)

    async def _settle(self, key: str) -> None:
        """Raises: ClusterUnavailableError, AuditUnavailableError; then it is tried again."""
        if await self._arrivals.settle(key):
            log.warning("the session with the key %s goes on here: its node is lost", key)
        self._unsettled.discard(key)


def _shown(turn: TurnRecord) -> None:
    """Turns of copies were checked by the node that has them."""
