"""An environment of mini-swe-agent, for `environment_class` in its configuration."""

import platform
import weakref
from contextlib import ExitStack
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from paddock.client.errors import PaddockError
from paddock.client.one_session import session
from paddock.contract.commands import CommandResult
from paddock.integrations.refusals import explained, timed_out

# The first line of the output of a command that ends the task.
_DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class PaddockEnvironmentConfig(BaseModel, extra="forbid"):
    """What the session may do and use, as `SessionTerms` describes it; None: the default.

    The agent writes its configuration into trajectories, so the API key is none of it: it is found
    as `Paddock` finds it. `timeout` is in seconds, for each command; `cwd` is where it runs: None
    is the workspace.
    """

    permission_level: str | None = None
    image: str | None = None
    template: str | None = None
    from_snapshot: str | None = None
    env: dict[str, str] | None = None
    limits: dict[str, int | float] | None = None
    egress: dict[str, Any] | None = None
    mounts: list[str] | None = None
    workspace_path: str | None = None
    url: str | None = None
    context: str | None = None
    cwd: str | None = None
    timeout: float = 30


_OWN = {"url", "context", "cwd", "timeout"}


class PaddockEnvironment:
    """A session that lives as long as this object, or until `cleanup`.

    The session's level must permit any command: the agent's actions are lines for bash.
    """

    def __init__(self, **config: Any) -> None:
        """Creates the session. Raises: PaddockError; pydantic.ValidationError for other names."""
        self.config = PaddockEnvironmentConfig(**config)
        terms = self.config.model_dump(exclude_none=True, exclude=_OWN)
        owner = ExitStack()
        one = session(self.config.url, context=self.config.context, **terms)
        self._session = owner.enter_context(one)
        # The agent ends no environment: this is done when it is dropped, or at the program's end.
        self._end = weakref.finalize(self, owner.close)

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        """Has bash run the action's `command`; a refusal is an output for the model.

        Raises: Submitted after the command that ends the task.
        """
        seconds = timeout or self.config.timeout
        line = str(action.get("command", ""))
        try:
            done = self._session.shell(
                line, cwd=cwd or self.config.cwd, merge=True, timeout=seconds
            )
        except PaddockError as error:
            return _failed("", type(error).__name__, explained(error))
        if done.timed_out:
            return _failed(done.stdout, "TimeoutExpired", timed_out(seconds))
        _check_finished(done)
        return {"output": done.stdout, "returncode": done.exit_code, "exception_info": ""}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """The names that the agent's prompts may use; `uname` is that of the host's kernel."""
        system = platform.uname()._asdict()
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), system, kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        """What a trajectory keeps: the configuration, and the session on whose record it all is."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = self.config.model_dump(mode="json")
        info = {"environment": config, "environment_type": kind, "session_id": self._session.id}
        return {"info": {"config": info}}

    def cleanup(self) -> None:
        """Closes the session, and removes its files; once."""
        self._end()


def _failed(output: str, kind: str, what: str) -> dict[str, Any]:
    """The answer for a command that did not come to its end."""
    return {
        "output": output,
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {what}",
        "extra": {"exception_type": kind, "exception": what},
    }


def _check_finished(done: CommandResult) -> None:
    lines = done.stdout.lstrip().splitlines(keepends=True)
    if done.exit_code == 0 and lines and lines[0].strip() == _DONE:
        submission = "".join(lines[1:])
        extra = {"exit_status": "Submitted", "submission": submission}
        raise Submitted({"role": "exit", "content": submission, "extra": extra})
