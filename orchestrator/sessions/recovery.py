"""Takes over what an earlier control plane left: its sessions, and what it could not remove."""

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

from orchestrator.ground.errors import BudgetExceededError, PaddockError, SessionTerminatedError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store.effect import together
from orchestrator.ground.threads import Threads
from orchestrator.host.engine.base import Container, ContainerState
from orchestrator.host.open import HostFloor
from orchestrator.record.audit import query, refusal_marks
from orchestrator.record.open import RecordFloor
from orchestrator.rules.policy.levels import clamped_limits
from orchestrator.sandbox.egress import connections
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sandbox.packs.firewall import READ, REFINEMENT_REQUEST
from orchestrator.sandbox.sandboxes.container_parts import end
from orchestrator.sandbox.sandboxes.parts import LABEL_LEVEL, LABEL_SANDBOX
from orchestrator.sessions.session_ends import SYSTEM
from orchestrator.sessions.sessions import Sessions
from orchestrator.sessions.spawn_recovery import SpawnRecovery
from orchestrator.settings.settings import Settings
from orchestrator.state import session_pages, session_rows, stored_sessions
from orchestrator.state.directory import SandboxDirectory, left_over
from orchestrator.state.moving import move_rows
from orchestrator.state.moving.move_rows import MoveRow
from orchestrator.state.session import Session
from orchestrator.state.stored_sessions import SessionRow
from orchestrator.work.open import WorkFloor
from orchestrator.work.proposals.proposals import Proposals
from paddock.contract.words import Rationale, Status

log = logging.getLogger(__name__)

# Unmounting waits for the disk: the time limit for a directory, and the directories at a time.
_RELEASE_SECONDS = 15.0
_MOST_RELEASES = 8


@dataclass(slots=True)
class Recovered:
    """What a start found and did."""

    sessions_recovered: int = 0
    sessions_lost: int = 0
    unfinished_creations: int = 0
    containers_removed: int = 0
    directories_removed: int = 0
    workspaces_purged: int = 0
    workspaces_unmounted: int = 0
    recovery_time_ms: int = 0


