"""The doctor of a node and of a gateway: each thing that can be wrong, and what it says to do."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from api.gateway_listener import for_gateways
from orchestrator.cluster.clocks import clocks_apart
from orchestrator.cluster.postgres import identity, schema
from orchestrator.cluster.tls import GATEWAY, Face
from orchestrator.ground.check import Check, CheckStatus
from orchestrator.ground.store import directories
from orchestrator.ground.store.database import Database
from orchestrator.operate.checks.in_cluster import certificate
from orchestrator.operate.checks.in_cluster.certificate import ShownCertificate, check_certificate
from orchestrator.operate.checks.in_cluster.cluster import DatabaseOf, gateway_checks, node_checks
from orchestrator.operate.checks.in_cluster.database import (
    DatabaseFacts,
    NodeFacts,
    clock_check,
    database_check,
    lease_check,
)
from orchestrator.settings.settings import Settings
from tests.support.certificates import Authority, Pair
from tests.support.cli import run
from tests.support.cluster_store import CLUSTER, joined, make_schema, opened, report, set_lease
from tests.support.postgres import FreshDatabase

NODE = "node-1"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
OURS = schema.migrations()[-1].version
OK, WARNING, FAILURE = CheckStatus.OK, CheckStatus.WARNING, CheckStatus.FAILURE


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def signed(authority: Authority, name: str = NODE, **options: Any) -> Pair:
    pair = authority.sign(name, **{"days": 400, **options})
    pair.key.chmod(0o600)
    return pair


def shown(pair: Pair, authority: Path, name: str = NODE) -> ShownCertificate:
    prefix = "PADDOCK_GATEWAY" if name == GATEWAY else "PADDOCK_NODE"
    return ShownCertificate(prefix, name, pair.cert, pair.key, authority)


@pytest.fixture(autouse=True)
def _long_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The authority of tests ends tomorrow."""
    monkeypatch.setattr(certificate, "_EARLY", timedelta(hours=1))


def test_certificates_that_are_refused(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path, "foreign")
    ca = authority.file
    for of, name, words in (
        (signed(authority), NODE, None),
        (signed(authority, GATEWAY), GATEWAY, None),
        (signed(authority, days=-1), NODE, "certificate has expired"),
        (signed(foreign), NODE, "unable to get local issuer certificate"),
        (signed(authority), "node-2", "certificate is not valid for 'node-2'"),
        (signed(authority), GATEWAY, "its name is node-1, somebody, not gateway"),
        (signed(foreign, GATEWAY), GATEWAY, "unable to get local issuer certificate"),
    ):
        found = check_certificate(shown(of, ca, name))
        assert found.status is (OK if words is None else FAILURE), found
        assert (words or "is valid until") in found.detail
        if words is not None:
            who = "--gateway" if name == GATEWAY else f"--node {name}"
            assert f"`paddock cluster certificates {who} --replace`" in (found.remedy or "")


def test_files_of_certificates(authority: Authority, tmp_path: Path) -> None:
    pair, other = signed(authority), signed(authority, "node-2")
    text = tmp_path / "text"
    text.write_text("no certificate")
    for cert, key, ca, words in (
        (tmp_path / "none", pair.key, authority.file, "No such file"),
        (text, pair.key, authority.file, "no PEM, or the key is another"),
        (pair.cert, other.key, authority.file, "no PEM, or the key is another"),
        (pair.cert, pair.key, text, "no PEM"),
    ):
        found = check_certificate(ShownCertificate("PADDOCK_NODE", NODE, cert, key, ca))
        assert found.status is FAILURE
        assert words in found.detail
        assert found.remedy == "mend PADDOCK_NODE_CERT, _KEY and _CA"
    pair.key.chmod(0o640)
    found = check_certificate(shown(pair, authority.file))
    assert (found.status, found.remedy) == (WARNING, f"chmod 600 {pair.key}")


