"""Compares this node's sessions with what its cluster has on it, when it becomes a part of it.

What a kill has left is mended in both directions: the cluster forgets what this node does not have,
and a session that this node has no longer by right ends here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice

from orchestrator.cluster.base import Holding, Mine, Places
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, together
from orchestrator.sessions.in_cluster.name_comparison import NameComparison
from orchestrator.sessions.in_cluster.session_growth import SessionGrowth
from orchestrator.sessions.in_cluster.session_place import amounts_of
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.sessions.in_cluster.workspace_sizes import all_sizes
from orchestrator.state import session_rows, stored_sessions
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session

log = logging.getLogger(__name__)

# Messages of one transaction.
_BATCH = 200


class PlaceComparison:
    """Of this node with its cluster, which has the name `cluster`."""

    def __init__(
        self,
        cluster: str,
        places: Places,
        usage: SessionGrowth,
        database: Database,
        sessions: Registry,
        session_places: SessionPlaces,
        names: NameComparison,
        moved: Callable[[Session], Awaitable[None]],
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        """`moved` ends a session whose place is another node's. `settle` ends moves of sessions."""
        self._cluster = cluster
        self._places = places
        self._usage = usage
        self._database = database
        self._registry = sessions
        self._session_places = session_places
        self._names = names
        self._moved = moved
        self._settle = settle
        self._serves = False
        # A session that one comparison ends would look like one without a place to another.
        self._comparing = asyncio.Lock()

    def serve(self) -> None:
        """From now on, sessions and volumes are created while it compares."""
        self._serves = True

    async def run(self) -> None:
        """Compares. Raises: ClusterUnavailableError, StoreError."""
        async with self._comparing:
            await self._run()

    async def _run(self) -> None:
        await self._settle()
        # Before the cluster is asked, so that it knows each of them.
        live = [each for each in self._registry.live if not each.moving]
        mine = await self._places.mine()
        if mine is None:
            return
        sizes = await self._database.read(all_sizes)
        # One that moves at this moment is settled by whoever moves it.
        live = [each for each in live if each.live and not each.moving]
        moved = [each for each in live if self._is_elsewhere(each, mine)]
        await asyncio.gather(*map(self._end, moved))
        for session in live:
            if session.live:
                await self._compare(session, mine.sessions.get(session.key), sizes)
        await self._give_back(key for key in mine.sessions if not self._has(key))
        if not self._serves:
            await self._forget_workspaces(mine, sizes)
        await self._names.run(serves=self._serves)
        FaultPoint.START_COMPARED.reached()

    async def _compare(
        self, session: Session, holding: Holding | None, sizes: dict[str, int]
    ) -> None:
        if session.cluster != self._cluster:
            await self._enter(session, holding)
            return
        amounts = amounts_of(session, session.limits, sizes.get(session.workspace.id))
        # The end of a change of its level tells the amounts by itself.
        if holding is not None and holding.amounts != amounts and not session.lock.locked():
            await self._usage.settle(session)

    def _is_elsewhere(self, session: Session, mine: Mine) -> bool:
        """Whether the session's place in this cluster is not this node's any more."""
        holding = mine.sessions.get(session.key)
        placed = session.cluster == self._cluster
        return placed and (holding is None or holding.place.number != session.place)

    async def _end(self, session: Session) -> None:
        """Ends a session here without releasing its place, which is another node's."""
        log.warning("session %s is another node's now: it ends here", session.id)
        session.cluster, session.place = "", 0
        await self._moved(session)

    async def _enter(self, session: Session, holding: Holding | None) -> None:
        """Takes a place for a session that is older than this node's part in the cluster."""
        try:
            if holding is None:
                await self._session_places.take(session, KeyLimits())
            else:  # taken by a start that was killed
                session.cluster, session.place = self._cluster, holding.place.number
        except PaddockError as error:
            log.error("session %s has no place in the cluster: %s", session.id, error.detail)
            return
        await self._database.write(session_rows.with_place(session))

    def _has(self, key: str) -> bool:
        """Whether that session lives here, or is being created."""
        session = self._registry.by_key(key)
        return self._registry.owner(key) is not None and (session is None or session.live)

    async def _give_back(self, keys: Iterable[str]) -> None:
        """Gives back the places of sessions that have ended, or were never created."""
        left = list(keys)
        ended = await self._database.read(partial(stored_sessions.ids, keys=left))
        await self._write(self._places.released(key, ended[key]) for key in left if key in ended)
        for key in left:
            if key not in ended:
                await self._places.unclaim(key)

    async def _forget_workspaces(self, mine: Mine, sizes: dict[str, int]) -> None:
        """Has the cluster forget workspaces and volumes that are gone, or were never made."""
        here = {each.lower() for each in sizes}  # ids in the cluster ignore case
        gone = (each for each in mine.workspaces if each.lower() not in here)
        await self._write(self._places.purged(each) for each in gone)

    async def _write(self, effects: Iterable[Effect | None]) -> None:
        rest = iter(effects)
        while some := tuple(islice(rest, _BATCH)):
            effect = together(*some)
            if effect is not None:
                await self._database.write(effect)
