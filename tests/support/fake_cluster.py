"""A cluster without a database and without control planes: nodes are small servers of the test."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from gateway.app import create_app, create_preview_app
from gateway.http import http_options
from gateway.limits import GATEWAY_LIMITS, GatewayLimits
from gateway.members import Contexts
from gateway.open import Gateway, open_gateway
from orchestrator.cluster.base import Amounts, NodeReport
from orchestrator.cluster.directory import (
    Hold,
    Node,
    Position,
    SessionFilters,
    SessionsPage,
    Where,
)
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.rules.access.keys import KeyRing

CAPACITY = Amounts(8.0, 16 * 2**30, 32, 8)
NOTHING_USED = Amounts(0.0, 0, 0)


def node(name: str, url: str = "", **members: object) -> Node:
    """A node that is alive, ready and empty."""
    report = NodeReport(
        name, 1, "ready", CAPACITY, NOTHING_USED, levels=("low", "medium"), images=(), url=url
    )
    return Node(replace(report, **members), alive=True, silent_seconds=0.0)  # type: ignore[arg-type]


class FakeDirectory:
    """What the database says. `away`: it does not answer."""

    def __init__(self) -> None:
        self.known: dict[str, Node] = {}
        self.places: dict[str, tuple[str, Hold]] = {}
        self.away = False
        self.looked_up: Counter[str] = Counter()
        self.changed = asyncio.Event()

    def dies(self, name: str) -> None:
        """The lease of the node ends."""
        self.known[name] = replace(self.known[name], alive=False)

    def _answer(self) -> None:
        if self.away:
            raise ClusterUnavailableError("the cluster's database does not answer")

    async def nodes(self) -> Sequence[Node]:
        """All nodes."""
        self._answer()
        return list(self.known.values())

    async def following(self) -> AsyncGenerator[Sequence[Node], None]:
        """All nodes, whenever a test says that they have changed."""
        while True:
            self.changed.clear()
            yield await self.nodes()
            await self.changed.wait()

    async def places_of(self, session_ids: Collection[str]) -> Mapping[str, Where]:
        """Where those sessions are."""
        self.looked_up.update(session_ids)
        self._answer()
        found = {name: self.places.get(name.lower()) for name in session_ids}
        return {name: Where(*place) for name, place in found.items() if place is not None}

    async def sessions(
        self, owner: str | None, after: Position | None, limit: int, filters: SessionFilters
    ) -> SessionsPage:
        """None."""
        return SessionsPage((), None)


@dataclass
class FakeCluster:
    """A gateway, whose nodes are added with `serve`."""

    directory: FakeDirectory = field(default_factory=FakeDirectory)
    closers: AsyncExitStack = field(default_factory=AsyncExitStack)
    servers: dict[str, TestServer] = field(default_factory=dict)
    gateway: Gateway = field(init=False)
    server: TestServer = field(init=False)

    @property
    def url(self) -> str:
        """Where the gateway is, without a slash at the end."""
        return f"http://127.0.0.1:{self.server.port}"

    async def serve(self, name: str, handler: Handler, **members: object) -> None:
        """Adds a node that answers everything with that handler."""
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app)
        await server.start_server(auto_decompress=False, shutdown_timeout=0.1)
        self.closers.push_async_callback(server.close)
        self.servers[name] = server
        url = f"http://127.0.0.1:{server.port}"
        self.directory.known[name] = node(name, url, **members)
        await self.gateway.members.refresh()

    def puts(self, session_id: str, name: str, hold: Hold = Hold.LIVE) -> None:
        """Puts a session on a node."""
        self.directory.places[session_id] = (name, hold)


def no_tls(face: object) -> None:
    """Nodes of tests without certificates."""


@asynccontextmanager
async def fake_cluster(
    *,
    previews: bool = False,
    keys: KeyRing | None = None,
    limits: GatewayLimits = GATEWAY_LIMITS,
    contexts: Contexts = no_tls,
) -> AsyncIterator[FakeCluster]:
    """A gateway without nodes; `previews`: its address of sessions' ports."""
    cluster = FakeCluster()
    gateway = await open_gateway(
        cluster.directory, keys or KeyRing({}), contexts, limits=limits, domain="ports.example"
    )
    cluster.gateway = gateway
    async with cluster.closers:
        cluster.closers.push_async_callback(gateway.close)
        app = create_preview_app(gateway) if previews else create_app(gateway)
        cluster.server = TestServer(app)
        await cluster.server.start_server(shutdown_timeout=0.1, **http_options(gateway))
        cluster.closers.push_async_callback(cluster.server.close)
        yield cluster
