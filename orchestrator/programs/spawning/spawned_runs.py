"""Children that are spawned for one run, and end with it."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.programs.spawning.spawning import Spawning
from orchestrator.programs.turns.inheritance import SpawnRequest
from orchestrator.programs.turns.runs.feed import RunFeed
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.programs.turns.turn import AgentRun, TurnRecord
from orchestrator.programs.turns.turn_runner import RunningTurn
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sessions.session_ends import SYSTEM
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.family import SpawnResult
from orchestrator.state.session import Session
from paddock.audit.chain import Event
from paddock.contract.words import Kind, Rationale, Status

# How long to wait for an event before asking whether there will be one.
_WAIT_SECONDS = 60.0


_FAILED = SpawnResult(is_error=True, error="the run has failed")


@dataclass(slots=True, eq=False)
class SpawnedRun:
    """A child and its run. What happens is added to `feed`, which may be another run's.

    `turn` is the run as it ended, with its operations; None if it could not be started.
    """

    child: Session
    feed: RunFeed
    call_id: str | None
    stopped: bool = False
    running: RunningTurn | None = None
    turn: TurnRecord | None = None
    operations: list[Event] = field(default_factory=list)
    result: SpawnResult = field(default=_FAILED)
    whole: "asyncio.Task[None]" = field(init=False)

    @property
    def spawn_id(self) -> str:
        """The id of the spawn."""
        origin = self.child.family.origin
        return "" if origin is None else origin.spawn_id

    def named(self) -> dict[str, Any]:
        """The members that its first and its last event have."""
        origin = self.child.family.origin
        return {
            "spawn_id": self.spawn_id,
            "child_session_id": self.child.id,
            "label": None if origin is None else origin.label,
            "call_id": self.call_id,
        }


class SpawnedRuns:
    """Runs in children. A run goes on if its client goes away, and ends with its parent."""

    _turns: SessionTurns

    def __init__(self, spawning: Spawning, sessions: Sessions) -> None:
        self._spawning = spawning
        self._sessions = sessions
        self._tasks = TaskScope("a run in a child")

    def run_in(self, turns: SessionTurns) -> None:
        """Sets where runs start. Call it before the first run, because turns spawn runs."""
        self._turns = turns

    async def begin(
        self,
        principal: Principal,
        parent: Session,
        wanted: SpawnRequest,
        run: AgentRun,
        feed: RunFeed | None = None,
        call_id: str | None = None,
    ) -> SpawnedRun:
        """Creates the child and begins its run. Raises: the errors of `Spawning.spawn`."""
        return await self._tasks.shield(
            self._begin(principal, parent, wanted, run, feed, call_id), self.stop
        )

    async def run(
        self,
        principal: Principal,
        parent: Session,
        wanted: SpawnRequest,
        run: AgentRun,
        feed: RunFeed | None,
        call_id: str | None,
    ) -> SpawnedRun:
        """Runs it to its end. If the caller is cancelled, so is the run, and then the child ends.

        Raises: the errors of `begin`.
        """
        beginning = self._tasks.begin(self._begin(principal, parent, wanted, run, feed, call_id))
        try:
            spawned = await asyncio.shield(beginning)
            await self.wait(spawned)
        except asyncio.CancelledError:
            await asyncio.wait([beginning])
            if beginning.exception() is None:
                self.stop(beginning.result())
                await asyncio.wait([beginning.result().whole])
            raise
        return spawned

    async def _begin(
        self,
        principal: Principal,
        parent: Session,
        wanted: SpawnRequest,
        run: AgentRun,
        feed: RunFeed | None,
        call_id: str | None,
    ) -> SpawnedRun:
        born = await self._spawning.spawn(principal, parent, wanted, runs=True, call_id=call_id)
        spawned = SpawnedRun(born.session, feed or RunFeed(), call_id)
        spawned.feed.add("spawn_start", **spawned.named())
        spawned.whole = self._tasks.spawn(self._run(spawned, run, ends=feed is None))
        return spawned

    async def wait(self, spawned: SpawnedRun) -> None:
        """Waits until the run and its child have ended."""
        await asyncio.shield(spawned.whole)

    def stop(self, spawned: SpawnedRun) -> None:
        """Interrupts the run; the child ends."""
        spawned.stopped = True
        self._turns.interrupt(spawned.child)

    async def _run(self, spawned: SpawnedRun, run: AgentRun, *, ends: bool) -> None:
        """Runs, and ends the child whatever happens. `ends`: the feed is this run's own."""
        child = spawned.child
        try:
            spawned.result = await self._ran(spawned, run)
        except PaddockError as error:
            spawned.result = SpawnResult(is_error=True, error=error.detail)
        finally:
            try:
                await self._end(child, spawned.result)
            finally:
                self._tell_end(spawned)
                if ends:
                    spawned.feed.end()

    async def _end(self, child: Session, result: SpawnResult) -> None:
        child.family.result = result
        status = Status.ABORTED if result.is_error else Status.COMPLETED
        await self._sessions.ends.run(child, SYSTEM, status, Rationale.NORMAL, error=result.error)

    def _tell_end(self, spawned: SpawnedRun) -> None:
        result = spawned.result
        spawned.feed.add(
            "spawn_end",
            **spawned.named(),
            text=result.text,
            is_error=result.is_error,
            error=result.error,
            tokens_used=spawned.child.budget.used(Kind.TOKENS),
        )

    async def _ran(self, spawned: SpawnedRun, run: AgentRun) -> SpawnResult:
        """How the run ended. Raises: the errors of `SessionTurns.start` and `wait`."""
        child = spawned.child
        started = await self._turns.start(_handle(child), child, run)
        if isinstance(started, TurnRecord):
            spawned.turn = started
            return _result(started)
        spawned.running = started
        if spawned.stopped:
            self._turns.interrupt(child)
        if started.conversation is not None:
            await _forward(started.conversation.feed, spawned)
        spawned.turn = await self._turns.wait(started)
        spawned.operations = list(started.log.events)
        return _result(spawned.turn)

    async def shut_down(self) -> None:
        """Waits for the children that are being created, and for the runs, which end."""
        await self._spawning.drain()
        await self._tasks.drain()


async def _forward(source: RunFeed, spawned: SpawnedRun) -> None:
    """Passes on every event of the child's run, with the ids of the spawns it came through."""
    async with aclosing(source.follow(_WAIT_SECONDS)) as events:
        async for each in events:
            if each is not None:
                _, event = each
                path = [spawned.spawn_id, *event.members.get("spawn_path", ())]
                spawned.feed.add(event.name, **{**event.members, "spawn_path": path})


def _handle(child: Session) -> Principal:
    """The principal for whom the model works: it has the rights of the child's handle."""
    return Principal(f"handle:{child.id}", Role.HANDLE, child.key, child.owner)


def _result(turn: TurnRecord) -> SpawnResult:
    outcome = turn.outcome or {}
    value, tag = outcome.get("value"), outcome.get("tag")
    text = value if isinstance(value, str) else None
    if tag in ("ok", "proposed"):
        return SpawnResult(text)
    reason = outcome.get("message") or outcome.get("description") or outcome.get("reason")
    return SpawnResult(text, is_error=True, error=f"{tag}: {reason}" if reason else str(tag))
