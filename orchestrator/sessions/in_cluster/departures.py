"""Sessions that leave for other nodes: gated, given away by the cluster's word, and ended here.

Until the cluster has said whose the session is, nothing is done with it. Its files stay until it is
active on its new node.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

from orchestrator.cluster.moves import Fate, Moves
from orchestrator.ground.errors import (
    ClusterUnavailableError,
    ConflictError,
    NodeUnavailableError,
    PaddockError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.workspace import slots
from orchestrator.record.audit.recorder import Recorder
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.in_cluster.move_secrets import MoveSecrets
from orchestrator.sessions.session_ends import SessionEnds
from orchestrator.sessions.suspension import Suspensions
from orchestrator.state import stored_sessions
from orchestrator.state.moving import move_rows
from orchestrator.state.moving.move_rows import MoveRow, MoveState
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session

log = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_UNKNOWN = (
    "whether the session was moved is not known, because the cluster's database does not answer: "
    "nothing is done with it until it does"
)


class Departures:
    """The sessions that are given away, and those that were."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        sessions: Registry,
        workspaces: Workspaces,
        suspensions: Suspensions,
        ends: SessionEnds,
        moves: Moves,
        secrets: MoveSecrets,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._registry = sessions
        self._workspaces = workspaces
        self._suspensions = suspensions
        self._ends = ends
        self._moves = moves
        self._secrets = secrets
        # By session key: the node to which it may have been given.
        self._nodes: dict[str, str] = {}
        # Those that `depart` settles itself.
        self._departing: set[str] = set()
        self._following = TaskScope("the end of a session's move")

    async def depart(
        self, session: Session, node: str, send: Callable[[Session], Awaitable[str]]
    ) -> None:
        """Gives the session to that node, and ends it here; its files stay until `follow`.

        `send` gets the session without a sandbox, and returns the key under which the node offers
        to take it. If anything fails before the cluster's word, the session stays as it was; its
        next use gives it a sandbox. Raises: ConflictError for a session that can't be moved, or if
        the target does not take it; BusyError, InvalidTransitionError; ClusterUnavailableError,
        and whose it is may be unknown; AuditUnavailableError; the errors of `send`.
        """
        check_movable(session)
        self._departing.add(session.key)
        try:
            begin = partial(self._begin, session, node)
            async with self._suspensions.emptied(session, "moved", first=begin):
                offered = await send(session)
                FaultPoint.LEAVE_SENT.reached()
                await self._give(session, offered)
                FaultPoint.LEAVE_COMMITTED.reached()
                await self._end(session, held=True)
        except BaseException as error:
            if session.moving and session.live:
                await self._following.shield(self._stay(session, str(error) or "interrupted"))
            raise
        finally:
            self._departing.discard(session.key)

    async def _begin(self, session: Session, node: str) -> None:
        """From now on nothing is done with it; its secrets survive the end of this process."""
        check_movable(session)
        row = MoveRow(session.key, MoveState.LEAVING, node, self._secrets.sealed(session))
        session.moving, self._nodes[session.key] = True, node
        await self._recorder.record(
            session,
            EventDraft("session.moving", actor="system", args={"node": node}),
            effect=move_rows.putting(row),
        )
        FaultPoint.LEAVE_RECORDED.reached()

    async def _give(self, session: Session, offered: str) -> None:
        """Raises: ConflictError if it was not given; ClusterUnavailableError if nobody knows."""
        try:
            await self._moves.commit(session.key, session.place, offered)
        except ClusterUnavailableError:
            # It may have been done, and the answer lost.
            if await self._moves.settle(session.key) is not None:
                raise

    async def _stay(self, session: Session, why: str) -> None:
        """Settles it after a failure: now, or as soon as the cluster answers."""
        try:
            await self._settle(session, why)
        except PaddockError as error:
            log.warning("session %s: %s: %s", session.id, _UNKNOWN, error.detail)
            self._following.spawn(self._settle_later(session, why))

    async def _settle_later(self, session: Session, why: str) -> None:
        for pause in pauses():
            await asyncio.sleep(pause)
            if not session.moving or not session.live:
                return
            with suppress(PaddockError):
                await self._settle(session, why)
                return

    async def _settle(self, session: Session, why: str) -> None:
        """Asks the cluster whose it is: it goes on, or it ends here.

        Raises: ClusterUnavailableError, AuditUnavailableError; then it stays as it is.
        """
        if await self._moves.settle(session.key) is None:
            await self._end(session)
            return
        await self._recorder.record(
            session,
            EventDraft("session.stayed", actor="system", error=why, stop=True),
            effect=move_rows.kept(session.key),
        )
        session.moving = False
        self._nodes.pop(session.key, None)

    async def _end(self, session: Session, *, held: bool = False) -> None:
        """Ends it here, because it lives on another node now."""
        node = self._nodes.get(session.key, "")

        async def record() -> None:
            await self._recorder.record(
                session,
                EventDraft("session.moved", actor="system", args={"node": node}, stop=True),
                effect=move_rows.left(session.key),
            )

        await self._ends.moved(session, record, held=held)
        self._nodes.pop(session.key, None)
        FaultPoint.LEAVE_ENDED.reached()

    # After a restart, and when the cluster answers again.

    def recover(self, session: Session, row: MoveRow) -> None:
        """Takes over a live session that an earlier control plane was giving away, or did not."""
        if row.state is not MoveState.KEPT:
            session.moving, self._nodes[session.key] = True, row.node
        if row.sealed is not None:
            self._secrets.recall(session, row)

    async def settle_all(self) -> None:
        """Settles what nobody settles, and follows what has left.

        Raises: ClusterUnavailableError, AuditUnavailableError, StoreError.
        """
        for session in self._registry.live:
            if session.moving and session.key not in self._departing:
                await self._settle(session, "the control plane, or its cluster, was interrupted")
        for row in await self._database.read(move_rows.stored):
            ended = self._registry.by_key(row.session_key)
            if row.state is MoveState.LEFT and (ended is None or not ended.live):
                self.follow(row.session_key)

    def follow(self, session_key: str) -> None:
        """Purges the files of a session that has left, once it is active on its new node."""
        if session_key not in self._departing:
            self._departing.add(session_key)
            self._following.spawn(self._follow(session_key))

    async def _follow(self, session_key: str) -> None:
        try:
            for pause in pauses():
                if await self._finished(session_key):
                    return
                await asyncio.sleep(pause)
        finally:
            self._departing.discard(session_key)

    async def _finished(self, session_key: str) -> bool:
        """Whether nothing of the move is left here. Raises: StoreError."""
        try:
            fate = await self._moves.fate(session_key)
        except ClusterUnavailableError:
            return False
        if fate is Fate.PENDING:
            return False

        def order(connection: sqlite3.Connection) -> None:
            found = stored_sessions.ids(connection, [session_key])
            # Files of a session whose new node was lost are kept as those of any ended session.
            workspace_id = found.get(session_key) if fate is Fate.THERE else None
            if workspace_id is not None and not slots.in_use(connection, workspace_id):
                slots.order_purge(connection, workspace_id)
            move_rows.removing(session_key)(connection)

        await self._database.write(order, reserve=True)
        await self._workspaces.finish_purges()
        return True

    async def close(self) -> None:
        """Ends what follows; the next start goes on."""
        await self._following.close()


def pauses() -> Iterator[float]:
    """Seconds between two questions to the cluster, which grow."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def check_movable(session: Session) -> None:
    """Raises: ConflictError that says why it can't be moved; the errors of `check_live`."""
    session.check_not_ending()
    session.check_settled()
    why = unmovable(session)
    if why is not None:
        raise ConflictError(why)


def unmovable(session: Session) -> str | None:
    """Why the session stays on its node, whatever it does; None: it can be moved."""
    if not session.place:
        return "the session has no place in a cluster"
    if session.family.origin is not None and session.family.parent is not None:
        return "a child stays on its parent's node: move it after its parent has ended"
    if any(child.live for child in session.family.children.values()) or session.family.births:
        return "the session has children, which stay with it: end them first"
    if session.pack is not None:
        return "a session with a context pack has no snapshot: issue it again on the other node"
    if session.terms.volumes:
        return "the session mounts volumes, which are on its node only"
    return None


def check_not_moved(session: Session) -> None:
    """Raises: NodeUnavailableError if what was asked of it belongs to its new life."""
    if session.moved_away:
        raise NodeUnavailableError(
            "the session has moved to another node: ask again; nothing has been done",
            retry_after=1,
        )
