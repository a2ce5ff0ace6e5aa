"""What a cluster costs: commands, also while the database is away; creations, idle streams.

Gateway and nodes are those of a cluster on this machine, so they have TLS between them, and all of
them share its cores.
"""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import psutil
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from aiohttp.test_utils import TestServer

from images.progress import step
from orchestrator.cluster.tls import node_context
from orchestrator.ground.serving.tls_memory import keep_tls_buffers_small
from scripts.cluster.building import Cluster
from tests.bench.plane import BenchError
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating, by_turns, percentile
from tests.support.certificates import Authority
from tests.support.free_ports import free_port
from tests.support.machines import place

NODES = 3
_TIMES = 1.15
# On a quiet machine, where aiohttp's least is 0.11 ms, it is 0.4 ms.
_FLOORS = 3.7
_AWAY_SECONDS = 60
_TIMES_WITHOUT = 1.2
_AT_ONCE = 5
_CREATING = 6
_ROUNDS = 3
_DESCRIPTORS = 65_536
_OTHER_DESCRIPTORS = 500
_MIB = 2**20
# Small, so that the machine has room for all that are created at once.
_SMALL = {"permission_level": "low", "limits": {"memory_bytes": 64 * _MIB}}


async def gateway(image: str, rounds: int, streams: int, creations: int) -> list[Result]:
    """The table; `streams` idle ones are held, and `creations` sessions made in each round.

    Raises: BenchError.
    """
    with place() as layout:
        cluster = Cluster(layout)
        await asyncio.to_thread(cluster.up, NODES, image, step, 1, free_port())
        key = {"Authorization": f"Bearer {layout.admin_key.read_text().strip()}"}
        connector = TCPConnector(limit=0)
        async with ClientSession(headers=key, connector=connector) as client:
            results = [
                *await _commands(client, cluster, rounds),
                *await _creations(client, cluster, creations),
                await _away(client, cluster),
            ]
    return [*results, await idle_streams(streams)]


async def _commands(client: ClientSession, cluster: Cluster, rounds: int) -> list[Result]:
    ours = cluster.gateways()[0]
    process = ours.process()
    if process is None:
        raise BenchError("the gateway has ended")
    session = await _made(client, ours.url)
    path = f"/api/sessions/{session['id']}"
    direct = cluster.node(session["node"]).url
    results = []
    async with _process("tests.bench.answering") as (floor, floor_pid):
        for at_once in (1, 8):
            step(f"commands, {at_once} at once …")
            spent: dict[int, list[float]] = {process.pid: [], floor_pid: []}

            async def measured(
                url: str, pid: int, n: int = at_once, spent: dict[int, list[float]] = spent
            ) -> list[float]:
                before = _cpu(pid)
                found = await _exec(client, f"{url}{path}", n)
                spent[pid].append((_cpu(pid) - before) / n)
                return found

            one, other, _ = await alternating(
                rounds // at_once,
                partial(measured, ours.url, process.pid),
                partial(_exec, client, f"{direct}{path}", at_once),
                partial(measured, floor, floor_pid),
            )
            what = f"exec through a gateway, {at_once} at once"
            results.append(compare(what, one, "direct", other, at_most=_TIMES))
            cpu, least = (each[1:] for each in spent.values())
            what = "a gateway's CPU for it"
            # Several at once, aiohttp answers in one look at its connections.
            most = _FLOORS if at_once == 1 else None
            results.append(compare(what, cpu, "aiohttp's least", least, at_most=most))
            rates = [1 / each for each in cpu]
            results.append(Result("requests of a core", rates, "/s", at_least=True))
    await _ended(client, f"{ours.url}{path}")
    return results


async def _away(client: ClientSession, cluster: Cluster) -> Result:
    """Commands of a node while the database answers nothing, and just before."""
    step(f"{_AWAY_SECONDS} s without the database …")
    session = await _made(client, cluster.gateways()[0].url)
    url = f"{cluster.node(session['node']).url}/api/sessions/{session['id']}"

    async def for_a_while() -> list[float]:
        found, end = list[float](), time.monotonic() + _AWAY_SECONDS
        while time.monotonic() < end:
            found += await _exec(client, url, 1)
        return found

    there = await for_a_while()
    await asyncio.to_thread(cluster.database.pause)
    try:
        away = await for_a_while()
    finally:
        await asyncio.to_thread(cluster.database.resume)
    await _ended(client, url)
    ratio = percentile(away, 0.99) / percentile(there, 0.99)
    figures = [[1000 * each for each in part] for part in (away, there)]
    what = "exec without the database, p99"
    return Result(what, figures[0], "ms", "with it", figures[1], ratio, _TIMES_WITHOUT)


