"""Commands of a session: decided, recorded, run, recorded again, answered."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from orchestrator.ground.errors import (
    BudgetExceededError,
    ConflictError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
    naming,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Aside
from orchestrator.ground.traces.spans import part
from orchestrator.host.link.held_command import HeldCommand
from orchestrator.host.link.messages import AgentEvent, Hello
from orchestrator.host.workspace.paths import inside_path
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.settings.operator_mounts import MountList
from orchestrator.state.command import Command, CommandExit, exit_of
from orchestrator.state.requests import ExecRequest
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.work.commands.command_rules import (
    CommandRules,
    described,
    milliseconds,
    timeout_of,
)
from orchestrator.work.commands.command_spans import begun, variable
from orchestrator.work.commands.lost_commands import LostCommands
from orchestrator.work.commands.running_command import encoded
from paddock.contract.words import Kind
from sandbox_agent.decide import excerpts
from sandbox_agent.decide.protocol import BUDGET_REASON

# Why commands and terminals are ended when nothing more may be recorded.
NO_ROOM_REASON = "no_room"
# The agent ends a command at its time-out, and has this much longer to report it.
_GRACE_SECONDS = 20.0
_START_SECONDS = 15.0


class Executions:
    """Runs commands in sandboxes."""

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        budgets: Budgets,
        variables: Callable[[Session], Mapping[str, str]],
        listed_mounts: MountList,
        aside: Aside,
    ) -> None:
        """`variables` are the operator's for the session's commands."""
        self._recorder = recorder
        self._metrics = metrics
        self._budgets = budgets
        self._lost = LostCommands(recorder)
        self._rules = CommandRules(recorder, variables, listed_mounts, aside)
        self._tasks = TaskScope("what follows of a command")

    async def start(self, principal: Principal, session: Session, request: ExecRequest) -> Command:
        """Decides, records and starts a command.

        Raises: PermissionDeniedError with the rule, ValidationError, BusyError and the errors of
        `Session.check_open`; EarlierAgentError; BudgetExceededError if the budget is used up, which
        ends the session;
        RateLimitedError, CapacityExhaustedError if there is no room to record it;
        SandboxUnavailableError if the agent does not answer; AuditUnavailableError if nothing can
        be recorded, in which case nothing was run. Once its start is on record, errors have its
        `command_id`.
        """
        received = time.perf_counter()
        session.check_open()
        session.secrets.check()
        self._recorder.check_room(session)
        # Before the decision, so that refusals, too, are recorded without the secrets.
        given = session.secrets.give(request.secrets)
        timeout = timeout_of(session, request)
        command_id = secrets.token_hex(8) if request.kept is None else request.kept.command_id
        argv, cwd = await self._rules.decide(principal, session, request, command_id)
        # Before anything of it is shortened for the record, which could leave half of a secret.
        texts = [argv, cwd, request.output_file]
        words, place, output_file = await self._recorder.cut(session, texts)
        recorded = replace(request, output_file=output_file)
        sandbox = session.check_open()
        session.check_room()
        # The command's output is evidence, which waits for it, whatever else ends meanwhile.
        captured = request.kept is not None and request.kept.printed
        collect = request.collect and not captured
        command = Command(
            command_id,
            words,
            request.background,
            "",
            asyncio.get_running_loop().create_future(),
            captured=captured,
            collects=collect,
            span=begun(session, command_id),
        )
        members = {
            "command_id": command_id,
            "argv": argv,
            "cwd": cwd,
            "env": variable(session, command.span) | self._rules.environment(session, request),
            "secrets": given,
            "stdin": None if request.stdin is None else encoded(request.stdin),
            "stdin_open": request.stdin_open,
            "timeout_ms": None if timeout is None else milliseconds(timeout),
            "background": request.background,
            "collect": collect,
            "unread": captured,
            "merge": request.merge,
            "output_file": None
            if request.output_file is None
            else inside_path(request.output_file, session.workspace_path),
        }
        params = sandbox.link.said("exec", members)
        counted = await self._budgets.admit(principal, session)
        draft = EventDraft(
            "command.start",
            actor=principal.name,
            decision="allow",
            args=excerpts.excerpts(described(command_id, words, place, recorded, timeout)),
            command_id=command_id,
        )
        session.commands[command.id] = command
        # The agent makes it ready while its start is recorded, and runs it only after that.
        with sandbox.link.hold(params) as held:
            command.started_at = await self._record_start(session, command, draft, counted)
            FaultPoint.EXEC_RECORDED.reached()
            with naming(command_id=command_id), part("agent"):
                await self._dispatch(session, sandbox, command, held)
        self._metrics.command_started(session.level.name, time.perf_counter() - received)
        return command

    async def _record_start(
        self, session: Session, command: Command, draft: EventDraft, counted: Effect | None
    ) -> str:
        """Records the start; if that fails, there is no such command."""
        try:
            return (await self._recorder.record(session, draft, effect=counted)).time
        except BaseException:
            del session.commands[command.id]
            self._budgets.withdraw(session)
            raise

    async def check(self, principal: Principal, session: Session, request: ExecRequest) -> None:
        """Raises and records what `start` does for a request that the level's rules refuse."""
        session.check_open()
        await self._rules.decide(principal, session, request, secrets.token_hex(8))

    async def _dispatch(
        self, session: Session, sandbox: Sandbox, command: Command, held: HeldCommand
    ) -> None:
        try:
            if session.check_open() is not sandbox:
                raise SandboxUnavailableError("the session's sandbox was replaced: try again")
            if sandbox.freezing is not None or command.ending:
                # A stop of it has begun, and is recorded after this command's start.
                raise ConflictError("the command was stopped before it ran")
            held.check()
            command.dispatched = True
            await held.go(_START_SECONDS)
            FaultPoint.EXEC_DISPATCHED.reached()
        except SandboxUnavailableError as error:
            held.drop()  # before anything is recorded
            if not command.dispatched:
                await self._lost.record(session, command, error)
                raise
            # The agent's next hello says whether it runs. Nobody waits for its output.
            command.collects = False
            detail = f"{error.detail}: command {command.id} may be running, ask for it"
            raise SandboxUnavailableError(detail) from None
        except BudgetExceededError as error:
            await self._lost.record(session, command, error)
            await sandbox.link.settled()  # the agent reported it before it refused
            raise await self._budgets.refusal(session) from None
        except PaddockError as error:
            held.drop()
            await self._lost.record(session, command, error)
            raise

    # Called for the agent's messages.

    def on_exit(self, session: Session, event: AgentEvent, recorded: Recorded) -> None:
        """Ends a command whose exit is recorded."""
        command = session.commands.get(event.command_id or "")
        if command is not None:
            end = recorded.event
            rule = end["rule"] if end["decision"] == "deny" else None
            if event.duration_ms is not None and not command.ended:
                self._metrics.command_ended(session.level.name, event.duration_ms / 1000)
            if command.collects and not command.ended:
                command.output = event.output
            command.finish(
                exit_of(
                    *(end["result"], end["error"], rule, end["duration_ms"]),
                    *(recorded.seq, recorded.hash, recorded.time),
                )
            )

    def on_full(self, session: Session) -> None:
        """Handles a session whose record is full, or whose key or disk has no room."""
        if session.budget.left(Kind.AUDIT_BYTES) == 0:
            self._tasks.spawn(self._budgets.fill(session))
        elif not all(command.ending for command in session.running):
            self._tasks.spawn(self.cancel_all(session, NO_ROOM_REASON))

    def on_hello(self, session: Session, hello: Hello) -> None:
        """Handles a connected agent.

        After a reconnect, commands that it does not know never started.
        """
        self._budgets.learn(session, hello.totals)
        if session.sandbox is not None:
            self._metrics.agent_reconnected()
        suspects = [command for command in session.running if command.dispatched]
        if suspects and session.sandbox is not None:
            self._tasks.spawn(self._lost.reconcile(session, session.sandbox, suspects))

    async def reconcile(self, session: Session) -> None:
        """Ends commands that, according to the agent, neither run nor ended."""
        if session.sandbox is not None and session.running:
            await self._lost.reconcile(session, session.sandbox, session.running)

    # Waiting, ending.

    async def wait(self, session: Session, command: Command) -> CommandExit:
        """The command's end, once it has ended and its end is recorded.

        Raises: PermissionDeniedError if the sandbox refused it after all; BudgetExceededError if
        the session's budget ended it and the session is gone; SandboxUnavailableError if its end
        does not arrive. Each has the `command_id`.
        """
        with naming(command_id=command.id):
            return await self._wait(session, command)

    async def _wait(self, session: Session, command: Command) -> CommandExit:
        limit = None if command.background else session.level.timeout_max + _GRACE_SECONDS
        try:
            async with asyncio.timeout(limit):
                await command.wait()
        except TimeoutError:
            detail = f"the end of command {command.id} is not known yet: request it again"
            raise SandboxUnavailableError(detail) from None
        if command.keeping is not None:  # its evidence, for which there is a time limit
            await asyncio.wait([command.keeping])
        FaultPoint.EXEC_ENDED.reached()
        result = command.result or CommandExit()
        if result.rule is not None:
            raise PermissionDeniedError(str(result.error), rule=result.rule)
        stopped = result.reason == BUDGET_REASON or result.exit_code is None
        if session.budget.exceeded is not None and stopped:
            raise await self._budgets.refusal(session)
        return result

    async def client_gone(self, session: Session, command: Command) -> None:
        """Ends a foreground command that nobody waits for any more; returns at once."""
        command.collects, command.output = False, None
        self._tasks.spawn(self._cancel(session, command, "client_gone"))

    async def end(self, session: Session, command: Command, reason: str) -> None:
        """Ends one command: TERM, then KILL. Returns before it has ended."""
        await self._cancel(session, command, reason)

    async def cancel_all(self, session: Session, reason: str) -> None:
        """Ends every command of the session: TERM, then KILL."""
        await asyncio.gather(
            *(self._cancel(session, command, reason) for command in session.running)
        )

    async def _cancel(self, session: Session, command: Command, reason: str) -> None:
        if session.sandbox is None or command.ended:
            return
        command.ending = True
        try:
            params = {"command_id": command.id, "reason": reason}
            await session.sandbox.link.request("cancel", params)
        except SandboxUnavailableError:
            command.ending = False

    async def close(self) -> None:
        """Ends background work."""
        await self._tasks.close()
