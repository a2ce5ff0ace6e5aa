"""Views of commands, and of requests to run them."""

from typing import Any, Literal

from api.shape.objects import members
from orchestrator.state import command as domain
from orchestrator.state.command import CommandExit
from orchestrator.state.requests import ExecRequest
from paddock.contract.command_requests import ExecBody
from paddock.contract.commands import Command, Exit


def command(shown: domain.Command) -> Command:
    """One command, with its result once it has ended."""
    return Command.model_validate(command_members(shown))


def command_members(shown: domain.Command) -> dict[str, Any]:
    """The members of `Command`."""
    return {
        "command_id": shown.id,
        "argv": shown.argv,
        "background": shown.background,
        "status": _status(shown),
        "started_at": shown.started_at,
        "exit": None if shown.result is None else exit_members(shown.result),
    }


def exit_members(shown: CommandExit) -> dict[str, Any]:
    """The members of `Exit`."""
    evidence = None if shown.evidence is None else shown.evidence._asdict()
    audit = {"seq": shown.seq, "hash": shown.hash}
    return members(Exit, shown, evidence=evidence, audit=audit)


def _status(shown: domain.Command) -> Literal["running", "exited", "lost"]:
    if shown.result is None:
        return "running"
    return "lost" if shown.result.exit_code is None else "exited"


def exec_request(body: ExecBody) -> ExecRequest:
    """The domain's request to run a command."""
    return ExecRequest(
        argv=body.argv,
        command=body.command,
        shell=body.shell,
        cwd=body.cwd,
        env=body.env,
        secrets=body.secrets,
        stdin=body.stdin_base64 if body.stdin is None else body.stdin.encode(),
        stdin_open=body.stdin_open,
        merge=body.merge,
        output_file=body.output_file,
        timeout=body.timeout,
        background=body.background,
    )
