"""One face over two real control planes, with fake engines and the cluster's real database."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from api.app import create_app as create_node_app
from api.server import http_options as node_options
from gateway.app import create_app
from gateway.faces.routes import Faces
from gateway.http import http_options
from gateway.open import open_gateway
from orchestrator.cluster.directory import Node as KnownNode
from orchestrator.cluster.postgres.directory import PostgresDirectory
from orchestrator.cluster.postgres.key_table import KeyTable
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from paddock.client import ConflictError, NotFoundError, Paddock
from tests.cluster.test_nodes import Node, nodes
from tests.support.box import PATIENCE
from tests.support.cluster_store import CLUSTER, opened
from tests.support.fake_cluster import no_tls
from tests.support.postgres import FreshDatabase
from tests.support.until import until

# Names of keys, whose secrets the cluster's database makes.
ADMIN_KEY, CI_KEY, OTHER_KEY = "root", "ci", "other"
CI = Principal(CI_KEY, Role.OPERATOR)
KEYS = (Principal(ADMIN_KEY, Role.ADMIN), CI, Principal(OTHER_KEY, Role.OPERATOR))

__all__ = ["nodes"]


class _Local(PostgresDirectory):
    """The database, with the addresses of the test's servers."""

    servers: dict[str, TestServer]

    async def nodes(self) -> Sequence[KnownNode]:
        """As they are, reached without TLS."""
        return self._local(await super().nodes())

    async def following(self) -> AsyncGenerator[Sequence[KnownNode], None]:
        """The same, as they change."""
        async for found in super().following():
            yield self._local(found)

    def _local(self, found: Sequence[KnownNode]) -> Sequence[KnownNode]:
        return [
            replace(
                node, report=replace(node.report, url=str(self.servers[node.name].make_url("")))
            )
            for node in found
            if node.name in self.servers
        ]


@dataclass
class _Served:
    url: str
    servers: dict[str, TestServer]
    nodes: dict[str, Node]
    secrets: dict[str, str]

    def client(self, key: str = ADMIN_KEY) -> Paddock:
        return Paddock(self.url, self.secrets[key], get_retries=0, reconnect=PATIENCE)

    async def get(self, path: str, key: str = ADMIN_KEY, **query: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.secrets[key]}"}
        async with (
            ClientSession(headers=headers) as client,
            client.get(f"{self.url}{path}", params=query) as answer,
        ):
            assert answer.status == 200, await answer.text()
            found: dict[str, Any] = await answer.json()
            return found


async def _known(node: Node, ring: Mapping[str, Principal]) -> None:
    """Waits until the node has heard of all keys."""
    await until(lambda: ring.keys() <= {key.sha256 for key in node.plane.keys.all})


@pytest.fixture
async def served(nodes: Sequence[Node], postgres: FreshDatabase) -> AsyncIterator[_Served]:
    async with AsyncExitStack() as closers:
        database = await closers.enter_async_context(opened(postgres.dsn))
        secrets = {key.name: await KeyTable(database).add(key) for key in KEYS}
        ring = {digest(secrets[key.name]): key for key in KEYS}
        servers = {}
        for name, node in zip(("one", "two"), nodes, strict=True):
            await _known(node, ring)
            node.plane.settings.node_labels["zone"] = "a"
            server = servers[name] = TestServer(create_node_app(node.plane))
            await server.start_server(**node_options(node.plane), shutdown_timeout=0.1)
            closers.push_async_callback(server.close)
        directory = _Local(database)
        directory.servers = servers
        gateway = await open_gateway(directory, KeyRing(ring), no_tls)
        closers.push_async_callback(gateway.close)
        faces = Faces(gateway, CLUSTER, NodeAdmin(database))
        server = TestServer(create_app(gateway, faces=faces))
        await server.start_server(shutdown_timeout=0.1, **http_options(gateway))
        closers.push_async_callback(server.close)
        url = f"http://127.0.0.1:{server.port}"
        yield _Served(url, servers, dict(zip(("one", "two"), nodes, strict=True)), secrets)


