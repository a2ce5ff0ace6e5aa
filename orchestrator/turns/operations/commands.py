"""Operations that run commands in the session's sandbox, by the rules of its level."""

from orchestrator.commands import started
from orchestrator.sessions.requests import ExecRequest
from orchestrator.sessions.session import Command
from orchestrator.turns.operations.context import OperationContext
from orchestrator.turns.operations.turn_operation import Done, StagedChange, turn_operation
from orchestrator.turns.outcome import Value
from orchestrator.turns.programs import OperationFailed

# Of one stream.
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


async def shell(context: OperationContext, script: str) -> Done:
    """Runs a script with bash, at levels that permit it; returns its exit code and output."""
    argv = ["bash", "-c", script]
    return await run_command(context, ExecRequest(argv=argv, collect=True), script)


async def run_command(context: OperationContext, request: ExecRequest, shown: str) -> Done:
    """Runs a command to its end; `shown` is what a person reads of it."""
    executions, session = context.services.executions, context.session
    command = await context.services.commands.start(context.principal, session, request)
    try:
        result = await executions.wait(session, command)
    except BaseException:
        await executions.client_gone(session, command)
        raise
    output = await _output(context, command)
    value: Value = (
        ("exit-code", result.exit_code),
        ("stdout", output["stdout"]),
        ("stderr", output["stderr"]),
        ("truncated", result.output_bytes > sum(map(len, output.values()))),
    )
    told = {"command_id": command.id, "exit_code": result.exit_code}
    return Done(value, told, staged=StagedChange("run", command=shown))


async def _output(context: OperationContext, command: Command) -> dict[str, str]:
    """What it printed: delivered with its end, or else requested page by page."""
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    told, command.output = command.output, None
    position, total = 0, command.output_bytes if told is None else 0
    for name, _, data in told or ():
        _keep(kept, name, data)
    while position < total and sum(map(len, kept.values())) < _MOST_OUTPUT:
        page = await started.read_output(context.session, command, position, 0)
        for name, _, data in page.chunks:
            _keep(kept, name, data)
        if page.lost or page.next <= position:
            break
        position = page.next
    return {name: bytes(data).decode("utf-8", "replace") for name, data in kept.items()}


def _keep(kept: dict[str, bytearray], name: str, data: bytes) -> None:
    if name in kept:
        kept[name] += data[: _MOST_OUTPUT - len(kept[name])]


OPERATIONS = (
    turn_operation("world.run", run),
    turn_operation("world.exec", exec_),
    turn_operation("shell", shell),
)
