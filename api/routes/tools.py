"""The tools that a session has."""

from aiohttp import web

from api.call import Call, reply
from orchestrator.tools.listing import Asker, list_tools


async def list_all(call: Call) -> web.Response:
    """Every command of every tool, and whether the session's level and policies could allow it."""
    session = call.session()
    level = session.level
    asker = Asker(
        level.risk_tier,
        level.name,
        session.role,
        session.tools,
        level.confinement.ptrace,
        session.sandbox.mounts if session.sandbox is not None else (),
        call.plane.keys.bounds(call.principal),
    )
    items = list_tools(call.plane.policy.tools, asker)
    return reply({"items": items, "next": None})