async def test_sessions_of_both_nodes_are_one_list(served: _Served) -> None:
    for number in range(4):
        await served.nodes["one" if number % 2 else "two"].create(f"s{number}", CI)
    await served.nodes["one"].create("admins")
    newest = ["admins", "s3", "s2", "s1", "s0"]
    async with served.client() as client:
        found = await client.sessions.list()
    assert [session.id for session in found] == newest
    listed = (await served.get("/api/sessions"))["items"]
    assert [item["node"] for item in listed] == ["one", "one", "two", "one", "two"]
    mine = await served.get("/api/sessions", CI_KEY, limit=3)
    assert [item["id"] for item in mine["items"]] == ["s3", "s2", "s1"]
    rest = await served.get("/api/sessions", CI_KEY, cursor=mine["next"])
    assert ([item["id"] for item in rest["items"]], rest["next"]) == (["s0"], None)
    assert (await served.get("/api/sessions", OTHER_KEY))["items"] == []
    oldest = await served.get("/api/sessions", order="asc", limit=2)
    assert [item["id"] for item in oldest["items"]] == ["s0", "s1"]
    assert (await served.get("/api/sessions/s0"))["node"] == "two"


async def test_the_record_of_both_nodes_is_searched(served: _Served) -> None:
    for number in range(6):
        await served.nodes["one" if number % 2 else "two"].create(f"s{number}", CI)
    async with served.client(CI_KEY) as client:
        found = [event async for event in client.search(operation="session.create")]
    assert [event.session_id for event in found] == [f"s{number}" for number in range(5, -1, -1)]
    first = await served.get("/api/audit", operation="session.create", limit=4)
    rest = await served.get("/api/audit", operation="session.create", cursor=first["next"])
    ids = [item["session_id"] for item in [*first["items"], *rest["items"]]]
    assert ids == [event.session_id for event in found]
    assert (await served.get("/api/audit", OTHER_KEY))["items"] == []


async def test_events_of_both_nodes_are_one_stream_over_breaks(served: _Served) -> None:
    one, two = served.nodes["one"], served.nodes["two"]
    await one.create("before", CI)
    heard: list[str | None] = []
    notices: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    async with served.client(CI_KEY) as client:

        async def listen() -> None:
            told = lambda node, there: notices.put_nowait((node, there))  # noqa: E731
            async for event in client.events(after=0, on_node=told):
                if event.operation == "session.create":
                    heard.append(event.session_id)
                    more.set()

        more = asyncio.Event()
        listening = asyncio.ensure_future(listen())
        try:
            await _until(more, heard, 1)
            await two.create("s1", CI)
            await _until(more, heard, 2)
            port = served.servers["two"].port
            await served.servers["two"].close()
            assert await asyncio.wait_for(notices.get(), PATIENCE) == ("two", False)
            await two.create("s2", CI)
            await one.create("s3", CI)
            await _until(more, heard, 3)
            again = TestServer(create_node_app(two.plane), port=port)
            await again.start_server(**node_options(two.plane), shutdown_timeout=0.1)
            try:
                assert await asyncio.wait_for(notices.get(), PATIENCE) == ("two", True)
                await _until(more, heard, 4)
            finally:
                await again.close()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    assert heard == ["before", "s1", "s3", "s2"]


