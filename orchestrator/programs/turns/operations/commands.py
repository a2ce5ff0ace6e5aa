"""Operations that run commands in the session's sandbox, by the rules of its level."""

from collections.abc import Iterable, Mapping

from orchestrator.host.link.chunks import Chunk
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.kept_shell import in_kept_shell
from orchestrator.programs.turns.operations.turn_operation import Done, StagedChange, turn_operation
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.state.command import Command
from orchestrator.state.requests import ExecRequest
from orchestrator.work.commands import running_command
from orchestrator.work.commands.head_and_tail import HeadAndTail

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
    output = await _output(context, command, result.output_bytes)
    value: Value = (
        ("exit-code", result.exit_code),
        *((name, each.text) for name, each in output.items()),
        ("truncated", any(each.cut for each in output.values())),
        ("command-id", command.id),
        ("output-bytes", result.output_bytes),
    )
    recorded = {"command_id": command.id, "exit_code": result.exit_code}
    return Done(value, recorded, staged=(StagedChange("run", command=shown),))


async def _output(
    context: OperationContext, command: Command, total: int
) -> dict[str, HeadAndTail]:
    """What the command printed: delivered with its end, or requested page by page."""
    kept = {name: HeadAndTail(_MOST_OUTPUT) for name in ("stdout", "stderr")}
    delivered, command.output = command.output, None
    position = _keep(kept, delivered or (), 0)
    while delivered is None and position < total:
        page = await running_command.read_output(context.session, command, position, 0)
        position = _keep(kept, page.chunks, position)
        if page.lost or page.next < position or not page.chunks:
            break
    if position < total:
        kept["stdout"].skip(total - position)
    return kept


def _keep(kept: Mapping[str, HeadAndTail], chunks: Iterable[Chunk], position: int) -> int:
    """Keeps chunks of output, of which the agent may leave out the middle; where the next begin."""
    for name, offset, data in chunks:
        if name in kept:
            kept[name].skip(offset - position)
            kept[name].add(data)
        position = offset + len(data)
    return position


OPERATIONS = (
    turn_operation("world.run", run),
    turn_operation("world.exec", exec_),
    turn_operation("shell", shell),
)
