"""The tools that a session has."""

from aiohttp import web

from api.call import Call, reply
from orchestrator.policy.levels import Level
from orchestrator.tools.listing import list_tools
from orchestrator.tools.manifest import RISK_TIERS


async def list_all(call: Call) -> web.Response:
    """Every command of every tool, and whether the session's level and policies could allow it."""
    level = call.session().level
    items = list_tools(call.plane.policy.tools, highest_tier(level), level.name)
    return reply({"items": items, "next": None})


def highest_tier(level: Level) -> str:
    """The highest risk tier of the level: the one of its own name, else the lowest."""
    return level.name if level.name in RISK_TIERS else RISK_TIERS[0]
