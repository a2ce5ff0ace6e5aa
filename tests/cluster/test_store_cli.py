"""`paddock cluster`: tables, nodes and certificates by commands, with plain errors."""

import asyncio
import json
import ssl
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from api.cli.cluster_moves import complete_node
from orchestrator.cluster.certificates import issue
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.schema import migrations
from orchestrator.cluster.tls import node_context
from orchestrator.ground.config_error import ConfigError
from paddock.cli.program import build
from tests.support.cli import run
from tests.support.cluster_store import CLUSTER, claim, joined, opened, set_lease
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import FreshDatabase

# A node's certificate that would let it in as a gateway.
_AS_GATEWAY = ("--node", "x", "--host", "gateway")
NAMES = (
    *("init", "migrate", "status", "nodes", "drain", "undrain", "forget", "certificates"),
    *("move", "record", "import"),
)


@pytest.fixture
def cluster(
    postgres: FreshDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> FreshDatabase:
    """The variables of a cluster whose database is empty."""
    for name in ("PADDOCK_CONFIG_FILE", "PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_CLUSTER", CLUSTER)
    monkeypatch.setenv("PADDOCK_CLUSTER_DATABASE", postgres.dsn)
    monkeypatch.chdir(tmp_path)
    return postgres


def done(*words: str, **options: Any) -> Any:
    """The JSON that a command prints."""
    ended = run("cluster", *words, "--json", **options)
    assert ended.status == 0, ended.err
    return json.loads(ended.out)


def beside(dsn: str, work: Callable[[ClusterDatabase], Coroutine[Any, Any, None]]) -> None:
    """Does something as a node."""

    async def do() -> None:
        async with opened(dsn) as database:
            await work(database)

    asyncio.run(do())


def test_each_command_has_its_help_and_an_example() -> None:
    built: Any = build()
    group = built.commands["cluster"]
    assert set(group.commands) == set(NAMES)
    for name in NAMES:
        shown = run("cluster", name, "--help")
        assert shown.status == 0
        assert f"paddock cluster {name}" in shown.out


def test_a_cluster_is_made_once_and_used(cluster: FreshDatabase) -> None:
    refused = run("cluster", "status")
    assert refused.status != 0
    assert "has no tables of a cluster: run `paddock cluster init`" in refused.line
    assert "paddock cluster init" in run("cluster", "migrate").line
    made = done("init")
    assert made["cluster"] == CLUSTER
    assert made["migrations"]
    assert made["admin_key"].startswith("pdk_")
    assert done("init") == {"cluster": CLUSTER, "migrations": [], "admin_key": None}
    assert done("migrate") == {"migrations": []}
    said = run("cluster", "init")
    for name in ("PADDOCK_NODE_URL", "PADDOCK_NODE_CA", "PADDOCK_GATEWAY_CERT"):
        assert name in said.err
    assert cluster.dsn not in said.out + said.err

    async def work(database: ClusterDatabase) -> None:
        for name in ("node-1", "node-2"):
            node = await joined(database, name)
            await node.places.claim(claim(name))
        await set_lease(database, "node-2", "-1 s")

    beside(cluster.dsn, work)
    found = done("status")
    assert found == {
        **{
            "cluster": CLUSTER,
            "schema": migrations()[-1].version,
            "nodes": 2,
            "alive": 1,
            "draining": 0,
        },
        **{"sessions": 2, "workspaces": 2, "keys": 1},
    }
    shown = {each["name"]: each for each in done("nodes")}
    assert [shown[name]["state"] for name in ("node-1", "node-2")] == ["ready", "lost"]
    assert run("cluster", "nodes", "-q").out.split() == ["node-1", "node-2"]
    table = run("cluster", "nodes").out
    assert "https://node-1.test:8790" in table
    assert complete_node("node-") == ["node-1", "node-2"]
    assert complete_node("x") == []
    assert run("cluster", "drain", "node-1").status == 0
    assert {each["name"]: each["state"] for each in done("nodes")}["node-1"] == "draining"
    assert done("status")["draining"] == 1
    assert run("cluster", "undrain", "node-1").status == 0
    assert done("status")["draining"] == 0
    assert "no node 'x'" in run("cluster", "drain", "x").line


def test_forgetting_says_what_it_means_and_asks(cluster: FreshDatabase) -> None:
    done("init")

    async def work(database: ClusterDatabase) -> None:
        node = await joined(database, "node-1")
        await node.places.claim(claim("a"))
        await node.places.claim(claim("b"))
        await node.release("key-a")

    beside(cluster.dsn, work)
    alive = run("cluster", "forget", "node-1", "--yes")
    assert alive.status != 0
    assert "is alive: drain it" in alive.line
    beside(cluster.dsn, lambda database: set_lease(database, "node-1", "-1 s"))
    asked = run("cluster", "forget", "node-1")
    assert asked.status != 0
    assert "give up 1 sessions and 2 workspaces on node-1, which must be switched off" in asked.line
    assert done("status")["sessions"] == 1
    gone = done("forget", "node-1", "--yes")
    assert gone == {"node": "node-1", "sessions": 1, "workspaces": 2}
    assert done("status")["nodes"] == 0
    assert "no node 'node-1'" in run("cluster", "forget", "node-1", "--yes").line


def test_wrong_settings_name_themselves_and_show_no_password(
    cluster: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("init")
    password = cluster.server.password_file.read_text().strip()
    wrong = cluster.dsn.replace(password, "sesame")
    for variables, words in (
        ({"PADDOCK_CLUSTER": ""}, "PADDOCK_CLUSTER: must be set"),
        ({"PADDOCK_CLUSTER": "A b"}, "PADDOCK_CLUSTER: must have 1 to 63 small letters"),
        ({"PADDOCK_CLUSTER": "green"}, "is the one of the cluster 'blue', not of 'green'"),
        ({"PADDOCK_CLUSTER_DATABASE": ""}, "PADDOCK_CLUSTER_DATABASE: must be set"),
        ({"PADDOCK_CLUSTER_DATABASE": "mysql://sesame@h/d"}, "must look like postgresql://"),
        ({"PADDOCK_CLUSTER_DATABASE": wrong}, "refuses our name or password"),
        ({"PADDOCK_CLUSTER_DATABASE": "postgresql://u@127.0.0.1:1/d"}, "is not there: start it"),
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            for command in ("status", "nodes", "init"):
                refused = run("cluster", command)
                assert refused.status != 0
                assert words in refused.line, command
                assert "sesame" not in refused.err
            assert complete_node("") == []


def test_keys_are_the_clusters(cluster: FreshDatabase) -> None:
    done("init")
    made = run("keys", "create", "ci", "--max-sessions", "3", "--json")
    assert made.status == 0, made.err
    assert json.loads(made.out)["keys_file"] == "the cluster's database"
    assert run("keys", "list", "-q").out.split() == ["admin", "ci"]
    assert "'ci' is taken" in run("keys", "create", "ci").line
    assert run("keys", "revoke", "ci").status == 0
    assert "no key 'ci'" in run("keys", "revoke", "ci").line
    assert run("keys", "list", "-q").out.split() == ["admin"]


def test_a_server_that_does_not_answer_is_given_up(cluster: FreshDatabase) -> None:
    done("init")
    cluster.server.pause()
    assert "does not answer in time" in run("cluster", "status").line
    cluster.server.resume()
    assert done("status")["keys"] == 1


def test_certificates_of_nodes_and_gateways(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    made = json.loads(
        run(
            *("cluster", "certificates", "--node", "node-1", "--host", "node-1.internal"),
            *("--host", "10.0.0.1", "--directory", str(folder), "--json"),
        ).out
    )
    ended = run("cluster", "certificates", "--gateway", "--directory", str(folder))
    assert "PADDOCK_GATEWAY_CERT" in ended.out
    assert {path.name for path in folder.iterdir()} == {
        *("ca.key", "ca.pem", "gateway.key", "gateway.pem", "node-1.key", "node-1.pem")
    }
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    node = x509.load_pem_x509_certificate(Path(made["certificate"]).read_bytes())
    gateway = x509.load_pem_x509_certificate((folder / "gateway.pem").read_bytes())
    names = node.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    # Gateways ask for its name, others for its host.
    assert names.get_values_for_type(x509.DNSName) == ["node-1", "node-1.internal"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    (name,) = gateway.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "gateway"
    for certificate, purposes in (
        (node, {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}),
        (gateway, {ExtendedKeyUsageOID.CLIENT_AUTH}),
    ):
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert set(uses) == purposes
    again = run("cluster", "certificates", "--gateway", "--directory", str(folder))
    assert again.status != 0
    assert "--replace makes another one" in again.line
    for words in (
        ("--gateway", "--node", "x"),
        (),
        ("--node", "gateway"),
        ("--node", "../x"),
        _AS_GATEWAY,
    ):
        refused = run("cluster", "certificates", *words, "--directory", str(folder))
        assert refused.status != 0
    (folder / "ca.key").write_text("broken")
    with pytest.raises(ConfigError, match=r"ca\.key"):
        issue(folder, "node-2", ["node-2"])


async def test_only_a_gateway_gets_to_a_node(tmp_path: Path) -> None:
    """Over real connections: a node's certificate, a foreign one and none are refused."""
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    node = issue(ours, "node-1", ["localhost"])
    server = node_context(node.certificate, node.key, node.authority)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server)
    port = listener.sockets[0].getsockname()[1]

    async def reached(files: Any) -> bytes:
        client = ssl.create_default_context(cafile=node.authority)
        if files is not None:
            client.load_cert_chain(files.certificate, files.key)
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client, server_hostname="localhost"
            )
            try:
                return await reader.read()
            finally:
                writer.close()
        except (ssl.SSLError, ConnectionError):
            return b""

    async with asyncio.timeout(WAIT_SECONDS):
        assert await reached(issue(ours, "gateway", [])) == b"hello"
        assert await reached(issue(ours, "node-2", ["node-2"])) == b""
        assert await reached(issue(foreign, "gateway", [])) == b""
        assert await reached(None) == b""
    listener.close()
    await listener.wait_closed()