def test_certificates_that_are_early_or_late(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = shown(signed(authority), authority.file)
    found = certificate.certificate_check(pair, "certificate is not yet valid", NOW, 0o600, NOW)
    assert (found.status, found.remedy) == (FAILURE, "set this clock by NTP")
    monkeypatch.setattr(certificate, "_EARLY", timedelta(days=30))
    for days, status in ((29, WARNING), (31, OK)):
        ends = NOW + timedelta(days=days)
        assert certificate.certificate_check(pair, None, ends, 0o600, NOW).status is status


def facts(**members: Any) -> DatabaseFacts:
    known = schema.State(OURS, OURS, CLUSTER)
    node = NodeFacts("identity", "ready", alive=True, silent_seconds=1.0)
    usual = {"version": 150016, "state": known, "read_only": False, "time": NOW, "asked": NOW}
    more = {"answered": NOW, "node": node, "nodes": {}}
    return DatabaseFacts(**{**usual, **more, **members})


@pytest.mark.parametrize(
    ("members", "status", "words", "remedy"),
    [
        ({}, OK, "PostgreSQL 15.16, schema", None),
        ({"state": None}, FAILURE, "has no tables of a cluster", "run `paddock cluster init`"),
        ({"state": schema.State(0, 0, CLUSTER)}, FAILURE, "has schema 0", "cluster migrate`"),
        ({"state": schema.State(99, 99, CLUSTER)}, FAILURE, "has schema 99", "other machines have"),
        ({"state": schema.State(OURS, OURS, "green")}, FAILURE, "cluster 'green'", "mend PADDOCK"),
        ({"read_only": True}, FAILURE, "is read-only", "list all servers"),
        ({"version": 130004}, WARNING, "PostgreSQL 13.4", "upgrade it to 15"),
        ({"answered": NOW + timedelta(seconds=2)}, WARNING, "2.0 s to answer", "see its load"),
    ],
)
def test_what_the_database_is(
    members: dict[str, Any], status: CheckStatus, words: str, remedy: str | None
) -> None:
    found = database_check(facts(**members), CLUSTER, OURS)
    assert found.status is status, found
    assert words in found.detail
    assert (remedy or "") in (found.remedy or "")


def test_clocks_that_differ() -> None:
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    assert clocks_apart(NOW, NOW, NOW) is None
    # A slow answer is no difference.
    assert clocks_apart(NOW + 8 * second, NOW, NOW + 9 * second) is None
    assert clock_check(facts()).status is OK
    for time, words in ((NOW - hour, "3600 s ahead of"), (NOW + hour, "3600 s behind")):
        found = clock_check(facts(time=time))
        assert found.status is WARNING
        assert words in found.detail
        assert "set both by NTP" in (found.remedy or "")


@pytest.mark.parametrize(
    ("node", "identity", "runs", "status", "words"),
    [
        (None, None, False, OK, "joins the cluster when it starts"),
        (None, "identity", True, WARNING, "has not joined, or was given up"),
        (("identity", "gone", False, 99.0), "identity", True, WARNING, "was given up"),
        (("identity", "ready", True, 1.0), "identity", True, OK, "renewed 1 s ago"),
        (("identity", "draining", True, 1.0), "identity", True, WARNING, "is drained"),
        (("identity", "ready", False, 99.0), "identity", True, FAILURE, "it has ended"),
        (("identity", "ready", False, 99.0), "identity", False, OK, "does not run"),
        (("another", "ready", True, 1.0), "identity", True, FAILURE, "another state directory"),
        (("another", "ready", False, 99.0), None, False, FAILURE, "another state directory"),
    ],
)
def test_the_lease(
    node: tuple[Any, ...] | None, identity: str | None, runs: bool, status: CheckStatus, words: str
) -> None:
    found = facts(node=None if node is None else NodeFacts(*node))
    check = lease_check(found, NODE, identity, runs=runs)
    assert check.status is status, check
    assert words in check.detail
    assert (check.remedy is None) is (status is OK)


@asynccontextmanager
async def listening(pair: Pair, authority: Path) -> AsyncIterator[str]:
    """What listens as a node, and answers everything; its URL."""
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="{}")

    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    settings = Settings.model_construct(
        node_listen="127.0.0.1:0", node_cert=pair.cert, node_key=pair.key, node_ca=authority
    )
    async with for_gateways(settings, {Face.API: runner}, lambda text: None) as port:
        yield f"https://127.0.0.1:{port}"
    await runner.cleanup()


@contextmanager
def running(state_dir: Path) -> Iterator[None]:
    """A control plane that uses the state directory, as others see it."""
    held = directories.lock(state_dir)
    try:
        yield
    finally:
        os.close(held)


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


async def identity_in(state_dir: Path) -> str:
    """Makes the database of a node there, and returns its identity."""
    state_dir.mkdir(mode=0o700)
    database = await Database.open(state_dir / "paddock.db")
    found = await identity.identity(database)
    await database.close()
    return found


