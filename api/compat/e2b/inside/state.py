"""`/health`, `/metrics` and `/envs`: whether the sandbox runs, what it uses, and its variables."""

import time

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b.failure import failure
from api.compat.e2b.inside.access import enter, inside_credential
from api.compat.e2b.inside.codes import GoneError
from api.compat.protocol import Route
from api.http.auth import check_rights, identify
from api.operations.sessions import inspect_session
from api.shape.access import Access
from orchestrator.ground.errors import PaddockError
from orchestrator.settings.e2b_names import SANDBOX_HEADER
from paddock.contract.inspection import InspectedSession
from paddock.contract.words import Status


async def _health(call: Call) -> web.StreamResponse:
    """Says of a sandbox whether it runs; to those who may not know, none does."""
    request, kept = call.request, call.context.kept
    try:
        token = inside_credential(request, call.plane, kept)
        principal = identify(call.plane, token)
        check_rights(call.plane.keys, principal, Access.READ, "sessions:read")
        session = call.plane.sessions.finder.find(
            principal, request.headers.get(SANDBOX_HEADER, "")
        )
    except PaddockError:
        session = None
    if session is None or not session.live or session.status is Status.PAUSED:
        raise GoneError(request.headers.get(SANDBOX_HEADER, ""))
    return web.Response(status=204)


async def _metrics(call: Call) -> web.StreamResponse:
    inside = enter(call)
    found: InspectedSession = await inside.done(inspect_session)
    limits, usage, disk = inside.session.limits, found.usage, found.disk
    return web.json_response(
        {
            "ts": int(time.time()),
            "cpu_count": max(1, round(limits.cpus)),
            "cpu_used_pct": 0.0 if usage is None else usage.cpu_percent,
            "mem_total": limits.memory_bytes,
            "mem_used": 0 if usage is None else usage.memory_bytes,
            "disk_used": 0 if disk is None else disk.used_bytes,
            "disk_total": limits.workspace_bytes,
        }
    )


async def _envs(call: Call) -> web.StreamResponse:
    inside = enter(call)
    return web.json_response(dict(inside.session.terms.env))


STATE_ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", Access.OPEN, _health, failure=failure),
    *(
        Route(
            *("GET", path, Access.WORK, handler),
            credential=inside_credential,
            failure=failure,
        )
        for path, handler in (("/metrics", _metrics), ("/envs", _envs))
    ),
)
