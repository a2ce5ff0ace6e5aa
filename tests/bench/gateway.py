"""What a gateway costs: commands through it beside direct ones, processor time, idle streams."""

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import psutil
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from aiohttp.test_utils import TestServer

from tests.bench.plane import Plane
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating

_TIMES = 1.15
_CPU_MS = 0.4
_AT_ONCE = 200
_DESCRIPTORS = 65_536


async def gateway(plane: Plane, rounds: int, streams: int) -> list[Result]:
    """The table; `streams` idle ones are held. Between gateway and node there is no TLS here."""
    key = {"Authorization": f"Bearer {plane.key}"}
    async with ClientSession(headers=key) as client:
        level = {"permission_level": "low"}
        async with client.post(f"{plane.url}/api/sessions", json=level) as answer:
            session = (await answer.json())["id"]
        path = f"/api/sessions/{session}"
        try:
            async with _gateway(plane.url, session) as (url, pid):
                ways = [f"{each.rstrip('/')}{path}/exec" for each in (url, plane.url)]
                results = await _commands(client, ways, rounds, pid)
        finally:
            await client.delete(f"{plane.url}{path}", params={"purge": "true"})
    return [*results, await _streams(streams)]


async def _commands(client: ClientSession, ways: list[str], rounds: int, pid: int) -> list[Result]:
    process = psutil.Process(pid)
    for way in ways:
        await _command(client, way)
    before = process.cpu_times()
    ours, theirs = await alternating(rounds, *(partial(_command, client, way) for way in ways))
    after = process.cpu_times()
    spent = (after.user + after.system) - (before.user + before.system)
    return [
        compare("exec through a gateway", ours, "direct", theirs, at_most=_TIMES),
        Result("a gateway's CPU for a request", [spent / rounds * 1000], "ms", target=_CPU_MS),
    ]


async def _command(client: ClientSession, url: str) -> list[float]:
    began = time.perf_counter()
    async with client.post(url, json={"command": "pwd"}) as answer:
        await answer.read()
    assert answer.status == 200, answer.status
    return [time.perf_counter() - began]


async def _streams(count: int) -> Result:
    """The memory of a gateway for each stream in which nothing happens."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, hard), hard))

    async def idle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b": idle\n\n")
        await asyncio.Event().wait()
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", idle)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    try:
        async with AsyncExitStack() as held:
            node = f"http://127.0.0.1:{server.port}"
            url, pid = await held.enter_async_context(_gateway(node, "web"))
            client = await held.enter_async_context(
                ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None))
            )
            before = psutil.Process(pid).memory_info().rss
            turns = asyncio.Semaphore(_AT_ONCE)

            async def begin() -> None:
                async with turns:
                    answer = await client.get(f"{url}/api/sessions/web/events")
                    held.callback(answer.close)
                    await answer.content.readany()

            await asyncio.gather(*(begin() for _ in range(count)))
            grown = psutil.Process(pid).memory_info().rss - before
        return Result(f"{count} idle streams, memory of each", [grown / count / 1024], "KiB")
    finally:
        await server.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def _gateway(node: str, session_id: str) -> AsyncIterator[tuple[str, int]]:
    """A gateway in front of that node: its URL, and its process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.gateway_process", node, session_id),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}", process.pid
    finally:
        process.kill()
        await process.wait()
