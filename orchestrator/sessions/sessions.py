"""Creates, changes and ends sessions. Callers learn only what is durable."""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime

from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.errors import AuditUnavailableError, NotFoundError, PaddockError
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.fair_queue import Slot
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Container
from orchestrator.host.open import HostFloor
from orchestrator.record.audit.gaps import Gaps
from orchestrator.record.audit.stop_records import Write
from orchestrator.record.open import RecordFloor
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.sessions.creation import Creation
from orchestrator.sessions.deadlines import Deadline, Deadlines, due
from orchestrator.sessions.finder import Finder
from orchestrator.sessions.in_cluster.departures import check_not_moved
from orchestrator.sessions.in_cluster.record_shipping import RecordShipping
from orchestrator.sessions.in_cluster.session_growth import SessionGrowth
from orchestrator.sessions.in_cluster.session_moves import SessionMoves
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.sessions.inspection import Inspector
from orchestrator.sessions.level_change import LevelChange
from orchestrator.sessions.pauses import Pauses
from orchestrator.sessions.sandbox_room import SandboxRoom
from orchestrator.sessions.session_changes import SessionChanges
from orchestrator.sessions.session_ends import SYSTEM, SessionEnds
from orchestrator.sessions.shares import Shares
from orchestrator.sessions.spawn_ends import SpawnEnds
from orchestrator.sessions.suspension import Suspensions
from orchestrator.settings.settings import Settings
from orchestrator.state.end_requests import EndRequest
from orchestrator.state.family import join
from orchestrator.state.lifecycle import check_transition
from orchestrator.state.registry import Registry
from orchestrator.state.requests import NewSession, Registered
from orchestrator.state.session import Session
from orchestrator.work.open import WorkFloor
from paddock.contract.words import IdleAction, Kind, Rationale, Status

log = logging.getLogger(__name__)