async def _exec(client: ClientSession, url: str, at_once: int) -> list[float]:
    """Seconds of each of so many commands at once."""

    async def one() -> float:
        began = time.perf_counter()
        async with client.post(f"{url}/exec", json={"command": "pwd"}) as answer:
            await answer.read()
        if answer.status != 200:
            raise BenchError(f"a command was answered with {answer.status}")
        return time.perf_counter() - began

    return await asyncio.gather(*(one() for _ in range(at_once)))


def _cpu(pid: int) -> float:
    """Seconds of CPU of the process's first thread, which has the event loop."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def _creations(client: ClientSession, cluster: Cluster, count: int) -> list[Result]:
    """How many sessions a second 1, 2 and 3 nodes give, by turns; the others are drained."""
    ours = cluster.gateways()[0]
    names = [node.name for node in cluster.nodes()]

    async def made(nodes: int) -> float:
        for number, name in enumerate(names):
            change = "undrain" if number < nodes else "drain"
            async with client.post(f"{ours.url}/api/nodes/{name}/{change}") as answer:
                if not answer.ok:
                    raise BenchError(f"{name}: {change}: {await answer.text()}")
        turns = asyncio.Semaphore(_CREATING)

        async def one() -> str:
            async with turns:
                return str((await _made(client, ours.url))["id"])

        began = time.perf_counter()
        sessions = await asyncio.gather(*(one() for _ in range(count)))
        taken = time.perf_counter() - began
        await asyncio.gather(
            *(_ended(client, f"{ours.url}/api/sessions/{each}") for each in sessions)
        )
        return count / taken

    step("creations …")
    sides = [partial(made, nodes) for nodes in range(1, NODES + 1)]
    rates = await by_turns(_ROUNDS, sides)
    return [
        Result(f"sessions created with {nodes} of {NODES} nodes", found, "/s", at_least=True)
        for nodes, found in enumerate(rates, 1)
    ]


async def _made(client: ClientSession, url: str) -> dict[str, str]:
    async with client.post(f"{url}/api/sessions", json=_SMALL) as answer:
        if answer.status != 201:
            raise BenchError(f"a session was refused: {await answer.text()}")
        found: dict[str, str] = await answer.json()
        return found


async def _ended(client: ClientSession, url: str) -> None:
    async with client.delete(url, params={"purge": "true"}) as answer:
        await answer.read()


async def idle_streams(count: int) -> Result:
    """The memory of a gateway for each stream in which nothing happens, with TLS to the node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(_DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    # Each takes two descriptors, here and of the gateway.
    count = min(count, (most - _OTHER_DESCRIPTORS) // 2)
    step(f"{count} idle streams …")
    try:
        async with AsyncExitStack() as held:
            url, pid = await held.enter_async_context(_gateway_of_idle_node())
            client = await held.enter_async_context(
                ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None))
            )
            turns = asyncio.Semaphore(_AT_ONCE)

            async def begin() -> None:
                async with turns:
                    answer = await client.get(f"{url}/api/sessions/web/events")
                    held.callback(answer.close)
                    if answer.status != 200:
                        raise BenchError(f"a stream was refused: {await answer.text()}")
                    await answer.content.readany()

            await begin()
            before = psutil.Process(pid).memory_info().rss
            await asyncio.gather(*(begin() for _ in range(count)))
            grown = psutil.Process(pid).memory_info().rss - before
        return Result(f"{count} idle streams, memory of each", [grown / count / 1024], "KiB")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def _gateway_of_idle_node() -> AsyncIterator[tuple[str, int]]:
    """A gateway in front of a node whose streams say nothing: its URL, and its process."""

    async def idle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b": idle\n\n")
        await asyncio.Event().wait()
        return response

    keep_tls_buffers_small()  # the node's side is in this process
    app = web.Application()
    app.router.add_get("/{path:.*}", idle)
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        authority = Authority(Path(folder))
        node, own = authority.sign("one"), authority.sign("gateway")
        context = node_context(node.cert, node.key, authority.file)
        server = TestServer(app, scheme="https")
        await server.start_server(ssl=context, shutdown_timeout=0.1)
        try:
            async with _process(
                *("tests.support.gateway_process", f"https://127.0.0.1:{server.port}", "web"),
                *map(str, (own.cert, own.key, authority.file)),
            ) as served:
                yield served
        finally:
            await server.close()


@asynccontextmanager
async def _process(module: str, *arguments: str) -> AsyncIterator[tuple[str, int]]:
    """A server that prints its port: its URL, and its process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
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
