"""Moves sessions of this node to others: packed, sent, and ended by the cluster's word."""

import logging
from collections.abc import AsyncIterator

from orchestrator.cluster.directory import ClusterNode, Directory
from orchestrator.ground.errors import ConflictError, NotFoundError, PaddockError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.task_scope import TaskScope
from orchestrator.operate.moves.envelope import Envelope
from orchestrator.operate.moves.way import NodeWay
from orchestrator.operate.snapshots.snapshot import TakenSnapshot
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.sessions.in_cluster.departures import check_movable
from orchestrator.sessions.session_ends import SYSTEM
from orchestrator.sessions.sessions import Sessions
from orchestrator.settings.settings import Settings
from orchestrator.state.moving.continued import Continued, EarlierLife
from orchestrator.state.session import Session

log = logging.getLogger(__name__)


class Mover:
    """This node as the source of moves."""

    def __init__(
        self,
        settings: Settings,
        directory: Directory | None,
        sessions: Sessions,
        snapshots: Snapshots,
        secrets: ProxySecrets,
        way: NodeWay,
    ) -> None:
        """`directory` None: there is no cluster."""
        self._name = settings.node or ""
        self._directory = directory
        self._departures = sessions.moves.departures
        self._snapshots = snapshots
        self._secrets = secrets
        self._way = way
        self._tasks = TaskScope("a move of a session")

    async def nodes(self) -> list[ClusterNode]:
        """The nodes of the cluster. Raises: ConflictError without one; ClusterUnavailableError."""
        if self._directory is None:
            raise ConflictError("this control plane is no node of a cluster: nothing can be moved")
        return list(await self._directory.nodes())

    async def move(self, session: Session, name: str) -> None:
        """Moves the session to the node of that name; returns when it is active there.

        It goes on if its caller is cancelled. If it fails, the session stays. Raises: NotFoundError
        for an unknown node; the errors of `Departures.depart` and `NodeWay.send`.
        """
        check_movable(session)
        target = next((each for each in await self.nodes() if each.name == name), None)
        if target is None:
            raise NotFoundError(f"the cluster has no node {name[:64]}")
        if name == self._name:
            raise ConflictError(f"the session is on the node {name} already")
        if not target.takes_sessions:
            state = target.report.state if target.alive else "silent"
            raise ConflictError(f"the node {name} takes no sessions: it is {state}")
        await self._tasks.shield(self._move(session, target))

    async def _move(self, session: Session, target: ClusterNode) -> None:
        offered = ""

        async def send(session: Session) -> str:
            nonlocal offered
            offered = await self._send(session, target)
            return offered

        try:
            await self._departures.depart(session, target.name, send)
        finally:
            # Whatever has become of it: the other node need not find out by itself.
            if offered:
                await self._tell(target, offered)
        self._departures.follow(session.key)

    async def _tell(self, target: ClusterNode, offered: str) -> None:
        try:
            await self._way.settle(target, offered)
        except PaddockError as error:
            log.warning("the node %s asks the cluster by itself: %s", target.name, error.detail)

    async def _send(self, session: Session, target: ClusterNode) -> str:
        taken = await self._snapshots.pack(SYSTEM, session)
        try:
            FaultPoint.LEAVE_PACKED.reached()
            last = taken.recorded
            earlier = EarlierLife(self._name, session.key, session.incarnation, last.seq, last.hash)
            continued = Continued.of(session, earlier, self._secrets.own_of(session))
            envelope = Envelope(session.place, continued)
            return await self._way.send(target, _body(envelope, taken))
        finally:
            taken.close()

    async def close(self) -> None:
        """Waits for what is being moved."""
        await self._tasks.drain()


async def _body(envelope: Envelope, taken: TakenSnapshot) -> AsyncIterator[bytes]:
    yield envelope.encoded()
    async for piece in taken.chunks():
        yield piece
