"""Records the end of each spawn in its parent, once."""

from orchestrator.ground.events import EventDraft, Made, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.sessions import spawn_rows
from orchestrator.state.family import SpawnResult
from orchestrator.state.session import Session
from paddock.contract.words import Kind, Status


class SpawnEnds:
    """Records ends of spawns: the first caller records an end, which removes the spawn's row."""

    def __init__(self, recorder: Recorder, stops: StopRecords) -> None:
        self._recorder = recorder
        self._stops = stops

    def record(
        self, parent: Session, spawn_id: str, result: SpawnResult, tokens: int | None = None
    ) -> None:
        """Records the end with the parent's other stops, unless that is done or under way."""
        spawn = parent.family.unended.pop(spawn_id, None)
        if spawn is None:
            return
        at, origin = now(), spawn.origin
        draft = EventDraft(
            "session.spawn_end",
            actor="system",
            args={"label": origin.label},
            result={"is_error": result.is_error},
            made=Made(args={"spawn_id": spawn_id, "child_session_id": spawn.child_id}),
            error=result.error,
            tokens_used=tokens,
            time=at,
            stop=True,
        )

        async def write() -> None:
            FaultPoint.SPAWN_ENDING.reached()
            await self._recorder.record(parent, draft, spawn_rows.closing(spawn_id))

        self._stops.add(parent, write)

    async def recorded(self, parent: Session) -> bool:
        """Whether the parent's stops are on record; waits a short time for that."""
        return await self._stops.recorded(parent)

    def of_child(self, parent: Session, child: Session, status: Status, error: str | None) -> None:
        """Records in the parent, if it lives, that the child has ended with that status."""
        origin = child.family.origin
        if origin is None or not parent.live:
            return
        failed = status is not Status.COMPLETED
        reason = (error or f"the child has ended ({status})") if failed else None
        result = child.family.result or SpawnResult(is_error=failed, error=reason)
        self.record(parent, origin.spawn_id, result, child.budget.used(Kind.TOKENS))

    def of_children(self, parent: Session) -> None:
        """Records the ends of all spawns of a session that is ending."""
        tokens = {
            child.family.origin.spawn_id: child.budget.used(Kind.TOKENS)
            for child in parent.family.children.values()
            if child.family.origin is not None
        }
        for spawn_id in list(parent.family.unended):
            result = SpawnResult(is_error=True, error="the parent has ended")
            self.record(parent, spawn_id, result, tokens.get(spawn_id))
