"""Commands of turns in a shell that keeps its state."""

from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, StagedChange
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.work.shells.kept_shell import ShellSettings
from orchestrator.work.shells.shell_runs import RunAnswer, Until
from paddock.contract.shells import DEFAULT_RUN_SECONDS, MOST_RUN_SECONDS, MOST_SHELL_COMMAND

_MOST_NAME = 64


async def in_kept_shell(
    context: OperationContext, script: str, name: str, milliseconds: int, expect: str, typed: str
) -> Done:
    """Runs a script in the shell of that name, or types into its program.

    Raises: OperationFailed for values that no shell takes, and the errors of `KeptShells`.
    """
    seconds = milliseconds / 1000 or DEFAULT_RUN_SECONDS
    _check(script, name, seconds, typed)
    shells, session, principal = context.services.kept_shells, context.session, context.principal
    until = Until(seconds, (expect,) if expect else None)
    if typed or not script:
        answer = await shells.input(principal, session, name, typed, until)
    else:
        try:
            await shells.get(session, name)
        except (NotFoundError, ConflictError):
            settings = ShellSettings(name, session.workspace_path, {})
            await shells.create(principal, session, settings)
        answer = await shells.run(principal, session, name, script, until)
    recorded = {"pty": answer.shell.id, "status": str(answer.why), "exit_code": answer.exit_code}
    return Done(_value(answer), recorded, staged=(StagedChange("run", command=script or typed),))


def _value(answer: RunAnswer) -> Value:
    return (
        ("status", str(answer.why)),
        ("exit-code", answer.exit_code),
        ("output", answer.printed.text),
        ("running", answer.running),
        ("cwd", answer.shell.cwd),
        ("error", answer.error),
        ("ended", answer.ended),
    )


def _check(script: str, name: str, seconds: float, typed: str) -> None:
    if not (len(name) <= _MOST_NAME and name.replace("-", "a").replace("_", "a").isalnum()):
        raise OperationFailed("shell: name must be letters, digits, - and _")
    if not 0 < seconds <= MOST_RUN_SECONDS:
        raise OperationFailed(f"shell: milliseconds must be from 1 to {MOST_RUN_SECONDS}000")
    for text in (script, typed):
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise OperationFailed("shell: the text is not valid Unicode") from None
        if size > MOST_SHELL_COMMAND or "\0" in text:
            raise OperationFailed("shell: the text is too long, or contains NUL")
