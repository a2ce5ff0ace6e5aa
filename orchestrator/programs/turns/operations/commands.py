"""Operations that run commands in the session's sandbox, by the rules of its level."""

from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.kept_shell import in_kept_shell
from orchestrator.programs.turns.operations.turn_operation import Done, StagedChange, turn_operation
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.state.requests import ExecRequest
from orchestrator.work.commands.whole_output import whole_output

# Of one stream: as much from its end as from its beginning.
_MOST_OUTPUT = 256 * 1024


async def run(context: OperationContext, command: str) -> Done:
    """Runs a command line, which no shell reads; returns its exit code and output."""
    return await run_command(context, ExecRequest(command=command, collect=True), command)


async def exec_(context: OperationContext, words: tuple[Value, ...]) -> Done:
    """Runs a program with these words; returns its exit code and output."""
    argv = [word for word in words if isinstance(word, str)]
    if not argv or len(argv) != len(words):
        raise OperationFailed("world.exec: words must be a list of strings")
    return await run_command(context, ExecRequest(argv=argv, collect=True), " ".join(argv))


async def shell(
    context: OperationContext,
    script: str,
    name: str = "",
    milliseconds: int = 0,
    expect: str = "",
    typed: str = "",
) -> Done:
    """Runs a script with bash, at levels that permit it; with a name, in a shell that is kept.

    That shell is created if there is none. `typed` is input for its program instead of a script.
    """
    if name:
        return await in_kept_shell(context, script, name, milliseconds, expect, typed)
    return await run_command(context, ExecRequest(shell=script, collect=True), script)


async def run_command(context: OperationContext, request: ExecRequest, shown: str) -> Done:
    """Runs a command to its end; `shown` is what a person reads of it."""
    executions, session = context.services.executions, context.session
    command = await context.services.commands.start(context.principal, session, request)
    try:
        result = await executions.wait(session, command)
    except BaseException:
        await executions.client_gone(session, command)
        raise
    output = await whole_output(session, command, result.output_bytes, _MOST_OUTPUT)
    value: Value = (
        ("exit-code", result.exit_code),
        *((name, each.text) for name, each in output.items()),
        ("truncated", any(each.cut for each in output.values())),
        ("command-id", command.id),
        ("output-bytes", result.output_bytes),
    )
    recorded = {"command_id": command.id, "exit_code": result.exit_code}
    return Done(value, recorded, staged=(StagedChange("run", command=shown),))


OPERATIONS = (
    turn_operation("world.run", run),
    turn_operation("world.exec", exec_),
    turn_operation("shell", shell),
)
