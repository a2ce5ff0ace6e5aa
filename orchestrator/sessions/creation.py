"""Creates sessions: checked, recorded, started and acknowledged, or removed completely."""

import asyncio
import logging
import secrets
from dataclasses import replace
from datetime import datetime
from typing import Any

from orchestrator.ground.errors import (
    ConflictError,
    MaxRefinementsError,
    PaddockError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.fair_queue import Slot
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store.effect import both
from orchestrator.host.workspace.paths import validate_id
from orchestrator.record.open import RecordFloor
from orchestrator.rules.access.keys import Principal, digest, new_handle
from orchestrator.rules.egress.session_egress import check_own_rules, narrowing_of
from orchestrator.rules.egress.session_rules import NO_OWN_RULES, OwnRules
from orchestrator.rules.open import RulesFloor
from orchestrator.rules.policy.levels import (
    Level,
    SessionLimits,
    clamped_limits,
    effective_limits,
)
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sessions.creation_record import told_of
from orchestrator.sessions.sandbox_room import SandboxRoom
from orchestrator.sessions.shares import Shares
from orchestrator.sessions.under_way import CreationsUnderWay
from orchestrator.settings.operator_mounts import chosen
from orchestrator.settings.settings import Settings
from orchestrator.state import pack_rows, stored_sessions
from orchestrator.state.budget import Budget, limits_of
from orchestrator.state.family import Family
from orchestrator.state.registry import Registry
from orchestrator.state.requests import NewSession, Registered
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets, check_not_stored
from paddock.contract.pack_form import MAX_REFINEMENTS
from paddock.contract.words import Kind, Status
from sandbox_agent.decide.variables import INERT_PREFIX, allowed_secret, allowed_variable

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
        shares: Shares,
        room: SandboxRoom,
    ) -> None:
        self._settings = settings
        self._levels = rules.levels
        self._policies = rules.session_policies
        self._images = sandbox.listed_images
        self._database = ground.database
        self._recorder = record.recorder
        self._sandboxes = sandbox.sandboxes
        self._workspaces = sandbox.workspaces
        self._registry = sessions
        self._shares = shares
        self._room = room
        self._scrub = ground.scrub
        self._metrics = ground.metrics
        self.under_way = CreationsUnderWay()

    async def run(self, principal: Principal, request: NewSession, slot: Slot) -> Registered:
        """A registered session whose sandbox has said hello.

        Raises: ValidationError, PermissionDeniedError for what the key's entry does not allow,
        ConflictError, RateLimitedError, CapacityExhaustedError, EngineUnavailableError,
        SandboxUnavailableError, AuditUnavailableError.
        """
        with slot, self._metrics.creation() as created:
            registered = await self._run(principal, request)
            created(registered.session.level.name)
        return registered

    async def _run(self, principal: Principal, request: NewSession) -> Registered:
        handle = new_handle()
        session = self._new_session(principal, request, digest(handle))
        with self.under_way.begun(session) as creation:
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
        await self._sandboxes.check_level(session.level)
        looking = self._sandboxes.look_up(session.terms.image)
        # Before anything gives way, too: a refused creation must not cost others anything.
        self._check_share(principal, session)
        room = await self._room.make()
        # Nothing else comes in between from here to the reservation.
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

    def _new_session(self, principal: Principal, request: NewSession, handle: str) -> Session:
        settings = self._settings
        bounds = principal.bounds
        child = request.child
        asked = request.terms
        level = (
            self._levels.named(request.permission_level or bounds.default_level(self._levels))
            if child is None
            else child.level
        )
        bounds.check_level(level, self._levels)
        if request.consume is not None:
            level = level.offline()
            if asked.mounts:
                raise ValidationError("mounts can't be given with consume", field="mounts")
        session_id = validate_id(request.id or f"sess-{secrets.token_hex(8)}")
        image = self._images.choose(asked.image or None, bounds.images, level)
        for name in asked.env:
            if not allowed_variable(name, level.environment):
                raise ValidationError(f"env.{name} is not allowed at {level.name}", field="env")
        for name in request.secrets:
            if not allowed_secret(name, level.environment):
                raise ValidationError(
                    f"secrets.{name} is not allowed at {level.name}: begin its name with "
                    f"{INERT_PREFIX}, or have the operator add it to `environment` of the level",
                    field="secrets",
                )
        secrets_held = SessionSecrets(
            StoredSecrets.new(request.secrets), request.secrets, request.lease_id
        )
        chosen(settings.mounts, asked.mounts)
        terms = replace(
            asked,
            image=image,
            idle_timeout=asked.idle_timeout or settings.idle_timeout,
            wall_timeout=asked.wall_timeout or settings.wall_timeout or settings.wall_timeout_max,
            tools=bounds.tools_of_session(asked.tools),
            work_id=_work_id(request),
        )
        _check_most("idle_timeout", terms.idle_timeout, settings.idle_timeout_max)
        _check_most("wall_timeout", terms.wall_timeout, settings.wall_timeout_max)
        carried = request.carried
        created_at = now() if carried is None else carried.created_at
        workspace = self._workspaces.unclaimed(session_id, principal.name)
        if child is not None and child.origin.workspace != "own":
            workspace = child.parent.workspace
        new = Session(
            key=secrets.token_hex(8),
            id=session_id,
            owner=principal.name,
            status=Status.ACTIVE,
            level=level,
            terms=terms,
            limits=_limits(request, level),
            budget=_budget(request, level, created_at),
            handle_sha256=handle,
            workspace=workspace,
            root_dir=self._workspaces.root_dir(workspace.id),
            created_at=created_at,
            last_activity_at=created_at,
            policy=self._policies.resolve(request.policy, "policy"),
            episodes=0 if terms.episode_id is None else 1,
            own_rules=_own_rules(request, level),
            secrets=secrets_held,
            pack=request.consume,
            family=Family() if child is None else Family(child.origin, child.parent),
        )
        if carried is not None:
            carried.take(new)
        return new

    async def _start(
        self,
        principal: Principal,
        session: Session,
        looking: asyncio.Task[str],
        request: NewSession,
    ) -> None:
        """Records the session, starts its sandbox and acknowledges it; on failure, forgets it."""
        carried = request.carried
        await self._recorder.record(
            session,
            EventDraft(
                "session.create",
                actor=principal.name,
                decision="allow",
                args=told_of(session, carried),
            ),
            effect=self._workspaces.claiming(session, self._shares.quota(principal)),
        )
        FaultPoint.CREATE_RECORDED.reached()
        try:
            if carried is not None:
                await carried.fill(session)
            sandbox = await self._sandboxes.start(session, session.level, session.limits, looking)
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
            await self._database.write(keeping)
        except BaseException as error:
            session.sandbox = None
            await self._sandboxes.discard(sandbox)
            await self._forget(session, error)
            raise
        FaultPoint.CREATE_ACKNOWLEDGED.reached()
        if carried is not None:
            self._recorder.count(session, carried.audit_bytes)

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


