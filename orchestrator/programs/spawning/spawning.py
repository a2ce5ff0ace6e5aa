"""Spawns children: reserves their budget, records and creates them, records their ends."""

from orchestrator.ground.errors import ConflictError, PaddockError
from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.task_scope import TaskScope
from orchestrator.programs.turns.inheritance import SpawnRequest, check_parent, new_child
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import KeyRing, Principal
from orchestrator.rules.policy.levels import Levels
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.sessions import spawn_rows
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.family import OpenSpawn, SpawnResult
from orchestrator.state.requests import Child, NewSession, Registered
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import check_not_stored


class Spawning:
    """Gives sessions children. A child belongs to its parent's key, and counts for its limits."""

    def __init__(
        self,
        keys: KeyRing,
        levels: Levels,
        policies: SessionPolicies,
        recorder: Recorder,
        sessions: Sessions,
    ) -> None:
        self._keys = keys
        self._levels = levels
        self._policies = policies
        self._recorder = recorder
        self._sessions = sessions
        self._tasks = TaskScope("the creation of a child")

    async def spawn(
        self,
        principal: Principal,
        parent: Session,
        wanted: SpawnRequest,
        *,
        runs: bool = False,
        call_id: str | None = None,
    ) -> Registered:
        """A child of the session, which lives until it or its parent ends.

        The creation continues if its caller is cancelled. `runs`: it is spawned for one run;
        `call_id` is the tool's call that asks for it. Raises: the errors of `check_parent`,
        `new_child` and `Sessions.create`; nothing of it is left then.
        """
        return await self._tasks.shield(self._spawn(principal, parent, wanted, runs, call_id))

    async def _spawn(
        self,
        principal: Principal,
        parent: Session,
        wanted: SpawnRequest,
        runs: bool,
        call_id: str | None,
    ) -> Registered:
        check_parent(parent)
        self._recorder.check_room(parent)
        owner = self._owner(parent)
        request, child = new_child(parent, wanted, self._levels, self._policies, runs=runs)
        with parent.family.bearing():
            # Before anything else is awaited, so that what is left is given away only once.
            parent.budget.children.append(child.budget)
            try:
                await self._record(principal, request, child, call_id)
                FaultPoint.SPAWN_RECORDED.reached()
                born = await self._created(owner, request, child)
            except BaseException:
                parent.budget.settle(child.budget)
                raise
            FaultPoint.SPAWN_JOINED.reached()
            return born

    def _owner(self, parent: Session) -> Principal:
        """The key to which a child belongs. Raises: ConflictError if it is not valid any more."""
        owner = self._keys.named(parent.owner)
        if owner is None or self._keys.current(owner) is None:
            raise ConflictError("the key of the session is not valid any more: it can't spawn")
        return owner

    async def _created(self, owner: Principal, request: NewSession, child: Child) -> Registered:
        try:
            return await self._sessions.create(owner, request)
        except BaseException as error:
            reason = error.detail if isinstance(error, PaddockError) else "interrupted"
            result = SpawnResult(is_error=True, error=f"the child could not be created: {reason}")
            ends = self._sessions.spawn_ends
            ends.record(child.parent, child.origin.spawn_id, result)
            await ends.recorded(child.parent)
            raise

    async def _record(
        self, principal: Principal, request: NewSession, child: Child, call_id: str | None
    ) -> None:
        """Raises: ValidationError if the label has a secret in it; AuditUnavailableError."""
        parent, origin = child.parent, child.origin
        named = {"label": origin.label}
        check_not_stored(named, await self._recorder.cut(parent, named))
        spawn = OpenSpawn(origin, request.id or "")
        await self._recorder.record(
            parent,
            EventDraft(
                "session.spawn",
                actor=principal.name,
                decision="allow",
                args={
                    **named,
                    "workspace": origin.workspace,
                    "permission_level": child.level.name,
                    "call_id": call_id,
                },
                made=Made(
                    args={
                        "spawn_id": origin.spawn_id,
                        "child_session_id": spawn.child_id,
                        "depth": origin.depth,
                        "budget": {str(kind): limit for kind, limit in child.budget.limits.items()},
                    }
                ),
            ),
            effect=spawn_rows.opening(spawn),
        )
        parent.family.unended[origin.spawn_id] = spawn

    async def drain(self) -> None:
        """Waits for the children that are being created."""
        await self._tasks.drain()
