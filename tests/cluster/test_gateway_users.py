"""Users of an issuer in a cluster: through a gateway, and revoked on all nodes."""

import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientPayloadError, ClientSession
from aiohttp.test_utils import TestServer

from gateway.app import create_app
from gateway.faces.routes import Faces
from gateway.http import http_options
from gateway.keys import FollowedKeys
from gateway.open import open_gateway
from orchestrator.cluster.postgres.key_table import KeyTable
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.ground.task_scope import TaskScope
from orchestrator.rules.access.keys import Principal, Role
from scripts.cluster.database import Database
from tests.api.conftest import Api
from tests.cluster.test_gateway_faces import _Local
from tests.support.cluster_store import CLUSTER, make_schema, opened
from tests.support.fake_cluster import no_tls
from tests.support.postgres import FreshDatabase
from tests.support.shared_nodes import shared_nodes
from tests.support.small_issuer import SmallIssuer, small_issuer
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Corp:
    """Two nodes, a gateway, an issuer, and a key of an admin."""

    one: Api
    two: Api
    url: str
    issuer: SmallIssuer
    admin: str

    async def asked(
        self, token: str, path: str, method: str = "GET", **more: Any
    ) -> tuple[int, Any]:
        """What the gateway answers."""
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            ClientSession(headers=headers) as http,
            http.request(method, self.url + path, **more) as answer,
        ):
            is_json = "json" in answer.content_type
            return answer.status, await (
                answer.json(content_type=None) if is_json else answer.text()
            )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def corp(postgres_server: Database) -> AsyncIterator[Corp]:
    fresh = FreshDatabase(f"test_{secrets.token_hex(8)}", postgres_server)
    postgres_server.start()
    postgres_server.sql(f"CREATE DATABASE {fresh.name}")
    await make_schema(fresh.dsn)
    async with AsyncExitStack() as closers:
        directory = closers.enter_context(tempfile.TemporaryDirectory(prefix="pdk-"))
        issuer = await closers.enter_async_context(small_issuer())
        file = Path(directory) / "oidc.toml"
        issuer.write(file)
        database = await closers.enter_async_context(opened(fresh.dsn))
        admin = await KeyTable(database).add(Principal("root", Role.ADMIN))
        one, two = await closers.enter_async_context(
            shared_nodes(fresh.dsn, "one", "two", oidc_file=file)
        )
        keys = FollowedKeys(database)
        await keys.refresh()
        following = TaskScope("following the keys")
        closers.push_async_callback(following.close)
        following.spawn(keys.follow())
        nodes = _Local(database)
        nodes.servers = {"one": one.server, "two": two.server}
        gateway = await open_gateway(nodes, keys.ring, no_tls)
        closers.push_async_callback(gateway.close)
        server = TestServer(create_app(gateway, faces=Faces(gateway, CLUSTER, NodeAdmin(database))))
        await server.start_server(shutdown_timeout=0.1, **http_options(gateway))
        closers.push_async_callback(server.close)
        yield Corp(one, two, f"http://127.0.0.1:{server.port}", issuer, admin)


async def test_a_gateway_answers_users_as_their_rules_say(corp: Corp) -> None:
    alice, bob = corp.issuer.token("alice.engineers"), corp.issuer.token("bob.engineers")
    status, made = await corp.asked(
        alice, "/api/sessions", "POST", json={"permission_level": "low"}
    )
    assert (status, made["owner"]) == (201, "alice.engineers@corp")
    for path in ("/api/sessions", "/api/audit", "/api/approvals", "/api/usage", "/api/volumes"):
        status, found = await corp.asked(alice, path)
        assert (status, found["missing"]) == (200, []), path
    ids = [
        [each["id"] for each in (await corp.asked(token, "/api/sessions"))[1]["items"]]
        for token in (alice, bob, corp.issuer.token("carol.platform"))
    ]
    assert ids == [[made["id"]], [], [made["id"]]]
    nodes = "/api/nodes"
    assert [len((await corp.asked(each, nodes))[1]["items"]) for each in (alice, corp.admin)] == [
        *(0, 2)
    ]
    status, found = await corp.asked(alice, "/api/nodes/one/drain", "POST")
    assert (status, found["code"]) == (403, "permission_denied")
    status, found = await corp.asked(corp.issuer.token("eve.readers"), "/api/audit")
    assert (status, found["scope"]) == (403, "events:read")
    assert (await corp.asked(corp.issuer.token("eve.readers"), "/api/sessions"))[0] == 200


async def test_a_gateway_passes_on_what_nodes_say_to_who_is_refused(corp: Corp) -> None:
    expired = corp.issuer.token("alice.engineers", iat=1_700_000_000, exp=1_700_000_300)
    status, found = await corp.asked(expired, "/api/sessions")
    assert (status, found["code"]) == (401, "unauthorized")
    assert "sign in again" in found["detail"]
    status, found = await corp.asked(corp.issuer.token("nobody"), "/api/sessions")
    assert (status, found["rule"]) == (403, "no-sign-in-rule")
    assert (await corp.asked("eyJhIjoxfQ.e30.x", "/metrics"))[0] == 401
    assert (await corp.asked(corp.issuer.token("carol.platform"), "/metrics"))[0] == 200


async def test_a_revocation_holds_on_every_node_and_at_the_gateway(corp: Corp) -> None:
    token = corp.issuer.token("dave.platform")
    made = await corp.one.session(key=token, permission_level="low")
    for node in (corp.one, corp.two):
        assert (await node.call("GET", "/api/sessions", key=token)).status == 200
    assert (await corp.asked(token, "/api/nodes"))[0] == 200
    headers = {"Authorization": f"Bearer {token}"}
    events = await corp.two.client.get("/api/events", headers=headers)
    assert events.status == 200
    status, _ = await corp.asked(corp.admin, "/api/users/dave.platform@corp", "DELETE")
    assert status == 204
    with pytest.raises(ClientPayloadError):
        await events.content.read()
    for node in (corp.one, corp.two):
        await _forgotten(node, token)
        assert (await node.call("GET", "/api/sessions", key=token)).status == 401
    assert (await corp.one.call("GET", "/api/sessions", key=made["handle"])).status == 401
    await until_refused(corp, token)
    status, found = await corp.asked(corp.admin, "/api/users?limit=1000")
    names = [(each["name"], each["node"]) for each in found["items"]]
    assert names == sorted(names)
    assert ("dave.platform@corp", "one") in names
    assert ("dave.platform@corp", "two") in names


async def _forgotten(node: Api, token: str) -> None:
    await until(lambda: node.plane.keys.authenticate(token) is None)


async def until_refused(corp: Corp, token: str) -> None:
    """The gateway forgets whom it knows at the news, and not after its time alone."""
    async with ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        while True:
            async with http.get(f"{corp.url}/api/nodes") as answer:
                if answer.status == 401:
                    return


async def test_what_the_database_hears_later_holds_then(
    corp: Corp, postgres_server: Database
) -> None:
    """A node refuses at once; the others as soon as the database is there again."""
    token = corp.issuer.token("frank.engineers")
    for node in (corp.one, corp.two):
        assert (await node.call("GET", "/api/sessions", key=token)).status == 200
    postgres_server.stop()
    try:
        found = await corp.one.problem(
            503, "cluster_unavailable", "DELETE", "/api/users/frank.engineers@corp"
        )
        assert "is refused by this node" in found["detail"]
        assert (await corp.one.call("GET", "/api/sessions", key=token)).status == 401
    finally:
        postgres_server.start()
    await _forgotten(corp.two, token)
