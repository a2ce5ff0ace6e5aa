"""The permission levels, and what they would say."""

from dataclasses import asdict

from aiohttp import web

from api.call import Call, reply
from api.schemas import ExplainBody
from orchestrator.errors import PermissionDeniedError, ValidationError
from orchestrator.keys import Role
from orchestrator.policy.decision import command_field
from orchestrator.policy.explain import Explanation, explain_command, explain_path
from orchestrator.policy.levels import Level
from sandbox_agent.commands import CommandError


async def list_all(call: Call) -> web.Response:
    """The permission levels, lowest first."""
    return reply({"items": [level.public() for level in call.plane.levels.values()], "next": None})


async def explain(call: Call, body: ExplainBody) -> web.Response:
    """Whether a command or a path of the file operations would be allowed, and what stops it.

    It is told by the words alone, at a level or as a session is pinned to it: what a program
    does inside only the kernel sees, which may stop more. Nothing is done, and nothing is
    recorded. A session's handle may name its own session only.
    """
    return reply(asdict(_explained(_level(call, body), body)))


def _level(call: Call, body: ExplainBody) -> Level:
    if body.session is not None:
        return call.plane.sessions.find(call.principal, body.session).level
    if call.principal.role is Role.HANDLE:
        raise PermissionDeniedError("a session's handle may name its own session only")
    return call.plane.levels.named(body.level or "")


def _explained(level: Level, body: ExplainBody) -> Explanation:
    if body.path is not None:
        return explain_path(level, body.path)
    try:
        return explain_command(level, body.command, body.argv, body.cwd)
    except CommandError as error:
        field = command_field(error, body.command)
        raise ValidationError(str(error), field=field) from None
