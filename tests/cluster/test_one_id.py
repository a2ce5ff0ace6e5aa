"""64 clients create the same id at four gateways, of which one is killed at each step."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from aiohttp import ClientError, ClientSession, TCPConnector, web
from aiohttp.test_utils import TestServer

from orchestrator.ground.errors import ConflictError, RateLimitedError
from orchestrator.ground.limits import KeyLimits
from tests.support.cluster_store import (
    StoreNode,
    claim,
    counted_anew,
    joined,
    make_schema,
    opened,
    report,
    usage_of,
)
from tests.support.limits import PROGRAM_SECONDS, WAIT_SECONDS
from tests.support.postgres import FreshDatabase

CLIENTS, GATEWAYS = 64, 4
# What a node has done with the request whose gateway is killed.
STEPS = ("nothing", "read it", "claimed the place", "begun its answer")
_BY = "X-By"
_QUOTA = KeyLimits(max_sessions=1, max_workspaces=1)


@dataclass
class Store:
    """Two nodes that do of a creation what concerns the cluster, and gateways of their own.

    `dies_at`: the first gateway whose request gets so far is killed.
    """

    dsn: str
    nodes: list[StoreNode] = field(default_factory=list)
    gateways: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)
    dies_at: str | None = None
    lives: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=count)

    async def start(self, number: int) -> None:
        """Starts a gateway, instead of one that was killed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.gateway_of_store", self.dsn),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(PROGRAM_SECONDS):
            port = int(await process.stdout.readline())
        self.gateways[number], self.ports[number] = process, port

    async def reached(self, step: str, request: web.Request) -> None:
        """Kills the gateway of that request, if this is the step."""
        if self.dies_at == step:
            self.dies_at = None
            process = self.gateways[int(request.headers[_BY])]
            process.kill()
            await process.wait()

    async def create(self, node: StoreNode, request: web.Request) -> web.StreamResponse:
        """As a node does; what has begun is not undone when its client goes."""
        await self.reached("nothing", request)
        session_id = (await request.json())["id"]
        await self.reached("read it", request)
        refusal = await asyncio.shield(self._take(node, session_id))
        if refusal is not None:
            return refusal
        await self.reached("claimed the place", request)
        answer = web.StreamResponse(status=201, headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        await answer.write(b'{"id": ')
        await self.reached("begun its answer", request)
        await answer.write(f'"{session_id}"}}'.encode())
        return answer

    async def _take(self, node: StoreNode, session_id: str) -> web.Response | None:
        """Takes the place, as it is done to its end whoever waits; or why not."""
        life = f"{session_id}-{node.lease.node}-{next(self._numbers)}"
        try:
            await node.places.claim(claim(session_id, life, quota=_QUOTA))
        except ConflictError as error:
            return _problem(409, "conflict", error.detail)
        except RateLimitedError as error:
            return _problem(429, "rate_limited", error.detail)
        self.lives[session_id] += 1
        return None

    async def asks(self, session_id: str, number: int, client: ClientSession) -> str:
        """What a client hears that creates it; one whose gateway has died asks the next one."""
        for more in range(GATEWAYS):
            by = (number + more) % GATEWAYS
            url = f"http://127.0.0.1:{self.ports[by]}/api/sessions"
            body = {"id": session_id, "permission_level": "low"}
            try:
                async with client.post(url, json=body, headers={_BY: str(by)}) as answer:
                    heard = await answer.json()
                    return "created" if answer.status == 201 else str(heard["code"])
            except (ClientError, ConnectionError):
                continue
        return "nothing"


def _problem(status: int, code: str, detail: str) -> web.Response:
    return web.json_response({"code": code, "detail": detail, "status": status}, status=status)


@asynccontextmanager
async def _store(postgres: FreshDatabase) -> AsyncIterator[Store]:
    await make_schema(postgres.dsn)
    store = Store(postgres.dsn)
    async with AsyncExitStack() as closers:
        for name in ("node-1", "node-2"):
            database = await closers.enter_async_context(opened(postgres.dsn))
            node = await joined(database, name)
            app = web.Application()
            app.router.add_post("/api/sessions", partial(store.create, node))
            server = TestServer(app)
            await server.start_server(shutdown_timeout=0.1)
            closers.push_async_callback(server.close)
            url = f"http://127.0.0.1:{server.port}"
            node.lease.tells(lambda name=name, url=url: replace(report(name), url=url))  # type: ignore[misc]
            await node.lease.renew()
            # The fixture's lease outlasts the test.
            await database.transaction(_lasting)
            store.nodes.append(node)
        closers.push_async_callback(_end, store)
        await asyncio.gather(*(store.start(number) for number in range(GATEWAYS)))
        yield store


async def _lasting(connection: object) -> None:
    statement = "UPDATE nodes SET until = clock_timestamp() + interval '1 day'"
    await connection.execute(statement)  # type: ignore[attr-defined]


async def _end(store: Store) -> None:
    for process in store.gateways.values():
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_an_id_lives_once_whichever_gateway_dies(postgres: FreshDatabase) -> None:
    """One life at most, nobody hears of two, and the key's quota counts what there is."""
    async with _store(postgres) as store, ClientSession(connector=TCPConnector(limit=0)) as client:
        database = store.nodes[0].database
        for number, step in enumerate(STEPS):
            session_id, store.dies_at = f"id-{number}", step
            async with asyncio.timeout(WAIT_SECONDS):
                heard = Counter(
                    await asyncio.gather(
                        *(store.asks(session_id, each, client) for each in range(CLIENTS))
                    )
                )
            assert store.dies_at is None, "no gateway was killed"
            assert store.lives[session_id] == 1
            assert heard["created"] <= 1
            assert set(heard) <= {"created", "conflict", "node_unavailable"}, heard
            assert sum(heard.values()) == CLIENTS
            assert await usage_of(database) == await counted_anew(database)
            assert (await usage_of(database))[0] == 1
            # What is left is one session, which ends as any other, and then the id is free.
            for node in store.nodes:
                for key in await node.sessions():
                    await node.release(key)
                await node.purge(session_id)
            assert await usage_of(database) == await counted_anew(database) == (0,) * 5
            (killed,) = [
                each for each, process in store.gateways.items() if process.returncode is not None
            ]
            await store.start(killed)


async def test_two_ids_of_a_key_that_may_have_one(postgres: FreshDatabase) -> None:
    """64 clients, 64 ids, a quota of one: one is created, whichever node it is on."""
    async with _store(postgres) as store, ClientSession(connector=TCPConnector(limit=0)) as client:
        heard = Counter(
            await asyncio.gather(
                *(store.asks(f"each-{each}", each, client) for each in range(CLIENTS))
            )
        )
        assert heard == {"created": 1, "rate_limited": CLIENTS - 1}
        database = store.nodes[0].database
        assert await usage_of(database) == await counted_anew(database)
