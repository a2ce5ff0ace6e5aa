"""What a sandbox used in the last ten minutes."""

import math
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import views
from api.compat.e2b.queries import MetricsQuery
from api.http.endpoint import read_query
from api.operations.usage import show_usage
from api.shape.objects import validated
from orchestrator.ground.errors import NotFoundError
from orchestrator.ground.events import time_text
from orchestrator.state.session import Session
from paddock.contract.usage import SessionUsage, UsageQuery


async def show(call: Call) -> web.Response:
    """The samples between two times, the latest last; none of a sandbox that is too new."""
    query = read_query(call.request, MetricsQuery)
    session = call.context.session()
    if not session.live:
        raise NotFoundError(f"sandbox {session.id} was not found: it has ended")
    asked = validated(UsageQuery, {"session": session.id})
    usage = await call.done(show_usage, query=asked)
    found: list[dict[str, Any]] = []
    if usage.sampled_at is not None:
        for each in usage.items:
            found += samples(session, each, usage.sampled_at, usage.interval)
    first, last = query.start or 0, math.inf if query.end is None else query.end
    return views.answer([each for each in found if first <= each["timestampUnix"] <= last])


def samples(
    session: Session, usage: SessionUsage, latest: datetime, interval: float
) -> list[dict[str, Any]]:
    """A session's samples, each with its time; those without a sandbox are left out.

    Memory that the kernel can reclaim at once is not counted in any.
    """
    cpus = max(1, math.ceil(session.limits.cpus))
    disk = usage.disk
    found = []
    count = len(usage.cpu_percent)
    for number, (cpu, memory) in enumerate(
        zip(usage.cpu_percent, usage.memory_bytes, strict=True), 1
    ):
        if cpu is None or memory is None:
            continue
        at = latest - timedelta(seconds=(count - number) * interval)
        found.append(
            {
                "timestamp": time_text(at),
                "timestampUnix": int(at.timestamp()),
                "cpuCount": cpus,
                "cpuUsedPct": round(cpu / cpus, 1),
                "memUsed": memory,
                "memTotal": session.limits.memory_bytes,
                "memCache": 0,
                "diskUsed": 0 if disk is None else disk.used_bytes,
                "diskTotal": session.limits.workspace_bytes if disk is None else disk.limit_bytes,
            }
        )
    return found
