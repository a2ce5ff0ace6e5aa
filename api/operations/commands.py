"""Commands: run one, and wait for it or follow it."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from api.operations import output
from api.operations.processes import EVENTS, TAG, watch
from api.shape.access import Access
from api.shape.answers import Accepted, EventStream
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, operation
from api.views.approvals import approval
from api.views.commands import command as view
from api.views.commands import exec_request
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.access.keys import Role
from orchestrator.sessions.sessions import Sessions
from orchestrator.state import command as domain
from orchestrator.state.requests import ExecRequest
from orchestrator.state.session import Session
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.governed_commands import GovernedCommands
from paddock.contract.command_requests import ExecBody
from paddock.contract.commands import Command, CommandResult, PendingCommand


@operation(
    "POST",
    SESSION + "/exec",
    Access.WORK,
    name="exec",
    tag=TAG,
    summary="Run a command",
    answers={
        200: "The command's result, or its events as they happen.",
        202: "The command runs in the background, or waits for a person's approval.",
    },
    errors=(*WORK_ERRORS, "engine_unavailable"),
    examples={
        "command": {"command": "ls -la"},
        "argv": {"argv": ["grep", "-rn", "TODO", "src"], "timeout": 30},
        "background": {"argv": ["find", ".", "-name", "*.py"], "background": True},
    },
    events=EVENTS,
    restores=True,
)
async def execute(
    context: Context,
    commands: GovernedCommands,
    sessions: Sessions,
    executions: Executions,
    body: ExecBody,
) -> CommandResult | EventStream | Accepted[Command | PendingCommand]:
    """Runs a command and returns its result, or with `Accept: text/event-stream` its live output.

    For a background command, the answer comes when it has started.
    """
    session = context.session()
    with ExitStack() as held:
        if context.wants_events:
            # This is first, so that one stream too many is refused before anything runs.
            held.enter_context(context.streaming("output", session))
        await _change_level(context, sessions, session, body.permission_level)
        request = await _request(context, commands, session, body)
        if isinstance(request, Approval):
            return Accepted(PendingCommand(status="pending", approval=approval(request)))
        request = replace(request, collect=not (request.background or context.wants_events))
        command = await context.work.complete(
            commands.start(context.principal, session, request),
            lambda command: _leave(context, executions, session, command),
        )
        if command.background and not context.wants_events:
            return Accepted(view(command))
        held.enter_context(_attended(context, executions, session, command))
        if context.wants_events:
            return EventStream(watch(context, executions, session, command, 0), held.pop_all())
        return await output.collect(context, executions, session, command)


async def _request(
    context: Context, commands: GovernedCommands, session: Session, body: ExecBody
) -> ExecRequest | Approval:
    """The command to run, or the approval that a tool's command waits for."""
    request = exec_request(body)
    if body.tool is None:
        return request
    given = (body.tool, body.arguments, request, body.wait)
    return await commands.request(context.principal, session, *given)


async def _change_level(
    context: Context, sessions: Sessions, session: Session, level: str | None
) -> None:
    if level is None:
        return
    if context.principal.role is Role.HANDLE:
        raise PermissionDeniedError("a session's handle may not set permission_level")
    if level != session.level.name:
        await context.work.complete(
            sessions.changes.set_level(context.principal, session, level, {})
        )


@contextmanager
def _attended(
    context: Context, executions: Executions, session: Session, command: domain.Command
) -> Iterator[None]:
    """Attends a foreground command: if the client disconnects meanwhile, the command is ended."""
    try:
        yield
    except (asyncio.CancelledError, ConnectionError):
        _leave(context, executions, session, command)
        raise


def _leave(
    context: Context, executions: Executions, session: Session, command: domain.Command
) -> None:
    # At a shutdown, it is not the client that left, and the result can still be fetched.
    if not command.background and not context.work.stopping:
        context.work.detach(executions.client_gone(session, command))
