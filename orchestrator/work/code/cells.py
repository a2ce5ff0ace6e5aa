"""Cells: recorded, executed in their context's turn, stopped in time, recorded again."""

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Any, NamedTuple

from orchestrator.ground.errors import PaddockError, ValidationError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit import recorded_work
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from orchestrator.work.code.cell import Cell, CellEnd, CellStatus, Raised
from orchestrator.work.code.context import CodeContext, is_runner
from orchestrator.work.code.contexts import Contexts, Turn
from orchestrator.work.commands import running_command
from orchestrator.work.commands.execution import Executions
from paddock.contract.words import Status
from sandbox_agent.decide import code_frames, excerpts
from sandbox_agent.decide.code_frames import CodeFrameError

# How long a cell may take to end after an interrupt, and its program after it was killed.
_INTERRUPT_SECONDS = 5.0
_KILL_SECONDS = 20.0
_SIGINT = 2


class CodeRequest(NamedTuple):
    """A cell to execute; `timeout` is in seconds, None for the level's default.

    `recorded` is what the record has instead of code that holds secrets; None: the code.
    """

    code: str
    timeout: float | None = None
    recorded: str | None = None


class Cells:
    """Executes the cells of sessions' contexts."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        budgets: Budgets,
        executions: Executions,
        contexts: Contexts,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._budgets = budgets
        self._executions = executions
        self._contexts = contexts
        # By session key: programs of contexts that an earlier control plane had.
        self._left: dict[str, list[Command]] = {}
        self._tasks = TaskScope("a cell of code")

    async def begin(
        self, principal: Principal, session: Session, turn: Turn, request: CodeRequest
    ) -> Cell:
        """Begins a cell in its turn, which it keeps to its end.

        If the caller is cancelled meanwhile, the cell is interrupted. Raises: ValidationError for a
        time-out above the level's; BudgetExceededError; the errors of `Contexts.start` and
        `Recorder.record`: nothing was executed then.
        """
        seconds = _seconds(session, request.timeout)
        # From here on, the lock is this task's, even if the caller leaves its turn.
        turn.take()
        return await self._tasks.shield(
            self._begin(principal, session, turn.context, request, seconds),
            lambda cell: cell.stop(CellStatus.INTERRUPTED),
        )

    async def _begin(
        self,
        principal: Principal,
        session: Session,
        context: CodeContext,
        request: CodeRequest,
        seconds: float,
    ) -> Cell:
        try:
            again = context.command is not None and not context.alive
            await self._contexts.start(principal, session, context)
            command = context.command
            if command is None:
                raise ValueError("a context that was started has a program")
            cell = await self._recorded(principal, session, context, command, request, again)
        except BaseException:
            context.lock.release()
            raise
        context.cell, command.waits = cell, False
        self._tasks.spawn(self._run(session, context, command, cell, request.code, seconds))
        return cell

    async def _recorded(
        self,
        principal: Principal,
        session: Session,
        context: CodeContext,
        command: Command,
        request: CodeRequest,
        again: bool,
    ) -> Cell:
        """The cell, whose start is on record."""
        loop = asyncio.get_running_loop()
        cell = Cell(
            secrets.token_hex(8),
            context.name,
            context.language,
            command.id,
            again,
            loop.create_future(),
            loop.create_future(),
        )
        seconds = _seconds(session, request.timeout)
        shown = request.code if request.recorded is None else request.recorded
        args = {
            "cell": cell.id,
            "context": context.name,
            "language": context.language,
            "code": await self._recorder.cut(session, shown),
            "timeout_ms": int(seconds * 1000),
        }
        draft = EventDraft(
            "code.start",
            actor=principal.name,
            decision="allow",
            args=excerpts.excerpts(args),
            command_id=command.id,
        )
        counted = await self._budgets.admit(principal, session)
        try:
            await self._recorder.record(session, draft, effect=counted)
        except BaseException:
            self._budgets.withdraw(session)
            raise
        return cell

    async def _run(
        self,
        session: Session,
        context: CodeContext,
        command: Command,
        cell: Cell,
        code: str,
        seconds: float,
    ) -> None:
        """Executes the cell, records its end, and lets the next one have its turn."""
        began, lost = time.monotonic(), True
        try:
            lost = not await self._executed(session, context, command, cell, code, seconds)
        except asyncio.CancelledError:
            cell.abandon()
            raise
        finally:
            if context.command is command:
                context.cell, command.waits = None, True
                context.execution_count = cell.execution_count
                context.kernel = None if lost else context.kernel
            try:
                duration_ms = int((time.monotonic() - began) * 1000)
                if not cell.done.done():
                    await self._record_end(session, cell, lost, duration_ms)
            finally:
                context.lock.release()

    async def _executed(
        self,
        session: Session,
        context: CodeContext,
        command: Command,
        cell: Cell,
        code: str,
        seconds: float,
    ) -> bool:
        """Whether the context is ready for another cell."""
        reading = self._tasks.begin(self._read(session, context, cell))
        try:
            frame = code_frames.encode("run", code.encode(), cell.id)
            await running_command.feed(session, command, frame, close=False)
            ends: set[asyncio.Future[Any]] = {reading, cell.stopping}
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                cell.stop(CellStatus.TIMED_OUT)
                with suppress(PaddockError):
                    await running_command.signal(session, command, _SIGINT)
                await asyncio.wait({reading}, timeout=_INTERRUPT_SECONDS)
        except PaddockError as error:
            cell.error = cell.error or Raised("SandboxError", error.detail, "")
        if reading.done() and reading.exception() is None and reading.result():
            return True
        await self._executions.end(session, command, f"code_{_why(cell)}")
        await asyncio.wait({reading}, timeout=_KILL_SECONDS)
        reading.cancel()
        await asyncio.wait({reading})
        return False

    async def _read(self, session: Session, context: CodeContext, cell: Cell) -> bool:
        """Whether the cell's end came."""
        try:
            return await context.read(session, cell.take, lambda data: cell.print("stderr", data))
        except CodeFrameError as error:
            cell.error = Raised("RunnerError", f"what the program sent is no frame: {error}", "")
        except PaddockError as error:
            cell.error = cell.error or Raised("SandboxError", error.detail, "")
        return False

    async def _record_end(self, session: Session, cell: Cell, lost: bool, duration_ms: int) -> None:
        status = _status(cell, lost)
        result: dict[str, Any] = {
            "status": status.value,
            "execution_count": cell.execution_count,
            "printed_bytes": cell.printed_bytes,
            "values": cell.values,
            "value_bytes": cell.value_bytes,
            "cut_bytes": cell.cut_bytes,
            "lost": lost,
        }
        error = None if cell.error is None else f"{cell.error.name}: {cell.error.message}"
        seq, event_hash = 0, ""
        try:
            recorded = await self._recorder.record(
                session,
                EventDraft(
                    "code.exit",
                    actor="system",
                    args={"cell": cell.id, "context": cell.context},
                    result=result,
                    error=error,
                    command_id=cell.command_id,
                    duration_ms=duration_ms,
                    stop=True,
                ),
            )
            seq, event_hash = recorded.seq, recorded.hash
        finally:
            count = cell.execution_count
            cell.finish(CellEnd(status, count, duration_ms, lost, seq, event_hash))

    async def record_lost(self, session: Session) -> None:
        """Records the ends of cells that an earlier control plane executed."""
        for event in await recorded_work.unfinished_cells(self._database, session.key):
            args = event["args"]
            await self._recorder.record(
                session,
                EventDraft(
                    "code.exit",
                    actor="system",
                    args={"cell": args.get("cell"), "context": args.get("context")},
                    error="the end of the cell is lost: the control plane was restarted",
                    command_id=args.get("command_id"),
                    stop=True,
                ),
            )

    async def take_over(self, session: Session) -> None:
        """Ends the programs of contexts that an earlier control plane had; their names are lost.

        A paused or fenced session's cannot end before it goes on: `end_left` does it then.
        """
        left = [command for command in session.running if is_runner(command)]
        if not left:
            return
        for command in left:
            command.waits = True  # it keeps nobody from suspending the session
        self._left[session.key] = left
        session.over.add_done_callback(lambda _: self._left.pop(session.key, None))
        if session.status is Status.ACTIVE and not session.fenced:
            await self.end_left(session)

    async def end_left(self, session: Session) -> None:
        """Ends what `take_over` has found; the sandbox must not be paused."""
        for command in self._left.pop(session.key, ()):
            await self._executions.end(session, command, "control_plane_restart")

    async def close(self) -> None:
        """Ends what follows cells; the next start records the ends of those that are executed."""
        await self._tasks.close()


def _seconds(session: Session, timeout: float | None) -> float:
    most = session.level.timeout_max
    if timeout is not None and timeout > most:
        raise ValidationError(
            f"timeout must be at most {most} seconds at level {session.level.name}",
            field="timeout",
        )
    return session.level.timeout_default if timeout is None else timeout


def _why(cell: Cell) -> str:
    return cell.stopping.result().value if cell.stopping.done() else CellStatus.DIED.value


def _status(cell: Cell, lost: bool) -> CellStatus:
    """How it ended: an interrupt that a cell did not notice has not changed anything."""
    if cell.stopping.done() and (lost or cell.error is not None):
        return cell.stopping.result()
    if lost:
        return CellStatus.DIED
    return CellStatus.OK if cell.error is None else CellStatus.ERROR