class Sessions:
    """Every session of this instance, with access control.

    Methods that change something continue if their caller is cancelled, so a client that
    disconnects leaves no incomplete session behind.
    """

    def __init__(
        self,
        settings: Settings,
        ground: GroundFloor,
        host: HostFloor,
        rules: RulesFloor,
        cluster: ClusterFloor,
        record: RecordFloor,
        sandbox: SandboxFloor,
        work: WorkFloor,
    ) -> None:
        database, node = ground.database, host.node
        recorder, stops = record.recorder, record.stops
        sandboxes, workspaces = sandbox.sandboxes, sandbox.workspaces
        self._sandboxes = sandboxes
        self._settings = settings
        self._engine = node.engine
        self._executions = work.executions
        self._budgets = record.budgets
        self._recorder = recorder
        self._stops = stops
        self._workspaces = workspaces
        self.registry = Registry(settings.terminated_ttl)
        self.places = SessionPlaces(
            *(settings.cluster or "", settings.node, cluster.places),
            lambda: cluster.membership.epoch,
        )
        self.finder = Finder(
            *(self.registry, database, workspaces.root_dir, self.places),
            lambda: self.moves.arrivals.sessions,
            rules.glass,
        )
        self.deadlines = Deadlines(self.expire)
        self.shares = Shares(settings, self.registry)
        # An idle session gives way to a new one, and to one that is used again.
        self.room = SandboxRoom(
            *(settings, node, sandboxes.pool, self.registry),
            lambda: self.suspensions.suspend_one(),
        )
        self.shipping = RecordShipping(database, record.ledger, self.registry, cluster.shipped)
        self.usage = SessionGrowth(database, cluster.cluster_usage)
        self.suspensions = Suspensions(
            *(database, recorder, stops, sandboxes),
            *(self.registry, self.room, self.shares, self.deadlines),
            *(work.executions, self.usage),
        )
        self.creation = Creation(
            *(settings, ground, rules, record, sandbox),
            *(self.registry, self.places, self.shares, self.room, self.shipping),
        )
        stopper = Stopper(node)
        self.gaps = Gaps(recorder, stops)
        self.spawn_ends = SpawnEnds(recorder, stops)
        self.ends = SessionEnds(
            *(ground, host, record, sandbox, stopper, self.gaps),
            *(self.registry, self.places, self.deadlines, self.spawn_ends, self.shipping),
        )
        self._pauses = Pauses(
            *(node.engine, recorder, stopper, stops),
            *(self.places, self.deadlines, work.cells),
            *(sandbox.sandboxes.vouching, settings.hello_timeout),
        )
        self.inspector = Inspector(node, database, workspaces)
        self._tasks = TaskScope("a change of a session")
        self.changes = SessionChanges(
            settings,
            rules.levels,
            sandbox.listed_images,
            recorder,
            self.registry,
            self.shares,
            workspaces,
            self.usage,
            self.places,
            LevelChange(database, recorder, stopper, stops, self.gaps, sandboxes, self.places),
            self._tasks,
            self.ends.end_child,
            self.deadlines,
            self.expire,
        )
        self.moves = SessionMoves(
            *(settings, ground, rules, record, sandbox, cluster.moves, self.registry, self.places),
            *(self.deadlines, self.suspensions, self.ends),
        )
        self._closing = False

    # Creating.

    async def awaited(self, principal: Principal, session_id: str) -> Session | None:
        """The caller's live session with that id, after its creation if that is under way.

        Raises: the error of that creation, if the host has failed.
        """
        creation = self.creation.running.find(principal, session_id)
        if creation is not None:
            await creation.wait()
        return self.finder.existing(principal, session_id)

    def begun(self, principal: Principal, session_id: str) -> bool:
        """Whether the caller's session with that id is live, or being created."""
        creation = self.creation.running.find(principal, session_id)
        return creation is not None or self.finder.existing(principal, session_id) is not None

    async def create(
        self, principal: Principal, request: NewSession, slot: Slot | None = None
    ) -> Registered:
        """A new session whose sandbox has said hello.

        `slot` is the caller's, from `shares`; None: waits for one here. Raises: the errors of
        `Creation.run`; nothing of the session is left then.
        """
        slot = slot or await self.shares.slot(principal)
        return await self._tasks.shield(self._create(principal, request, slot))

    async def _create(self, principal: Principal, request: NewSession, slot: Slot) -> Registered:
        registered = await self.creation.run(principal, request, slot)
        if request.child is not None:
            join(request.child.parent, registered.session)
        self.deadlines.watch(registered.session)
        return registered

    # Ending.

    async def close(self, principal: Principal, session: Session, *, purge: bool) -> None:
        """Ends the session (once) as completed, and its children.

        If it is ending already, waits until nothing of it is left. With `purge`, its workspace is
        removed, and those of the children that ended with it.
        """
        await self._tasks.shield(self._close(principal, session, purge))

    async def _close(self, principal: Principal, session: Session, purge: bool) -> None:
        children = list(session.family.descendants) if session.live else []
        if session.live:
            draft = EventDraft("session.close", principal.name, args={"purge": purge}, stop=True)
            draft = draft._replace(time=now())
            await self.ends.run(
                *(session, principal, Status.COMPLETED, Rationale.NORMAL),
                first=lambda: self._recorder.record(session, draft),
            )
        else:
            await _wait_for_end(session)
        check_not_moved(session)
        if purge:
            if not await self._stops.recorded(session):
                raise AuditUnavailableError(
                    "the session has ended, but that is not on record yet: purge it later"
                )
            for each in (*children, session):
                with suppress(NotFoundError):  # already purged, or never its own
                    await self._workspaces.purge(each.id, each.owner)

    async def purge(self, principal: Principal, session_id: str) -> None:
        """Removes an ended session's workspace. Raises: NotFoundError, ConflictError."""
        owner = None if principal.role is Role.ADMIN else principal.name
        await self._tasks.shield(self._workspaces.purge(session_id, owner))

    async def complete(self, principal: Principal, session: Session) -> None:
        """Ends the session as completed. Raises: InvalidTransitionError."""
        check_transition(session.status, Status.COMPLETED)
        await self._tasks.shield(
            self.ends.run(session, principal, Status.COMPLETED, Rationale.NORMAL)
        )
        check_not_moved(session)

    async def abort(self, principal: Principal, session: Session) -> None:
        """Ends the session as aborted. Raises: InvalidTransitionError."""
        check_transition(session.status, Status.ABORTED)
        await self._tasks.shield(
            self.ends.run(session, principal, Status.ABORTED, Rationale.NORMAL)
        )
        check_not_moved(session)

    async def expire(self, session: Session, first: Write | None = None) -> None:
        """Ends a session with a passed deadline, or suspends it; otherwise does nothing.

        `first` is recorded before an end. If it is already ending, waits for that. While the
        control plane shuts down, no end begins: the next start finds it.
        """
        if not self._closing:
            await self._tasks.shield(self._expire(session, first))

    async def _expire(self, session: Session, first: Write | None) -> None:
        session.check_settled()
        if not session.live:
            await _wait_for_end(session)
            return
        deadline = due(session, datetime.now(UTC))
        suspends = deadline is Deadline.IDLE and session.idle_action is IdleAction.SUSPEND
        if suspends and await self.suspensions.suspend(session, "idle"):
            return
        if deadline is Deadline.BUDGET:
            self._budgets.exceed(session, Kind.TIME, SYSTEM.name)
        if deadline is not None:
            await self.ends.expire(session, deadline, first)

    async def serve(self, request: EndRequest) -> None:
        """Ends a session because a lower part asks for it. Raises: the errors of its end."""
        if request.missed is None:
            await self.expire(request.session)
        else:
            await self.miss(request.session, request.missed, request.then)

    async def miss(self, session: Session, error: str, then: EventDraft | None) -> None:
        """Ends a session that misses something in its context pack; `then` is recorded after it."""
        run = self.ends.run(
            session, SYSTEM, Status.ABORTED, Rationale.CONTEXT_MISS, error=error, then=then
        )
        await self._tasks.shield(run)

    async def crashed(self, container: Container) -> None:
        """Ends the session whose container has ended by itself."""
        session = self.finder.by_container(container.id)
        if session is not None:
            await self._tasks.shield(self.ends.crashed(session, container))

    # Changing.

    async def pause(self, principal: Principal, session: Session) -> None:
        """Freezes the session's sandbox. Raises: InvalidTransitionError, EngineUnavailableError."""
        await self._tasks.shield(self._pauses.pause(principal, session))

    async def resume(self, principal: Principal, session: Session) -> None:
        """Thaws it; its agent answers when this returns."""
        await self._tasks.shield(self._pauses.resume(principal, session))

    async def interrupt(self, session: Session) -> None:
        """Ends every running command, also of children; the sessions continue."""
        below = [child for child in session.family.descendants if child.status is Status.ACTIVE]
        await asyncio.gather(*(self._interrupt(child) for child in below))
        await self._interrupt(session)

    async def _interrupt(self, session: Session) -> None:
        if session.suspension is not None and session.status is Status.ACTIVE:
            return  # nothing runs
        session.check_open()
        await self._executions.cancel_all(session, "interrupted")

    async def report_usage(
        self, principal: Principal, session: Session, tokens: int, microdollars: int
    ) -> None:
        """Counts what the host's own calls of models used.

        Raises: the errors of `Budgets.report`.
        """
        await self._tasks.shield(self._budgets.report(principal, session, tokens, microdollars))

    async def shut_down(self) -> None:
        """Finishes running work and releases the sandboxes, which keep running."""
        self._closing = True
        await self.deadlines.close()
        await self.moves.departures.close()
        await self.inspector.close()
        await self._tasks.drain()
        await self.suspensions.drain()
        sandboxes = [session.sandbox for session in self.registry.live if session.sandbox]
        for sandbox in sandboxes:
            await self._sandboxes.leave(sandbox)
        if not any(sandbox.network for sandbox in sandboxes):
            try:
                await self._engine.remove_open_network(self._settings.image)
            except PaddockError as error:
                log.warning("the open network stays until the next start: %s", error.detail)


async def _wait_for_end(session: Session) -> None:
    """Waits until nothing is left of a session that is ending or has ended."""
    async with session.lock:  # whoever ends it holds this until then
        pass
