"""An executor for OpenAI Agents' `ShellTool`: `ShellTool(executor=PaddockShell(session))`."""

from agents import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult

from paddock.client.errors import BusyError, PermissionDeniedError, ValidationError
from paddock.client.session import Session
from paddock.integrations.refusals import REFUSED_STATUS, explained

# What a model can do something about; after other errors there is no sandbox to work in.
_FOR_THE_MODEL = (PermissionDeniedError, ValidationError, BusyError)


class PaddockShell:
    """Runs a model's lines in a session.

    The session's level must permit any command; whoever created the session closes it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def __call__(self, request: ShellCommandRequest) -> ShellResult:
        """Has bash run each line; one that takes too long ends the call.

        A refusal is an error output, with the rule and what to do instead, and the exit code 126.
        Raises: PaddockError if the session has ended or nobody answers.
        """
        action = request.data.action
        seconds = None if action.timeout_ms is None else action.timeout_ms / 1000
        output: list[ShellCommandOutput] = []
        for line in action.commands:
            output.append(await self._run(line, seconds))
            if output[-1].outcome.type == "timeout":
                break
        return ShellResult(output=output, max_output_length=action.max_output_length)

    async def _run(self, line: str, seconds: float | None) -> ShellCommandOutput:
        try:
            done = await self._session.shell(line, timeout=seconds)
        except _FOR_THE_MODEL as error:
            refused = ShellCallOutcome(type="exit", exit_code=REFUSED_STATUS)
            return ShellCommandOutput(stderr=explained(error), outcome=refused, command=line)
        ended = ShellCallOutcome(type="exit", exit_code=done.exit_code)
        outcome = ShellCallOutcome(type="timeout") if done.timed_out else ended
        return ShellCommandOutput(
            stdout=done.stdout, stderr=done.stderr, outcome=outcome, command=line
        )
