"""Health and metrics."""

from http import HTTPStatus

from aiohttp import web

from api.call import Call, reply
from orchestrator.metrics import CONTENT_TYPE


async def healthz(call: Call) -> web.Response:
    """The process serves requests."""
    return reply({"status": "ok"})


async def readyz(call: Call) -> web.Response:
    """Whether sessions can be created: 503 while something they need is missing."""
    checks = await call.plane.readiness()
    ready = all(check["ok"] for check in checks.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return reply({"status": "ready" if ready else "not ready", "checks": checks}, status)


async def metrics(call: Call) -> web.Response:
    """What Prometheus scrapes: counters and histograms since the start, and what is now."""
    return web.Response(body=call.plane.metrics.render(), headers={"Content-Type": CONTENT_TYPE})
