"""Creates sessions: checked, recorded, started and acknowledged, or removed completely."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

from orchestrator.ground.errors import (
    ConflictError,
    MaxRefinementsError,
    PaddockError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fair_queue import Slot
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store.effect import both, together
from orchestrator.record.open import RecordFloor
from orchestrator.rules.access.keys import Principal, digest, new_handle
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sessions.in_cluster.record_shipping import RecordShipping
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.sessions.new_session import SessionMaker, recorded_creation
from orchestrator.sessions.running_creations import RunningCreations
from orchestrator.sessions.sandbox_room import SandboxRoom
from orchestrator.sessions.shares import Shares
from orchestrator.settings.settings import Settings
from orchestrator.state import pack_rows, stored_sessions
from orchestrator.state.registry import Registry
from orchestrator.state.requests import NewSession, Registered
from orchestrator.state.restored_session import Carried
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import check_not_stored
from orchestrator.state.starting_files import StartingFiles
from paddock.contract.pack_form import MAX_REFINEMENTS

log = logging.getLogger(__name__)


class Creation:
    """Creates sessions from requests."""

    def __init__(
        self,
        settings: Settings,
        ground: GroundFloor,
        rules: RulesFloor,
        record: RecordFloor,
        sandbox: SandboxFloor,
        sessions: Registry,
        places: SessionPlaces,
        shares: Shares,
        room: SandboxRoom,
        shipping: RecordShipping,
    ) -> None:
        self._maker = SessionMaker(
            settings, rules, sandbox.listed_images, sandbox.level_images, sandbox.workspaces
        )
        self._places = places
        self._shipping = shipping
        self._database = ground.database
        self._recorder = record.recorder
        self._record_room = record.room
        self._key_bytes = sandbox.key_bytes
        self._sandboxes = sandbox.sandboxes
        self._workspaces = sandbox.workspaces
        self._volumes = sandbox.volumes
        self._named_snapshots = sandbox.named_snapshots
        self._registry = sessions
        self._shares = shares
        self._room = room
        self._scrub = ground.scrub
        self._metrics = ground.metrics
        self.running = RunningCreations()

    async def run(self, principal: Principal, request: NewSession, slot: Slot) -> Registered:
        """A registered session whose sandbox has said hello.

        Raises: ValidationError, PermissionDeniedError for what the key's entry does not allow,
        ConflictError, RateLimitedError, CapacityExhaustedError, EngineUnavailableError,
        SandboxUnavailableError, AuditUnavailableError, ClusterUnavailableError.
        """
        with slot:
            return await self.begin(principal, request)

    async def begin(self, principal: Principal, request: NewSession) -> Registered:
        """Likewise; the caller has a slot."""
        with self._metrics.creation() as created:
            registered = await self._run(principal, request)
            created(registered.session.level.name)
        return registered

    async def _run(self, principal: Principal, request: NewSession) -> Registered:
        handle = new_handle()
        if request.from_snapshot is not None:
            found = await self._named_snapshots.starting(principal.account, request.from_snapshot)
            request = replace(request, files=found)
        session = await self._maker.make(principal, request, digest(handle))
        with self.running.begun(session) as creation:
            gave_way = await self._register(principal, request, session)
            session.wanted = creation.wanted
        return Registered(session, handle, gave_way)

    async def _register(
        self, principal: Principal, request: NewSession, session: Session
    ) -> tuple[Session, ...]:
        """Checks, starts and adds it; returns the sessions that were suspended for it."""
        stored: dict[str, Any] = {
            "id": session.id,
            **session.terms.stored(),
            "image": None,  # it is on the operator's list
            "consume": None if request.consume is None else request.consume.stored(),
            "policy": session.policy.stored(),
        }
        check_not_stored(stored, await self._recorder.cut(session, stored))
        _check_fits(session, request.files)
        await self._sandboxes.check_level(session, session.level)
        looking = self._sandboxes.look_up(session.terms.image)
        await self._record_room.ready(session.owner)
        self._key_bytes.left(session.owner)  # asked for ahead of need
        # Also checked before anything gives way: a refused creation must not cost others anything.
        self._check_share(principal, session)
        room = await self._room.make()
        # Nothing else runs between this check and the reservation.
        self._check_share(principal, session)
        self._room.admit(room)
        self._registry.reserve(session)
        try:
            if request.id is not None:
                session.incarnation = await self._database.read(
                    lambda connection: stored_sessions.next_incarnation(connection, session.id)
                )
            if request.carried is not None:
                await self._check_unknown(session)
            await self._count_refinements(session)
            await self._start(principal, session, looking, request)
        except BaseException:
            self._registry.unreserve(session)
            raise
        self._registry.add(session)
        return room.gave_way

    async def _check_unknown(self, session: Session) -> None:
        """Raises: ConflictError if a client ever knew a session with that id."""
        known = await self._database.read(
            lambda connection: stored_sessions.find_key(connection, session.id, None)
        )
        if known is not None:
            raise ConflictError("a session with the snapshot's id is in the records already")

    async def _count_refinements(self, session: Session) -> None:
        """Raises: MaxRefinementsError if the pack of its work item was refined too often."""
        work_id = session.terms.work_id
        if session.pack is None or work_id is None:
            return
        session.reissues = await self._database.read(
            lambda connection: pack_rows.misses(connection, session.owner, work_id)
        )
        FaultPoint.REFINE_COUNTED.reached()
        if session.reissues > MAX_REFINEMENTS:
            raise MaxRefinementsError(
                f"the pack of {work_id} was refined {MAX_REFINEMENTS} times: MaxRefinementsExceeded"
            )

    def _check_share(self, principal: Principal, session: Session) -> None:
        """Raises RateLimitedError or CapacityExhaustedError if the key has no room for it."""
        self._shares.check_new(principal, session.limits)
        self._recorder.check_room(session)

    async def _start(
        self,
        principal: Principal,
        session: Session,
        looking: asyncio.Task[str],
        request: NewSession,
    ) -> None:
        """Records the session, starts its sandbox and acknowledges it; on failure, forgets it."""
        carried, files = request.carried, request.files
        await self._record(principal, session, carried, files)
        FaultPoint.CREATE_RECORDED.reached()
        try:
            await self._shipping.begun(session)
            if carried is not None:
                await carried.fill(session)
            if files is not None:
                await files.place(session)
            sandbox = await self._sandboxes.start(
                session,
                session.level,
                session.limits,
                looking,
                None if files is None else files.id,
            )
        except BaseException as error:
            await self._forget(session, error)
            raise
        session.sandbox = sandbox
        try:
            if request.child is not None:
                request.child.check()
            keeping = self._workspaces.keeping(
                session, sandbox=sandbox.name, container_id=sandbox.container_id
            )
            if carried is not None:
                keeping = both(keeping, carried.storing(session))
            await (request.acknowledging or self._database.write)(keeping)
            self._places.check_kept(session)
        except BaseException as error:
            session.sandbox = None
            await self._sandboxes.discard(sandbox)
            await self._forget(session, error)
            raise
        FaultPoint.CREATE_ACKNOWLEDGED.reached()
        if carried is not None:
            self._recorder.count(session, carried.audit_bytes)

    async def _record(
        self,
        principal: Principal,
        session: Session,
        carried: Carried | None,
        files: StartingFiles | None,
    ) -> None:
        """Takes its place and records it, with what it claims here; or neither."""
        quota = self._shares.quota(principal)
        async with self._places.taken(session, quota):
            FaultPoint.CREATE_CLAIMED.reached()
            await self._recorder.record(
                session,
                EventDraft(
                    "session.create",
                    actor=principal.name,
                    decision="allow",
                    args=recorded_creation(session, carried, files),
                ),
                effect=together(
                    None if files is None else files.claiming(session),
                    self._volumes.claiming(session) if session.terms.volumes else None,
                    self._workspaces.claiming(session, quota),
                ),
            )

    async def _forget(self, session: Session, error: BaseException) -> None:
        detail = error.detail if isinstance(error, PaddockError) else "interrupted"
        await self._recorder.record(
            session,
            EventDraft(
                "session.terminated",
                actor="system",
                args={"acknowledged": False},
                error=f"the session could not be created: {detail}",
            ),
            effect=self._workspaces.forgetting(session),
        )
        if session.terms.env:
            self._scrub()
        try:
            await self._workspaces.finish_purge(session.workspace)
        except PaddockError as failure:
            log.warning("the next start removes workspace %s: %s", session.id, failure.detail)


def _check_fits(session: Session, files: StartingFiles | None) -> None:
    """Raises: ValidationError if the workspace is too small for the files that it begins with.

    Likewise if its level has no place for the layer that it begins with.
    """
    if files is not None and files.layer and session.level.root_bytes is None:
        raise ValidationError(
            f"permission_level must be one with root_bytes: the snapshot has a writable layer, and "
            f"{session.level.name} has none",
            field="permission_level",
        )
    if files is not None and files.used_bytes > session.limits.workspace_bytes:
        raise ValidationError(
            f"limits.workspace_bytes must be at least {files.used_bytes}, which the snapshot has",
            field="limits.workspace_bytes",
        )