class Recovery:
    """Runs once, before the first request is served."""

    def __init__(
        self,
        settings: Settings,
        ground: GroundFloor,
        host: HostFloor,
        record: RecordFloor,
        sandbox: SandboxFloor,
        work: WorkFloor,
        sessions: Sessions,
        proposals: Proposals,
    ) -> None:
        self._settings = settings
        self._database = ground.database
        self._engine, self._node = host.engine, host.node
        self._recorder = record.recorder
        self._executions = work.executions
        self._cells = work.cells
        self._recorded_commands = work.recorded_commands
        self._sandboxes = sandbox.sandboxes
        self._workspaces = sandbox.workspaces
        self._volumes = sandbox.volumes
        self._named_snapshots = sandbox.named_snapshots
        self._sessions = sessions
        self._firewall = sandbox.firewall
        self._proposals = proposals
        self._scrub = ground.scrub
        self._found = Recovered()
        self._moves: dict[str, MoveRow] = {}

    async def run(self) -> Recovered:
        """Adopts, ends or forgets every stored session, then removes what belongs to none.

        Raises: EngineUnavailableError, AuditUnavailableError, StoreError.
        """
        started = time.monotonic()
        containers = {
            container.labels.get(LABEL_SANDBOX, container.id): container
            for container in await self._engine.list()
        }
        rows = await self._load(containers)
        self._moves = {row.session_key: row for row in await self._database.read(move_rows.stored)}
        FaultPoint.START_LISTED.reached()
        await self._record_lost_refusals(rows)
        known = {row.session.key: row.session for row in rows if row.acknowledged}
        families = SpawnRecovery(self._database, self._sessions)
        await families.join(known)
        await connections.record_lost(self._database, self._recorder, known)
        await asyncio.gather(
            *(self._take_up(row, containers.get(row.sandbox or "")) for row in rows)
        )
        await families.finish()
        await self._remove_strays(containers)
        # Its container belongs to no session.
        self._sandboxes.agents.begin()
        FaultPoint.START_SWEPT.reached()
        await self._volumes.recover()
        await self._named_snapshots.recover()
        self._found.workspaces_purged = await self._workspaces.finish_purges()
        self._found.workspaces_unmounted = await self._workspaces.unmount_strays()
        self._found.recovery_time_ms = int((time.monotonic() - started) * 1000)
        await self._recorder.record_system(
            EventDraft("recovery", actor="system", result=asdict(self._found))
        )
        FaultPoint.START_RECORDED.reached()
        return self._found

    async def _load(self, sandboxes: Iterable[str]) -> list[SessionRow]:
        after = self._sessions.registry.ended_after
        await self._database.write(session_pages.forgetting(after))
        rows = await self._database.read(
            lambda connection: stored_sessions.load(connection, after, sandboxes)
        )
        found = [SessionRow(row, self._workspaces.root_dir, clamped_limits) for row in rows]
        for each in found:
            self._sessions.places.name(each.session)
        return found

    async def _record_lost_refusals(self, rows: list[SessionRow]) -> None:
        """Records what a kill has lost: the final numbers of repeated refusals."""
        lost = await self._database.read(refusal_marks.left)
        sessions = {row.session.key: row.session for row in rows if row.acknowledged}
        for key, since in lost.items():
            if key not in sessions:
                await self._database.write(refusal_marks.clearing(key))
                continue
            await self._recorder.record(
                sessions[key],
                EventDraft(
                    "audit.gap",
                    actor="system",
                    args={"refusals_since": since},
                    error="the control plane ended before it recorded how often it had refused: "
                    f"refusals since {since}, like ones that are on record, may be missing",
                ),
                effect=refusal_marks.clearing(key),
            )

    async def _take_up(self, row: SessionRow, container: Container | None) -> None:
        session = row.session
        move = self._moves.get(session.key)
        if not row.acknowledged and move is not None:
            self._sessions.moves.arrivals.recover(session, move)
        elif not row.acknowledged:
            await self._forget(session)
        elif not session.live:
            self._recorded_commands.leave(session)
            self._sessions.registry.end(session)
            if container is not None:  # killed after its end was recorded
                await self._recorded_commands.recall(session)
                await self._close_gaps(session)
            await self._complete_miss(session)
            await self._sandboxes.unstage(session)
        else:
            await self._recorded_commands.take_up(session)
            if move is not None:
                self._sessions.moves.departures.recover(session, move)
            self._sessions.registry.add(session)
            await self._cells.record_lost(session)
            await self._proposals.recover(session)
            if row.suspension is not None:
                await self._sessions.suspensions.recover(session, row.suspension)
                await self._complete_miss(session)
                self._found.sessions_recovered += 1
            elif row.sandbox is None:
                await self._leave_closed(session)
            else:
                await self._adopt(session, container)
            await self._complete_miss(session)
            # A deadline that passed meanwhile ends it before it can be used.
            await self._sessions.expire(session)
            if session.live:
                self._sessions.deadlines.watch(session)
        FaultPoint.START_TAKEN_UP.reached()

    async def _forget(self, session: Session) -> None:
        """Forgets a session that no client knows; its id is free again."""
        self._found.unfinished_creations += 1
        await self._recorder.record(
            session,
            EventDraft(
                "session.terminated",
                actor="system",
                args={"acknowledged": False},
                error="the control plane ended while the session was being created",
            ),
            effect=self._workspaces.forgetting(session),
        )
        self._scrub()

    async def _adopt(self, session: Session, container: Container | None) -> None:
        alive = container is not None and container.state is not ContainerState.EXITED
        if container is None or not alive:
            await self._lost(session, "the sandbox ended while the control plane was down")
            return
        if container.labels.get(LABEL_LEVEL) != session.level.name:
            # An earlier version recorded a lower level and kept the sandbox in the same row: the
            # sandbox has the rights of the old level.
            gone = session_rows.updating(session, sandbox=None, container_id=None)
            await self._database.write(gone)
            await self._remove(container)
            await self._leave_closed(session)
            return
        try:
            # An end that its agent's reports lead to begins afterwards, and removes the sandbox.
            async with session.lock:
                session.sandbox = await self._sandboxes.adopt(session, container)
        except (PaddockError, OSError) as error:
            await self._lost(session, f"the sandbox could not be taken up: {error}")
            return
        self._found.sessions_recovered += 1
        await self._follow_engine(session, container)
        if session.status is Status.ACTIVE and not session.fenced:
            # What its agent reports may end it meanwhile, and its commands with it.
            with suppress(SessionTerminatedError, BudgetExceededError):
                await self._executions.reconcile(session)
        await self._cells.take_over(session)

    async def _complete_miss(self, session: Session) -> None:
        """Carries out what a recorded miss of its context pack leads to."""
        if session.pack is None:
            return
        database, key = self._database, session.key
        denied = await query.events(database, key, operation=READ, decision="deny", limit=1)
        requests = await query.events(database, key, operation=REFINEMENT_REQUEST, limit=1)
        await self._firewall.recover(session, denied, requested=bool(requests))

    async def _leave_closed(self, session: Session) -> None:
        """Leaves it closed after an interrupted level change; unrecorded work is lost."""
        session.gate = "a level change was interrupted: set the permission level again"
        await self._sessions.gaps.close(session, [])

    async def _follow_engine(self, session: Session, container: Container) -> None:
        """The engine decides whether the sandbox is paused."""
        paused = container.state is ContainerState.PAUSED
        status = Status.PAUSED if paused else Status.ACTIVE
        if session.status is not status and not session.fenced:
            await self._recorder.record(
                session,
                EventDraft("session.pause" if paused else "session.resume", actor="system"),
                effect=together(
                    session_rows.updating(session, status=status),
                    self._sessions.places.changed(session, status=status),
                ),
            )
            session.status = status

    async def _close_gaps(self, session: Session) -> None:
        """Records what was lost with a sandbox that hands over nothing any more."""
        # Their ends are unknown, as those of commands are.
        terminals = await self._database.read(
            lambda connection: stored_sessions.open_terminals(connection, session.key)
        )
        await self._sessions.gaps.close(session, sorted(terminals))

    async def _lost(self, session: Session, error: str) -> None:
        # Recorded before its end, after which nobody would look for gaps.
        await self._close_gaps(session)
        if session.budget.exceeded is not None:
            return  # it was ending, which continues
        self._found.sessions_lost += 1
        await self._sessions.ends.run(session, SYSTEM, Status.ABORTED, Rationale.CRASH, error=error)

    async def _remove_strays(self, containers: dict[str, Container]) -> None:
        """Removes containers, sandbox directories and the network that no session uses."""
        in_use = {
            session.sandbox.name
            for session in self._sessions.registry.live
            if session.sandbox is not None
        }
        left = [each for each in left_over(self._settings.state_dir) if each.name not in in_use]
        threads = Threads("directories that are left over", _MOST_RELEASES)
        # A process that waits in a write to a frozen layer can't be ended.
        await asyncio.gather(*(self._thaw(directory, threads) for directory in left))
        for name, container in containers.items():
            if name not in in_use:
                await self._remove(container)
                self._found.containers_removed += 1
        await asyncio.gather(*(self._release(directory, threads) for directory in left))
        sandboxes = (session.sandbox for session in self._sessions.registry.live)
        if not any(sandbox is not None and sandbox.network for sandbox in sandboxes):
            await self._engine.remove_open_network(self._settings.image)
        await self._sandboxes.agents.remove_unused()

    async def _remove(self, container: Container) -> None:
        """Removes a container, which an interrupted end may have frozen."""
        await end(self._node, container.id, None)
        await self._engine.remove(container.id)

    async def _thaw(self, directory: SandboxDirectory, threads: Threads) -> None:
        try:
            await threads.call(directory.thaw_layer, _RELEASE_SECONDS)
        except OSError as error:  # includes time-outs
            log.error("%s may be frozen: %s", directory.path, error)

    async def _release(self, directory: SandboxDirectory, threads: Threads) -> None:
        """A mount that hangs affects only its own directory, which the next start finds again."""
        try:
            await threads.call(directory.release, _RELEASE_SECONDS)
            self._found.directories_removed += 1
        except (PaddockError, OSError) as error:  # includes time-outs
            reason = str(error) or "the disk does not answer"
            log.error("%s is left over and can't be removed: %s", directory.path, reason)
