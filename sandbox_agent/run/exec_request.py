"""The form of an `exec` request. Pure."""

from sandbox_agent.core import params as given
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.run.process import Request


def parse(params: Message, plan: Plan) -> Request:
    """The command that the control plane asked for. Raises: AgentError."""
    stdin, timeout = params.get("stdin"), params.get("timeout_ms")
    return Request(
        command_id=given.text(params, "command_id"),
        plan=plan,
        stdin=None if stdin is None else given.data(params, "stdin"),
        stdin_open=given.flag(params, "stdin_open"),
        timeout_ms=None
        if timeout is None
        else given.number(params, "timeout_ms", 0, given.MOST_MS),
        background=given.flag(params, "background"),
        collect=params.get("collect") is True,
        unread=params.get("unread") is True,
    )
