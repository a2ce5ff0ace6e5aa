"""Drives a program: does what it asks for, within the session's policy and budget."""

import asyncio
import math
import time
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from orchestrator.ground.errors import BudgetExceededError, PaddockError
from orchestrator.ground.events import NOTHING_MADE, EventDraft, Made
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.loop_slots import LoopSlots
from orchestrator.ground.store.effect import together
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.patched import patched_refs
from orchestrator.programs.turns.operations.registry import OPERATIONS
from orchestrator.programs.turns.operations.ticks import TICK
from orchestrator.programs.turns.operations.turn_operation import Done, Needed, TurnOperation
from orchestrator.programs.turns.outcome import Value, plain
from orchestrator.programs.turns.programs import (
    Breath,
    Enter,
    Leave,
    NewMessage,
    Operation,
    OperationFailed,
    PolicyViolation,
    Program,
    ScopeExceeded,
    SpawnAll,
    TakeQueued,
    Tick,
)
from orchestrator.programs.turns.runs.conversation import saving
from orchestrator.programs.turns.scopes import KINDS
from orchestrator.programs.turns.turn import MOST_OPERATIONS
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.policy.policy_remedies import remedy_of
from orchestrator.rules.policy.session_policy import EXECUTIONS, PolicyRefusalError
from orchestrator.state import session_rows
from paddock.contract.words import Kind

# What can be used up in the middle of a turn: it uses tokens and cost, and time passes.
_CHECKED = (Kind.TIME, Kind.TOKENS, Kind.COST)
_MOST_DEPTH = 12
# A larger integer is a text in the record.
_LARGE = 2**63


