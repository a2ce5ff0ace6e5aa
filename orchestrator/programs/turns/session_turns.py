"""Turns of sessions: one at a time, recorded, and kept."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import together
from orchestrator.ground.task_scope import TaskScope
from orchestrator.programs.turns import turn_rows
from orchestrator.programs.turns.operation_log import OperationLog
from orchestrator.programs.turns.operations.context import Services
from orchestrator.programs.turns.operations.queries import OF_TURNS
from orchestrator.programs.turns.operations.registry import OPERATIONS
from orchestrator.programs.turns.outcome import Outcome, error, nonconverged, ok
from orchestrator.programs.turns.runs import timeline_rows
from orchestrator.programs.turns.runs.conversation import Conversation, saving
from orchestrator.programs.turns.runs.queue import RunQueue
from orchestrator.programs.turns.runs.timeline import TimelineEntry
from orchestrator.programs.turns.script import PreparedScript, described, describes_run, prepared
from orchestrator.programs.turns.turn import MOST_OPERATIONS, AgentRun, Script, TurnRecord
from orchestrator.programs.turns.turn_end import INTERRUPTED, shown, turn_end
from orchestrator.programs.turns.turn_runner import RunningTurn, TurnRunner
from orchestrator.record.audit import query
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.state import session_rows
from orchestrator.state.lifecycle import Suspension
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.models.messages import ModelMessage
from paddock.audit.chain import Event
from paddock.contract.turns import USUAL_TIMEOUT
from paddock.contract.words import Kind

# The end of a sandbox waits at most so long for the record of its turn.
_GONE_SECONDS = 10.0
_RESTARTED = "the control plane was restarted"


class SessionTurns:
    """Runs turns. A turn continues when its client goes away, and ends with its sandbox."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        budgets: Budgets,
        services: Services,
        lag: LoopLag,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._budgets = budgets
        self._runner = TurnRunner(services, recorder, lag)
        self._running: dict[str, RunningTurn] = {}
        # By sessions whose next turn is being started; set when it is started, or can't be.
        self._starting: dict[str, asyncio.Event] = {}
        self.queue = RunQueue(database, recorder)
        self._tasks = TaskScope("a turn")
        self._ends = TaskScope("the end of a session whose budget a turn has used up")

    async def start(
        self,
        principal: Principal,
        session: Session,
        script: Script,
        seconds: int = USUAL_TIMEOUT,
    ) -> RunningTurn | TurnRecord:
        """Records and starts a turn; if no budget is left for it, returns its outcome.

        A turn that is not run has no number, and is not kept. A turn is stopped after so many
        seconds; a run has its own limit. Raises: ConflictError if one is running;
        ValidationError for a malformed list of operations; the errors of `Session.check_open` and
        of `Recorder.check_room`; AuditUnavailableError.
        """
        if session.budget.exceeded is not None:
            return await self._refused(principal, session)
        session.check_open()
        self._recorder.check_room(session)
        if session.key in self._running or session.key in self._starting:
            raise ConflictError("a turn of this session is running: wait for it, or interrupt it")
        started = self._starting[session.key] = asyncio.Event()
        try:
            return await self._start(principal, session, script, seconds)
        finally:
            del self._starting[session.key]
            started.set()

    async def _start(
        self, principal: Principal, session: Session, script: Script, seconds: int
    ) -> RunningTurn | TurnRecord:
        before = await self._database.read(partial(turn_rows.before, session_key=session.key))
        number = before.number
        notes = await self._database.read(partial(turn_rows.notes_of, session_key=session.key))
        conversation = await self._conversation(session, number + 1, script)
        if conversation is not None and not conversation.entries:
            return self._unnumbered(principal, session, ok(""))
        program = prepared(script, notes, conversation)
        kind = session.budget.exhausted(datetime.now(UTC), OF_TURNS)
        if kind is not None:
            self._exceed(principal, session, kind)
            return await self._refused(principal, session)
        turn = TurnRecord(
            *(number + 1, now(), principal.name),
            permission_level=session.level.name,
            workspace_root=session.root_dir,
        )
        timeline, size = saving(conversation)
        session.budget.consume(Kind.ITERATIONS, 1)
        try:
            await self._recorder.record(
                session,
                EventDraft(
                    "turn.start",
                    actor=principal.name,
                    decision="allow",
                    args=described(script),
                    turn=turn.number,
                    time=turn.started_at,
                ),
                together(
                    turn_rows.starting(session.key, turn),
                    session_rows.with_budget(session),
                    timeline,
                ),
            )
        except BaseException:
            session.budget.give_back(Kind.ITERATIONS, 1)
            raise
        FaultPoint.TURN_RECORDED.reached()
        self._recorder.count(session, size)
        if isinstance(script, AgentRun):
            seconds = script.seconds
        log = OperationLog(earlier=before.operations)
        running = RunningTurn(principal, session, turn, notes, log, before, seconds, conversation)
        self._running[session.key] = running
        session.in_turn = True
        running.whole = self._tasks.spawn(self._run(running, program))
        return running

    async def _conversation(
        self, session: Session, number: int, script: Script
    ) -> Conversation | None:
        """The conversation of a run: the timeline with the new messages; None for other scripts."""
        if not isinstance(script, AgentRun):
            return None
        entries = await self._database.read(partial(timeline_rows.all_of, session_key=session.key))
        cut = partial(self._recorder.cut, session)
        queued = partial(self.queue.waiting, session.key)
        conversation = Conversation(script, session.key, number, entries, cut, queued)
        await conversation.take()
        for text in script.messages:
            await conversation.add(ModelMessage("user", text))
        return conversation

    async def _run(self, running: RunningTurn, program: PreparedScript) -> TurnRecord:
        session = running.session
        try:
            return await self._runner.run(running, program)
        finally:
            del self._running[session.key]
            session.in_turn = False
            if running.exceeded is not None:
                self._exceed(running.principal, session, running.exceeded)

    def _exceed(self, principal: Principal, session: Session, kind: Kind) -> None:
        """Ends the session, because its budget is used up."""
        self._budgets.exceed(session, kind, principal.name)
        self._ends.spawn(self._budgets.end(session))

    async def _refused(self, principal: Principal, session: Session) -> TurnRecord:
        """The turn for which no budget is left."""
        before = await self._database.read(partial(turn_rows.before, session_key=session.key))
        return self._unnumbered(principal, session, nonconverged(None, before.number, "budget"))

    def _unnumbered(self, principal: Principal, session: Session, outcome: Outcome) -> TurnRecord:
        """A turn that does not run, and is not kept."""
        remaining = session.budget.view(datetime.now(UTC)).remaining
        return TurnRecord(
            0,
            now(),
            principal.name,
            ended_at=now(),
            outcome=shown(outcome, {}),
            budget_remaining={str(kind): remaining[kind] for kind in OF_TURNS},
        )

    async def wait(self, running: RunningTurn) -> TurnRecord:
        """The turn as it ended, once that is on record. Raises: AuditUnavailableError."""
        return await asyncio.shield(running.whole)

    # Looking.

    def running_number(self, session: Session) -> int | None:
        """The number of the session's running turn; None: none is running."""
        running = self._running.get(session.key)
        return None if running is None else running.turn.number

    async def page(self, session_key: str, after: int, limit: int) -> tuple[list[TurnRecord], bool]:
        """A session's turns with higher numbers, in order, and whether there may be more.

        The last one may be running. There are fewer than `limit` if they are long.
        """
        return await self._database.browse(
            partial(turn_rows.page, session_key=session_key, after=after, limit=limit)
        )

    async def find(self, session_key: str, number: int) -> TurnRecord:
        """Raises: NotFoundError."""
        turn = await self._database.browse(
            partial(turn_rows.one, session_key=session_key, number=number)
        )
        if turn is None:
            raise NotFoundError(f"this session has no turn {number}")
        return turn

    def running(self, session_key: str) -> RunningTurn | None:
        """The session's turn that runs."""
        return self._running.get(session_key)

    async def started(self, session_key: str) -> None:
        """Waits until the session's next turn is started, if that has begun."""
        starting = self._starting.get(session_key)
        if starting is not None:
            await starting.wait()

    async def operations(self, session_key: str, number: int) -> list[Event]:
        """The operations of a turn so far, from the session's record."""
        running = self._running.get(session_key)
        if running is not None and running.turn.number == number:
            return list(running.log.events)
        found: list[Event] = []
        after: int | None = 0
        while after is not None and len(found) <= MOST_OPERATIONS:
            page = await query.page(
                self._database, session_key, after_seq=after, limit=500, turn=number
            )
            found += [event for event in page.items if event["operation"] in OPERATIONS]
            after = page.next
        return found

    async def timeline(
        self, session_key: str, after: int, limit: int
    ) -> tuple[list[TimelineEntry], bool]:
        """Entries of a session's timeline with higher numbers, and whether there may be more."""
        return await self._database.browse(
            partial(timeline_rows.page, session_key=session_key, after=after, limit=limit)
        )

    # Stopping.

    def interrupt(self, session: Session) -> None:
        """Ends the session's turn, if one runs."""
        running = self._running.get(session.key)
        if running is not None:
            running.stop("interrupted")

    async def on_gone(self, sandbox: Sandbox) -> None:
        """Ends the turn of a sandbox in which nothing runs any more.

        If a session in use is suspended, its own turn did that, and goes on.
        """
        running = self._running.get(sandbox.session_key)
        if running is not None and running.session.suspension is not Suspension.BEGINNING:
            running.stop("the sandbox has ended")
            await asyncio.wait([running.whole], timeout=_GONE_SECONDS)

    async def recover(self, sessions: Iterable[Session]) -> None:
        """Records that the turns of a killed control plane have ended."""
        by_key = {session.key: session for session in sessions}
        for session_key, turn in await self._database.read(turn_rows.unended):
            outcome = shown(error(_RESTARTED, INTERRUPTED), {})
            operations = await self.operations(session_key, turn.number)
            session = by_key.get(session_key)
            tokens = sum(event.get("tokens_used") or 0 for event in operations)
            if session is not None:
                read = partial(turn_rows.before, session_key=session_key)
                tokens = (await self._database.read(read)).tokens_since(session.budget)
            ended = replace(
                turn,
                ended_at=now(),
                outcome=outcome,
                tokens_used=tokens,
                operations=len(operations),
            )
            ending, _ = turn_rows.ending(session_key, ended, None)
            if session is None:
                await self._database.write(ending)
            else:
                # One turn runs at a time: the latest that began is this one.
                began = await query.latest_of(self._database, session_key, "turn.start")
                is_run = began is not None and describes_run(began["args"])
                draft = turn_end(ended, "system", None, is_run=is_run)
                await self._recorder.record(session, draft, ending)

    async def shut_down(self) -> None:
        """Ends the turns that run, and waits for their records."""
        for running in self._running.values():
            running.stop("the control plane stopped")
        await self._tasks.drain()
        await self._ends.drain()
