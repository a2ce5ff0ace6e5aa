"""Sessions that arrive from other nodes: here with all that they have, and not active yet.

Such a session has its id, its workspace and its record here, and no sandbox; clients can't use it.
Whether it becomes active, the cluster says: its place is this node's, or it is withdrawn.
"""

import asyncio
import logging

from orchestrator.cluster.base import Place
from orchestrator.cluster.moves import Moves
from orchestrator.ground.errors import ConflictError, PaddockError, ValidationError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store.effect import all_of, together
from orchestrator.record.open import RecordFloor
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sessions.deadlines import Deadlines
from orchestrator.sessions.in_cluster.move_secrets import MoveSecrets
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.sessions.new_session import SessionMaker, recorded_creation
from orchestrator.state import session_rows, stored_sessions
from orchestrator.state.lifecycle import Suspension
from orchestrator.state.moving import move_rows
from orchestrator.state.moving.continued import Continued
from orchestrator.state.moving.move_rows import MoveRow, MoveState
from orchestrator.state.registry import Registry
from orchestrator.state.requests import NewSession
from orchestrator.state.restored_session import Carried
from orchestrator.state.session import Session

log = logging.getLogger(__name__)


class Arrivals:
    """The sessions that are here and not active yet."""

    def __init__(
        self,
        ground: GroundFloor,
        record: RecordFloor,
        sandbox: SandboxFloor,
        maker: SessionMaker,
        sessions: Registry,
        places: SessionPlaces,
        moves: Moves,
        deadlines: Deadlines,
        secrets: MoveSecrets,
    ) -> None:
        self._database = ground.database
        self._recorder = record.recorder
        self._proxy_secrets = record.secrets
        self._sandboxes = sandbox.sandboxes
        self._workspaces = sandbox.workspaces
        self._maker = maker
        self._registry = sessions
        self._places = places
        self._moves = moves
        self._deadlines = deadlines
        self._secrets = secrets
        # By session key, with the lock of what settles them.
        self._waiting: dict[str, tuple[Session, asyncio.Lock]] = {}

    async def arrive(self, request: NewSession, continued: Continued) -> Session:
        """Records the session and makes its files; it is complete, and not active.

        `request` has the snapshot's session with what it carries. `settle` follows, or `activate`
        if the place is this node's already. Nothing is left if this fails. Raises: ValidationError,
        ConflictError if this node has other rules for its level, or its id; PermissionDeniedError,
        CapacityExhaustedError, SnapshotError, AuditUnavailableError, EngineUnavailableError.
        """
        carried = request.carried
        if carried is None:
            raise ValidationError("a session arrives with its snapshot", field="archive")
        # Its key was asked when it was created; bounds that have changed since end no session.
        owner = Principal(continued.owner, Role.OPERATOR)
        session = await self._maker.make(owner, request, continued.handle_sha256)
        if session.level.sha256 != continued.level_sha256:
            raise ConflictError(
                f"this node has another file of the level {session.level.name} than the session:"
                " give all nodes the same rules"
            )
        session.moving = True
        try:
            continued.take(session)
        except (ValueError, KeyError, TypeError) as error:
            raise ValidationError(f"the session can't go on with: {error}") from None
        await self._sandboxes.check_level(session, session.level)
        self._registry.reserve(session)
        try:
            known = await self._database.read(
                lambda connection: stored_sessions.next_incarnation(connection, session.id)
            )
            session.incarnation = max(known, continued.earlier.incarnation + 1)
            await self._make(session, carried, continued)
        except BaseException:
            self._registry.unreserve(session)
            raise
        self._waiting[session.key] = session, asyncio.Lock()
        return session

    async def _make(self, session: Session, carried: Carried, continued: Continued) -> None:
        """Records it and makes its files; on failure, it is forgotten."""
        sealed = self._secrets.sealed(session)
        row = MoveRow(session.key, MoveState.ARRIVING, continued.earlier.node, sealed)
        await self._recorder.record(
            session,
            EventDraft(
                "session.create",
                actor="system",
                decision="allow",
                args={
                    **recorded_creation(session, carried, None),
                    **continued.earlier.recorded(),
                },
            ),
            effect=together(
                # Its owner's quota counts it where it comes from.
                self._workspaces.claiming(session, KeyLimits()),
                move_rows.putting(row),
            ),
        )
        FaultPoint.ARRIVE_RECORDED.reached()
        try:
            await carried.fill(session)
            await self._database.write(
                all_of(
                    carried.storing(session),
                    session_rows.with_usage(session),
                    self._proxy_secrets.bringing(session, continued.proxy_secrets),
                )
            )
            FaultPoint.ARRIVE_FILLED.reached()
        except BaseException:
            await self._forget(session, "it could not be made here")
            raise
        self._recorder.count(session, carried.audit_bytes)

    async def settle(self, session_key: str) -> bool:
        """Asks the cluster whose the session is: it is active here then, or nothing of it is left.

        Returns whether it is active, or was and may have ended since. Raises:
        ClusterUnavailableError, AuditUnavailableError, StoreError; then it stays as it is.
        """
        waiting = self._waiting.get(session_key)
        if waiting is not None:
            session, lock = waiting
            async with lock:
                if session_key in self._waiting:
                    place = await self._moves.settle(session_key)
                    if place is None:
                        await self._withdraw(session)
                    else:
                        await self.activate(session, place)
        return self._registry.by_key(session_key) is not None

    async def activate(self, session: Session, place: Place) -> None:
        """Has clients use it from now on, because its place is this node's now.

        Raises: AuditUnavailableError; then it stays as it is.
        """
        cluster = self._places.cluster
        session.cluster, session.place = cluster, place.number
        await self._recorder.record(
            session,
            EventDraft("session.arrived", actor="system", args={"place": place.number}),
            effect=together(
                self._workspaces.keeping(
                    session,
                    suspension=Suspension.SUSPENDED,
                    cluster=cluster,
                    place=place.number,
                    **({"shipped_to": 0} if session.must_ship(session.level) else {}),
                ),
                move_rows.kept(session.key),
                self._moves.arrived(session.key),
            ),
        )
        FaultPoint.ARRIVE_ACTIVATED.reached()
        session.suspension, session.moving = Suspension.SUSPENDED, False
        session.ships = session.must_ship(session.level)
        self._places.name(session)
        self._registry.add(session)
        self._waiting.pop(session.key, None)
        self._deadlines.watch(session)
        log.info("session %s has arrived", session.id)

    async def _withdraw(self, session: Session) -> None:
        await self._forget(session, "it has stayed where it was")
        self._registry.unreserve(session)
        self._waiting.pop(session.key, None)

    async def _forget(self, session: Session, why: str) -> None:
        await self._recorder.record(
            session,
            EventDraft(
                "session.terminated",
                actor="system",
                args={"acknowledged": False},
                error=f"the session was moved here and did not become active: {why}",
                stop=True,
            ),
            effect=together(
                self._workspaces.forgetting(session), move_rows.withdrawing(session.key)
            ),
        )
        session.over.set_result(None)
        FaultPoint.ARRIVE_FORGOTTEN.reached()
        try:
            await self._workspaces.finish_purge(session.workspace)
        except PaddockError as failure:
            log.warning("the next start removes workspace %s: %s", session.id, failure.detail)

    @property
    def sessions(self) -> list[Session]:
        """Those that are not active yet."""
        return [session for session, _ in self._waiting.values()]

    def recover(self, session: Session, row: MoveRow) -> None:
        """Takes over one that an earlier control plane has left. Raises: ConflictError."""
        session.moving = True
        self._registry.reserve(session)
        self._secrets.recall(session, row)
        self._waiting[session.key] = session, asyncio.Lock()

    async def settle_all(self) -> None:
        """Settles all that wait. Raises: ClusterUnavailableError, AuditUnavailableError."""
        for session in self.sessions:
            await self.settle(session.key)