async def _until(more: asyncio.Event, heard: Sequence[object], count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(heard) < count:
            await more.wait()
            more.clear()


async def test_a_node_that_does_not_answer_is_named(served: _Served) -> None:
    await served.nodes["one"].create("s1", CI)
    await served.nodes["two"].create("s2", CI)
    await served.servers["two"].close()
    for path in ("/api/sessions", "/api/audit", "/api/approvals", "/api/usage"):
        assert (await served.get(path))["missing"] == ["two"]
    assert [item["id"] for item in (await served.get("/api/sessions"))["items"]] == ["s1"]


async def test_what_keys_have_is_asked_of_any_node(served: _Served) -> None:
    """Whichever node answers, it is the cluster's."""
    for name in ("one", "two"):
        await served.nodes[name].create(f"on-{name}", CI)
    async with served.client(CI_KEY) as client:
        for number in range(4):
            await client.memory.add(f"written through the gateway {number}")
        texts = {entry.text for entry in (await client.memory.list()).items}
        assert texts == {f"written through the gateway {number}" for number in range(4)}
    for server in served.servers.values():
        url = server.make_url("/api/keys")
        headers = {"Authorization": f"Bearer {served.secrets[ADMIN_KEY]}"}
        async with ClientSession(headers=headers) as asking, asking.get(url) as answer:
            used = {key["name"]: key["used"] for key in (await answer.json())["items"]}
            assert (used[CI_KEY]["sessions"], used[OTHER_KEY]["sessions"]) == (2, 0)
    keys = (await served.get("/api/keys"))["items"]
    assert {key["name"]: key["used"]["sessions"] for key in keys}[CI_KEY] == 2
    for path in ("/api/hooks", "/api/secrets"):
        assert (await served.get(path))["items"] == []


async def test_admins_list_and_drain_nodes(served: _Served) -> None:
    async with served.client() as client:
        found = await client.nodes.list()
        assert [(node.name, node.state, node.alive) for node in found] == [
            ("one", "ready", True),
            ("two", "ready", True),
        ]
        assert all(node.capacity.sandboxes > 0 for node in found)
        assert (await client.nodes.drain("two")).state == "draining"
        assert (await client.nodes.undrain("two")).state == "ready"


async def test_what_no_node_has_is_refused(served: _Served) -> None:
    """On the node itself; a gateway that finds no node refuses it before."""
    url = served.servers["one"].make_url("/api/sessions")
    headers = {"Authorization": f"Bearer {served.secrets[CI_KEY]}"}
    for body, field in (
        ({"placement": {"labels": {"zone": "b"}}}, "placement.labels.zone"),
        ({"placement": {"labels": {"disk": "ssd"}}}, "placement.labels.disk"),
        ({"placement": {"near": "nobody"}}, "placement.near"),
        ({"recovery": "sometimes"}, "recovery"),
    ):
        async with (
            ClientSession(headers=headers) as client,
            client.post(url, data=json.dumps(body)) as answer,
        ):
            found = await answer.json()
            assert (answer.status, found.get("field")) == (400, field), found
    assert not served.nodes["one"].plane.sessions.registry.live
    given = {"placement": {"labels": {"zone": "a"}}, "permission_level": "low"}
    async with ClientSession(headers=headers) as client, client.post(url, json=given) as answer:
        assert ((await answer.json())["node"], answer.status) == ("one", 201)


async def test_what_a_key_keeps_on_nodes_is_found(served: _Served) -> None:
    """Made near a session, listed as one, and had by sessions that only name it."""
    for name, node in served.nodes.items():
        await node.create(f"at-{name}", CI)
    async with served.client(CI_KEY) as client:
        for name, node_name in (("wheels", "two"), ("models", "one")):
            made = await client.volumes.create(
                name, size_bytes=2**24, placement={"near": f"at-{node_name}"}
            )
            assert made.node == node_name
        found = (await client.volumes.list()).items
        assert [(each.name, each.node) for each in found] == [("models", "one"), ("wheels", "two")]
        with pytest.raises(ConflictError, match="wheels"):
            await client.volumes.create("wheels", size_bytes=2**24, placement={"near": "at-one"})
        for _ in range(4):
            session = await client.sessions.create(
                permission_level="low",
                volumes=[{"name": "wheels", "path": "/data/wheels", "read_only": True}],
            )
            assert session.info.node == "two"
            await session.close(purge=True)
        assert (await client.volumes.remove("models")).node == "one"
        assert [each.name for each in (await client.volumes.list()).items] == ["wheels"]
    async with served.client(OTHER_KEY) as client:
        with pytest.raises(NotFoundError):
            await client.volumes.get("wheels")
        assert (await client.volumes.list()).items == []
    async with served.client() as client:
        assert [each async for each in client.archives.list()] == []