async def test_a_node_in_its_cluster(
    postgres: FreshDatabase, authority: Authority, tmp_path: Path
) -> None:
    """All of it with a real database and a real listener: sound, then part by part wrong."""
    await make_schema(postgres.dsn)
    pair, state_dir = signed(authority), tmp_path / "state"
    known = await identity_in(state_dir)

    async def found(**changed: Any) -> dict[str, Check]:
        settings = Settings.model_construct(
            **{
                **{"state_dir": state_dir, "cluster": CLUSTER, "node": NODE, "node_url": url},
                **{"node_cert": pair.cert, "node_key": pair.key, "node_ca": authority.file},
                **{"cluster_database": SecretStr(postgres.dsn), **changed},
                "cluster_database_password_file": None,
            }
        )
        return by_name(await node_checks(settings))

    async with opened(postgres.dsn) as database:
        node = await joined(database, NODE, known)
        async with listening(pair, authority.file) as url:
            # It does not run, so its address is not tried.
            assert "does not run" in (await found())["node address"].detail
            with running(state_dir):
                checks = await found()
                assert {check.status for check in checks.values()} == {OK}, checks
                assert list(checks) == [
                    *("cluster certificate", "cluster database", "cluster clock"),
                    *("node's lease", "node address"),
                ]
                other = (await found(node_cert=signed(authority, days=300).cert))["node address"]
                assert "another certificate" in other.detail
                await set_lease(database, NODE, "-1 s")
                assert (await found())["node's lease"].status is FAILURE
                assert (await found(cluster="green"))["cluster database"].remedy is not None
            await set_lease(database, NODE, "1 day")
        with running(state_dir):
            away = (await found())["node address"]
            assert away.status is FAILURE
            assert "can't be reached" in away.detail
        await node.database.close()
    await asyncio.to_thread(postgres.server.stop)
    checks = await found()
    assert checks["cluster database"].detail == "is not there"
    assert checks["cluster database"].remedy == (
        "start it, or mend the host and port in PADDOCK_CLUSTER_DATABASE"
    )
    assert "node's lease" not in checks


async def test_one_machine_alone_has_no_checks_of_a_cluster(tmp_path: Path) -> None:
    assert not await node_checks(Settings.model_construct(state_dir=tmp_path))


async def test_a_gateway_and_its_ways(
    postgres: FreshDatabase, authority: Authority, tmp_path: Path
) -> None:
    await make_schema(postgres.dsn)
    pair = signed(authority, GATEWAY)
    where = DatabaseOf(CLUSTER, postgres.dsn, None)

    async def found(of: Pair = pair) -> dict[str, Check]:
        return by_name(await gateway_checks(where, of.cert, of.key, authority.file))

    async with (
        listening(signed(authority), authority.file) as url,
        listening(signed(Authority(tmp_path, "foreign")), authority.file) as foreign,
        # It trusts another authority than the one of the gateway.
        listening(signed(authority, "deaf"), Authority(tmp_path, "other").file) as deaf,
        opened(postgres.dsn) as database,
    ):
        urls = {NODE: url, "foreign": foreign, "deaf": deaf, "away": "https://127.0.0.1:1"}
        for name, at in urls.items():
            node = await joined(database, name)
            node.lease.tells(partial(report, name, url=at))
            await node.lease.renew()
        checks = await found()
        assert checks[f"way to {NODE}"].status is OK
        assert "unable to get local issuer" in checks["way to foreign"].detail
        assert "closes the connection without an answer" in checks["way to deaf"].detail
        assert "see its log" in (checks["way to deaf"].remedy or "")
        assert "can't be reached" in checks["way to away"].detail
        checks = await found(signed(authority, "node-9"))
        assert list(checks) == ["cluster certificate", "cluster database", "cluster clock"]
        assert checks["cluster certificate"].status is FAILURE


def test_the_command_for_a_gateway(
    postgres: FreshDatabase, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(make_schema(postgres.dsn))
    pair = signed(authority, GATEWAY)
    monkeypatch.setenv("PADDOCK_CLUSTER", CLUSTER)
    monkeypatch.setenv("PADDOCK_CLUSTER_DATABASE", postgres.dsn)
    monkeypatch.delenv("PADDOCK_GATEWAY_CERT", raising=False)
    # The settings are complete, or the missing one is named.
    assert "PADDOCK_GATEWAY_CERT: must be set" in run("doctor", "--gateway").line
    for name, path in (("CERT", pair.cert), ("KEY", pair.key), ("CA", authority.file)):
        monkeypatch.setenv(f"PADDOCK_GATEWAY_{name}", str(path))
    ended = run("doctor", "--gateway", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["ok"]
    assert {"name", "status", "detail", "remedy"} == {*found["checks"][0]}
    monkeypatch.setenv("PADDOCK_CLUSTER", "green")
    ended = run("doctor", "--gateway")
    assert ended.status == 1
    assert "mend PADDOCK_CLUSTER or PADDOCK_CLUSTER_DATABASE" in " ".join(ended.out.split())
    assert postgres.server.password_file.read_text().strip() not in ended.out + ended.err
