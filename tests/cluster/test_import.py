"""`paddock cluster import`: what a machine had alone, in the cluster that it has joined."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.cluster.certificates import issue
from orchestrator.operate.joining import importing
from orchestrator.rules.access.keys import digest
from orchestrator.settings.settings import Settings
from orchestrator.state.secret import INSTANCE, Holder
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY
from tests.support.box import TESTER
from tests.support.cli import run_beside
from tests.support.cluster_store import CLUSTER, make_schema
from tests.support.postgres import FreshDatabase
from tests.support.shared_nodes import node_settings, shared_node
from tests.support.until import until

VALUE = "sk-canary-" + "7ab1" * 6
KEYS = "".join(
    f'[[keys]]\nname = "{name}"\nrole = "operator"\nsha256 = "{digest(key)}"\nmax_sessions = 7\n'
    for name, key in (("ann", OPERATOR_KEY), ("bob", OTHER_KEY))
)
NOTHING = {"keys": 0, "secrets": 0, "hooks": 0, "memory": 0}


@pytest_asyncio.fixture
async def dsn(postgres: FreshDatabase) -> str:
    await make_schema(postgres.dsn)
    return postgres.dsn


def alone(settings: Settings) -> Settings:
    """The same machine before it was a node."""
    nothing = dict.fromkeys(("cluster", "cluster_database", "node", "cluster_secrets_key_file"))
    return settings.model_copy(update=nothing)


async def fill(settings: Settings) -> None:
    """A machine with keys, secrets, a hook and a memory."""
    settings.state_dir.mkdir(mode=0o700)
    settings.keys_path.write_text(KEYS)
    async with shared_node(alone(settings)) as api:
        body = {"value": VALUE, "hosts": ["api.example"]}
        await api.json("PUT", "/api/secrets/openai", key=OPERATOR_KEY, json=body)
        await api.json("PUT", "/api/secrets/bobs", key=OTHER_KEY, json=body)
        await api.json("PUT", "/api/secrets/everyones", key=ADMIN_KEY, json=body)
        hook = {"url": "https://hooks.example/in", "events": ["session.closed"]}
        await api.json("POST", "/api/hooks", key=ADMIN_KEY, json=hook, status=201)
        for text in ("the first note", "the second note"):
            await api.json("POST", "/api/memory", key=OPERATOR_KEY, json={"text": text})


@pytest.fixture
def machine(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The settings of a node, which commands have as variables."""
    files = issue(tmp_path, "one", ["one.test"], replace=False)
    with node_settings(dsn, "one") as settings:
        for name, value in {
            "CLUSTER": CLUSTER,
            "CLUSTER_DATABASE": dsn,
            "CLUSTER_SECRETS_KEY_FILE": str(settings.cluster_secrets_key_file),
            "NODE": "one",
            "NODE_URL": "https://one.test:8790",
            "NODE_LISTEN": "127.0.0.1:8790",
            **dict(zip(("NODE_CERT", "NODE_KEY", "NODE_CA"), map(str, files), strict=True)),
            "STATE_DIR": str(settings.state_dir),
        }.items():
            monkeypatch.setenv(f"PADDOCK_{name}", value)
        yield settings


async def imported(*words: str) -> dict[str, Any]:
    ended = await run_beside("cluster", "import", "--json", *words)
    assert ended.status == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


async def test_what_a_machine_had_is_the_clusters(
    machine: Settings, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(machine)
    with node_settings(dsn, "two") as other:
        async with shared_node(machine), shared_node(other) as two:
            said = [each for each in caplog.messages if "paddock cluster import" in each]
            assert said == [
                "of what this machine had before it was a node, 2 keys, 3 secrets, 1 hooks and 2 "
                "entries of the memory are not in the cluster: see `paddock cluster import`"
            ]
            found = await imported()
            assert found == {"keys": 2, "secrets": 3, "hooks": 1, "memory": 2, "left": []}
            await until(lambda: two.plane.keys.named("bob") is not None)
            await until(lambda: two.plane.secrets.get(Holder("bob"), "bobs") is not None)
            for holder, name in ((Holder("ann"), "openai"), (INSTANCE, "everyones")):
                secret = two.plane.secrets.get(holder, name)
                assert secret is not None
                assert secret.value is not None
                assert secret.value.get_secret_value() == VALUE
            ann = two.plane.keys.named("ann")
            assert ann is not None
            assert ann.limits.max_sessions == 7
            memory = await two.json("GET", "/api/memory", key=OPERATOR_KEY)
            assert [each["text"] for each in memory["items"]] == [
                "the second note",
                "the first note",
            ]
            await until(lambda: len(two.plane.hooks.visible(TESTER)) == 1)
            assert await imported() == {**NOTHING, "left": []}
        caplog.clear()
        async with shared_node(machine):
            assert not [each for each in caplog.messages if "paddock cluster import" in each]


async def test_a_key_of_the_same_name_gets_nothing_of_another(
    machine: Settings, dsn: str, postgres: FreshDatabase
) -> None:
    await fill(machine)
    with node_settings(dsn, "two") as other:
        async with shared_node(other) as two:
            made = await two.json("POST", "/api/keys", status=201, json={"name": "ann"})
            found = await imported()
            assert {name: found[name] for name in NOTHING} == {
                **{"keys": 1, "secrets": 2, "hooks": 1, "memory": 0}
            }
            left = [(each["owner"], each["number"]) for each in found["left"]]
            assert left == [("ann", 3), ("ann", 1)]  # the secret and the memory; the key
            assert two.plane.secrets.get(Holder("ann"), "openai") is None
            assert (await two.json("GET", "/api/memory", key=made["key"]))["items"] == []
            found = await imported("--owner", "ann")
            assert (found["secrets"], found["memory"]) == (1, 2)
    assert VALUE not in postgres.sql("SELECT encode(sealed, 'escape') FROM paddock.secrets")


async def test_what_can_not_be_taken_is_named(
    machine: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(machine)
    monkeypatch.setattr(importing, "MOST_ENTRIES", 1)
    monkeypatch.delenv("PADDOCK_CLUSTER_SECRETS_KEY_FILE")
    found = await imported()
    assert {name: found[name] for name in NOTHING} == {**NOTHING, "keys": 2, "memory": 1}
    assert {(each["owner"], each["reason"], each["number"]) for each in found["left"]} == {
        ("admin", "PADDOCK_CLUSTER_SECRETS_KEY_FILE is not set", 2),
        ("ann", "PADDOCK_CLUSTER_SECRETS_KEY_FILE is not set", 1),
        ("bob", "PADDOCK_CLUSTER_SECRETS_KEY_FILE is not set", 1),
        ("ann", "the cluster's memory has 1 entries of it already", 1),
    }


async def test_another_clusters_key_changes_nothing(
    machine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(machine)
    async with shared_node(machine):
        pass  # its key is the cluster's
    other = tmp_path / "other.key"
    other.write_text("0" * 64)
    monkeypatch.setenv("PADDOCK_CLUSTER_SECRETS_KEY_FILE", str(other))
    ended = await run_beside("cluster", "import")
    assert ended.status != 0
    assert "PADDOCK_CLUSTER_SECRETS_KEY_FILE has another key" in ended.line
