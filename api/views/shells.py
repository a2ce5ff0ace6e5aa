"""Shells that keep their state, and their answers, as the API shows them."""

from api.shape.objects import members
from orchestrator.work.shells.kept_shells import KeptShellView
from orchestrator.work.shells.shell_runs import RunAnswer, Until
from paddock.contract.shells import Shell, ShellAnswer, ShellUntil


def shell(shown: KeptShellView) -> Shell:
    """The shell as it is now."""
    return Shell.model_validate(members(Shell, shown))


def shell_until(body: ShellUntil) -> Until:
    """When a command is answered."""
    expect = (body.expect,) if isinstance(body.expect, str) else body.expect
    return Until(body.timeout, expect, body.at_timeout == "continue")


def shell_answer(answer: RunAnswer) -> ShellAnswer:
    """What has come of a command."""
    found, printed = answer.shell, answer.printed
    return ShellAnswer.model_validate(
        members(
            ShellAnswer,
            answer,
            shell=found.name,
            pty=found.id,
            status=str(answer.why),
            output=printed.text,
            output_bytes=printed.bytes,
            cut_bytes=printed.cut,
            cwd=found.cwd,
        )
    )
