"""Health, and the permission levels."""

from http import HTTPStatus

from aiohttp import web

from api.call import Call, reply


async def healthz(call: Call) -> web.Response:
    """The process serves requests."""
    return reply({"status": "ok"})


async def readyz(call: Call) -> web.Response:
    """Whether sessions can be created: 503 while something they need is missing."""
    checks = await call.plane.readiness()
    ready = all(check["ok"] for check in checks.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return reply({"status": "ready" if ready else "not ready", "checks": checks}, status)


async def policies(call: Call) -> web.Response:
    """The permission levels, lowest first."""
    levels = sorted(call.plane.levels.values(), key=lambda level: level.rank)
    return reply({"items": [level.public() for level in levels], "next": None})