def _limits(request: NewSession, level: Level) -> SessionLimits:
    """A child's limits are its parent's, as far as its level permits. Raises: ValidationError."""
    limits = effective_limits if request.child is None else clamped_limits
    return limits(level, request.terms.limits)


def _budget(request: NewSession, level: Level, created_at: str) -> Budget:
    """The session's budget; that of a child is reserved in its parent's already.

    Raises: ValidationError above the level's limit of recorded bytes.
    """
    if request.child is not None:
        return request.child.budget
    limits = limits_of(request.budget)
    audit_bytes = limits.setdefault(Kind.AUDIT_BYTES, level.audit_bytes)
    if audit_bytes > level.audit_bytes:
        raise ValidationError(
            f"budget.audit_bytes may be at most {level.audit_bytes} at {level.name}",
            field="budget.audit_bytes",
        )
    return Budget(datetime.fromisoformat(created_at), limits)


def _own_rules(request: NewSession, level: Level) -> OwnRules:
    """The rules of its way out besides the level's. Raises: ValidationError if it has none."""
    if request.child is not None:
        return request.child.own_rules
    if request.egress is None:
        return NO_OWN_RULES
    if level.network != "egress":
        raise ValidationError(
            f'egress needs a level with network = "egress", which {level.name} is not',
            field="egress",
        )
    own = OwnRules(only=narrowing_of(request.egress, "egress"))
    check_own_rules(level, own, only="egress")
    return own


def _work_id(request: NewSession) -> str | None:
    """The name of its work: a session with a pack has one, so that refinements are counted."""
    if request.terms.work_id is None and request.consume is not None:
        return f"work-{secrets.token_hex(8)}"
    return request.terms.work_id


def _check_most(name: str, seconds: int | None, most: int | None) -> None:
    """Raises ValidationError for a time-out that is longer than the operator permits."""
    if seconds is not None and most is not None and seconds > most:
        raise ValidationError(f"{name} may be at most {most} seconds", field=name)