class SessionExceeded(Exception):  # noqa: N818
    """The session's budget of that kind is used up: the turn ends."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind


class ProgramDriver:
    """Drives the program of one turn; the context has what it has staged and done."""

    def __init__(
        self, context: OperationContext, recorder: Recorder, loop_slots: LoopSlots
    ) -> None:
        self.context = context
        self._recorder = recorder
        self._loop_slots = loop_slots

    async def run(self, program: Program) -> Value:
        """The program's value.

        Raises: PolicyViolation, Needed, SessionExceeded; LispError and OperationFailed if it fails;
        AuditUnavailableError and the other errors of `Recorder.record`.
        """
        answer: Value = None
        thrown: Exception | None = None
        try:
            while True:
                try:
                    request = program.send(answer) if thrown is None else program.throw(thrown)
                except StopIteration as end:
                    value: Value = end.value
                    return value
                answer, thrown = None, None
                try:
                    answer = await self._answer(request)
                except (OperationFailed, PolicyViolation, ScopeExceeded) as error:
                    thrown = error
        finally:
            program.close()

    async def _answer(self, request: object) -> Value:
        """Raises: errors that are thrown into the program, besides the errors of `run`."""
        match request:
            case Operation(name, args):
                return await self._operate(name, args)
            case SpawnAll():
                return await self._spawn_all(request)
            case Enter():
                await self._enter(request)
            case Leave():
                self.context.notes.forget_after(self.context.scopes.leave())
            case Tick(number):
                return await self._perform(TICK, {"tick": number})
            case NewMessage(message) if self.context.conversation is not None:
                await self.context.conversation.add(message)
            case TakeQueued() if self.context.conversation is not None:
                return await self.context.conversation.take_last()
            case Breath():
                await self._loop_slots.next(self.context.session.key)
                self._check_budgets(("time",))
        return None

    def _check_budgets(self, kinds: Container[str] = KINDS) -> None:
        """Checks budgets before something is used; an operation that uses one up completes.

        Raises: SessionExceeded, ScopeExceeded.
        """
        session, scopes = self.context.session, self.context.scopes
        if session.budget.exceeded is not None:
            raise SessionExceeded(session.budget.exceeded.kind)
        kind = session.budget.exhausted(datetime.now(UTC), _CHECKED)
        if kind is not None:
            raise SessionExceeded(kind)
        if (exceeded := scopes.exceeded(kinds)) is not None:
            self._exceed_scope(exceeded)

    def _exceed_scope(self, exceeded: tuple[int, str]) -> NoReturn:
        self.context.notes.forget_after(self.context.scopes.unwind(exceeded[0]))
        raise ScopeExceeded(*exceeded)

    async def _enter(self, request: Enter) -> None:
        """Opens a scope. A nested program needs permission, and is recorded; a budget is not."""
        program = facts = None
        if request.kind == "subeval":
            operation = OPERATIONS[request.kind]
            await self._perform(operation, {"options": request.args})
            program = int(self.context.log.events[-1]["seq"])
            facts = len(self.context.notes.facts)
        self.context.scopes.enter(request, program, facts)

    async def _operate(self, name: str, args: tuple[Value, ...]) -> Value:
        operation = OPERATIONS[name]
        bound = operation.bind(args)
        if operation.query:
            return (await operation.perform(self.context, **bound)).value
        return await self._perform(operation, bound)

    async def _spawn_all(self, request: SpawnAll) -> Value:
        """Waits for all, even if one fails. Raises: the errors of `run` that end the turn."""
        spawning = (
            self._spawn(operation, call, len(request.operations))
            for operation, call in zip(request.operations, request.calls, strict=True)
        )
        found: list[Value] = []
        for each in await asyncio.gather(*spawning, return_exceptions=True):
            if isinstance(each, BaseException):
                raise each
            found.append(each)
        return tuple(found)

    async def _spawn(self, asked: Operation, call: str, among: int) -> Value:
        operation = OPERATIONS[asked.name]
        try:
            bound = operation.bind(asked.args)
            value = await self._perform(operation, {**bound, "call": call, "among": among})
        except (OperationFailed, PolicyViolation) as error:
            return None, str(error), error.rule
        return value, None, None

    async def _perform(self, operation: TurnOperation, args: Mapping[str, Value]) -> Value:
        """Does one operation, and records it whether it was done, refused, or failed."""
        log = self.context.log
        self._check_budgets()
        if len(log.events) >= MOST_OPERATIONS:
            raise OperationFailed(f"a turn has at most {MOST_OPERATIONS} operations")
        began, tokens = time.monotonic(), log.tokens
        draft = EventDraft(
            operation.name,
            actor=self.context.principal.name,
            args={name: recordable(value) for name, value in args.items()},
            made=self._place(),
            turn=self.context.number,
        )
        try:
            self._check(operation.permitted_as, args)
        except PolicyRefusalError as error:
            refused_by = str(error.fields["rule"])
            denied = draft._replace(decision="deny", rule=refused_by, error=error.detail)
            await self._record(denied, began, tokens)
            remedy = remedy_of(self.context.scopes.policy, refused_by, operation.permitted_as)
            raise PolicyViolation(error.detail, refused_by, remedy) from None
        draft = draft._replace(decision="allow")
        try:
            done = await self._timed(operation, args)
        except asyncio.CancelledError:
            # It is recorded even while the session ends.
            await self._record(draft._replace(error="interrupted", stop=True), began, tokens)
            raise
        except (OperationFailed, Needed, ScopeExceeded, PaddockError) as error:
            message = error.detail if isinstance(error, PaddockError) else str(error)
            await self._record(draft._replace(error=message), began, tokens)
            if isinstance(error, BudgetExceededError):
                raise SessionExceeded(Kind(error.fields["kind"])) from None
            if isinstance(error, PaddockError):
                rule = error.fields.get("rule")
                raise OperationFailed(f"{operation.name}: {error.detail}", rule) from None
            raise
        await self._record(draft._replace(result=dict(done.recorded)), began, tokens)
        if self.context.session.policy.world_rules.proposal_mode:
            time_of = log.events[-1]["time"]
            self.context.staged.extend((staged, time_of) for staged in done.staged)
        return done.value

    def _place(self) -> Made:
        """The nested program in which the operation is."""
        program = self.context.scopes.program
        return NOTHING_MADE if program is None else Made(args={"within": program})

    async def _timed(self, operation: TurnOperation, args: Mapping[str, Value]) -> Done:
        """Raises: ScopeExceeded if the time of a nested scope passes meanwhile."""
        left = self.context.scopes.left("time")
        try:
            async with (
                asyncio.timeout(None if left is None else left / 1_000_000) as limit,
                # After a rollback, it has no sandbox.
                self.context.services.using(self.context.principal, self.context.session),
            ):
                return await operation.perform(self.context, **args)
        except TimeoutError:
            exceeded = self.context.scopes.exceeded(("time",))
            if not limit.expired() or exceeded is None:
                raise OperationFailed(f"{operation.name}: it took too long") from None
            self._exceed_scope(exceeded)

    def _check(self, name: str, args: Mapping[str, Value]) -> None:
        """Raises: PolicyRefusalError."""
        if name == "world.patch":
            self.context.scopes.policy.check_patch(*patched_refs(str(args["patch"])))
            return
        ref, tokens = args.get("ref"), args.get("max_tokens")
        if name in ("world.list", "world.search"):
            ref = args.get("ref", ".")
        self.context.scopes.policy.check(
            name,
            ref=ref if isinstance(ref, str) else None,
            max_tokens=tokens if isinstance(tokens, int) else None,
            network=name in EXECUTIONS and self.context.session.level.network != "none",
        )

    async def _record(self, draft: EventDraft, began: float, tokens: int) -> None:
        """Records an operation with its time and tokens; budget and timeline are stored with it."""
        session, used = self.context.session, self.context.log.tokens - tokens
        conversation = self.context.conversation
        if used:
            draft = draft._replace(tokens_used=used)
        took = round((time.monotonic() - began) * 1000)
        timeline, size = saving(conversation)
        recorded = await self._recorder.record(
            session,
            draft._replace(duration_ms=took),
            together(session_rows.with_budget(session) if used else None, timeline),
        )
        FaultPoint.TURN_OPERATED.reached()
        self._recorder.count(session, size)
        self.context.log.add(recorded.event)


def recordable(value: Value) -> Any:
    """A value as a record has it: in JSON's types, fractions as texts, of limited depth."""
    return _whole(plain(value), _MOST_DEPTH)


def _whole(value: Any, depth: int) -> Any:
    if type(value) is int and -_LARGE < value < _LARGE:
        return value
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGE:
        return str(value)
    if isinstance(value, list | dict) and not depth:
        return "…"
    if isinstance(value, list):
        return [each if type(each) is str else _whole(each, depth - 1) for each in value]
    if isinstance(value, dict):
        return {name: _whole(each, depth - 1) for name, each in value.items()}
    return value
