"""Secrets of keys in a cluster: set on one node, used on all, kept while the database is away."""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.config_error import ConfigError
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.state.secret import INSTANCE, Holder
from tests.api.conftest import Api
from tests.support.cluster_store import make_schema
from tests.support.egress import level_with
from tests.support.postgres import FreshDatabase
from tests.support.shared_nodes import node_settings, shared_node, shared_nodes
from tests.support.until import until

VALUE = "sk-canary-" + "4e8b" * 6
BODY: dict[str, Any] = {"value": VALUE, "hosts": ["api.example"], "variable": "KEY"}
RULES = '\n[[egress.allow]]\nhost = "api.example"\ninspect = true\n'


@pytest_asyncio.fixture
async def dsn(postgres: FreshDatabase) -> str:
    await make_schema(postgres.dsn)
    return postgres.dsn


async def names(api: Api, key: str) -> list[str]:
    return [each["name"] for each in (await api.json("GET", "/api/secrets", key=key))["items"]]


async def test_what_one_node_sets_all_have(dsn: str, postgres: FreshDatabase) -> None:
    async with shared_nodes(dsn, "one", "two") as (one, two):
        made = await one.json("POST", "/api/keys", status=201, json={"name": "ci"})
        key = made["key"]
        await until(lambda: two.plane.keys.named("ci") is not None)
        await one.json("PUT", "/api/secrets/openai", key=key, json=BODY)

        await until(lambda: two.plane.secrets.get(Holder("ci"), "openai") is not None)
        assert await names(two, key) == ["openai"]
        listed = await two.json("GET", "/api/secrets", key=key)
        assert VALUE not in str(listed)
        dump = postgres.sql("SELECT encode(sealed, 'escape') FROM paddock.secrets")
        assert VALUE not in dump
        # Another secret's variable is taken on every node; one that is replaced is not.
        await two.problem(409, "conflict", "PUT", "/api/secrets/other", key=key, json=BODY)
        await two.json("PUT", "/api/secrets/openai", key=key, json={**BODY, "hosts": ["b.example"]})
        postgres.server.stop()
        # What the node has goes on; what is changed needs the database.
        assert await names(one, key) == ["openai"]
        for api, method, more in ((one, "PUT", {"json": BODY}), (two, "DELETE", {})):
            await api.problem(
                503, "cluster_unavailable", method, "/api/secrets/openai", key=key, **more
            )


def sent(api: Api, session_id: str) -> str:
    """What the host gets of a request that names the secret."""
    session = api.plane.sessions.registry.get(session_id)
    assert session is not None
    fields = ((b"Authorization", b"Bearer paddock:openai"),)
    head = RequestHead("GET", "api.example", 443, "/", fields, secure=True)
    return api.plane.secrets.fill(session, head).headers[0][1].decode()


async def test_sessions_use_them_without_the_database_and_after_a_restart(
    dsn: str, postgres: FreshDatabase, tmp_path: Path
) -> None:
    (tmp_path / "out.toml").write_text(level_with(RULES, "high", 210))
    more: Any = {"levels_dir": tmp_path}
    with node_settings(dsn, "one", **more) as first, node_settings(dsn, "two", **more) as second:
        async with shared_node(first) as one, shared_node(second) as two:
            made = await one.json("POST", "/api/keys", status=201, json={"name": "ci"})
            key = made["key"]
            await until(lambda: two.plane.keys.named("ci") is not None)
            await two.session(id="there", permission_level="out", key=key)
            await one.json("PUT", "/api/secrets/openai", key=key, json=BODY)
            await until(lambda: VALUE in sent(two, "there"))
            # What is removed on one node is gone on the others, too.
            await one.json("DELETE", "/api/secrets/openai", key=key)
            await until(lambda: VALUE not in sent(two, "there"))
            assert await names(one, key) == []
            await two.json("PUT", "/api/secrets/openai", key=key, json=BODY)
            postgres.server.stop()
            assert VALUE in sent(two, "there")
        # A last good copy is on the node, sealed.
        async with shared_node(second) as two:
            assert await names(two, key) == ["openai"]
            found = two.plane.secrets.get(Holder("ci"), "openai")
            assert found is not None
            assert found.value == SecretStr(VALUE)
        copies = [path for path in second.state_dir.rglob("*") if path.is_file()]
        assert not any(VALUE.encode() in path.read_bytes() for path in copies)


async def test_nodes_must_have_one_key(dsn: str) -> None:
    with node_settings(dsn, "one", seal=None) as without:
        async with shared_node(without) as one:
            problem = await one.problem(409, "conflict", "PUT", "/api/secrets/openai", json=BODY)
            assert "PADDOCK_CLUSTER_SECRETS_KEY_FILE is not set" in problem["detail"]
        async with shared_nodes(dsn, "two") as (two,):
            await two.json("PUT", "/api/secrets/openai", json=BODY)
        # From now on, a node without it, or with another one, does not start.
        for seal in (None, "0" * 64, "short"):
            wrong = pytest.raises(ConfigError, match=r"^PADDOCK_CLUSTER_SECRETS_KEY_FILE")
            with node_settings(dsn, "three", seal=seal) as third, wrong:
                await ControlPlane.open(third, FakeEngine())
        with node_settings(dsn, "four") as right:
            async with shared_node(right) as four:
                assert four.plane.secrets.get(INSTANCE, "openai") is not None
