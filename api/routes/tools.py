"""The tools that a session has."""

from aiohttp import web

from api.call import Call, reply
from orchestrator.tools.listing import list_tools


async def list_all(call: Call) -> web.Response:
    """Every command of every tool, and whether the session's level and policies could allow it."""
    level = call.session().level
    items = list_tools(call.plane.policy.tools, level.risk_tier, level.name)
    return reply({"items": items, "next": None})
