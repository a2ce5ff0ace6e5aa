"""`paddock gateway` as a process: what it may do, what it says, and how it stops."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from gateway.privileges import UID
from tests.support.box import PATIENCE
from tests.support.certificates import Authority
from tests.support.cluster_store import CLUSTER, make_schema
from tests.support.postgres import FreshDatabase

_ROOT = os.geteuid() == 0


def _environment(tmp_path: Path, **more: str) -> dict[str, str]:
    authority = Authority(tmp_path)
    pair = authority.sign("gateway")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")},
        "PADDOCK_CLUSTER": "test",
        # Nobody listens there: the database is away.
        "PADDOCK_CLUSTER_DATABASE": "postgresql://nobody@127.0.0.1:1/paddock",
        "PADDOCK_GATEWAY_PORT": "0",
        "PADDOCK_GATEWAY_CERT": str(pair.cert),
        "PADDOCK_GATEWAY_KEY": str(pair.key),
        "PADDOCK_GATEWAY_CA": str(authority.file),
        "PADDOCK_LOG_FORMAT": "console",
        **more,
    }


@asynccontextmanager
async def _gateway(environment: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", "gateway"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        while line := (await process.stdout.readline()).decode():
            if "serving the cluster's API at " in line:
                return line.strip().rpartition(" ")[2]
    raise AssertionError("it has ended")


@pytest.mark.skipif(not _ROOT, reason="needs root, which it gives up")
async def test_it_may_do_nothing_to_its_machine(tmp_path: Path) -> None:
    async with _gateway(_environment(tmp_path)) as process, ClientSession() as client:
        url = await _url(process)
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        )
        assert status["Uid"].split() == [str(UID)] * 4
        assert status["Gid"].split() == [str(UID)] * 4
        assert status["Groups"].split() == []
        assert status["NoNewPrivs"] == "1"
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(status[name], 16) == 0, name
        async with client.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        async with client.get(f"{url}/readyz") as answer:
            assert answer.status == 503
            assert (await answer.json())["checks"]["nodes"] == "0 alive"
        async with client.get(f"{url}/metrics") as answer:
            assert answer.status == 401
        async with client.get(f"{url}/api/sessions/web") as answer:
            assert (answer.status, (await answer.json())["code"]) == (503, "cluster_unavailable")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"PADDOCK_CLUSTER": ""}, "PADDOCK_CLUSTER: must be set"),
        ({"PADDOCK_GATEWAY_CERT": ""}, "PADDOCK_GATEWAY_CERT: must be set"),
        ({"PADDOCK_GATEWAY_CERT": "/none"}, "PADDOCK_GATEWAY_CERT, PADDOCK_GATEWAY_KEY: /none"),
        ({"PADDOCK_GATEWAY_PORT": "x"}, "PADDOCK_GATEWAY_PORT: "),
        ({"PADDOCK_GATEWAY_TLS_CERT": "/x"}, "PADDOCK_GATEWAY_TLS_KEY: "),
        ({"PADDOCK_GATEWAY_HOST": "192.0.2.1"}, "can't listen on 192.0.2.1:0"),
        ({"PADDOCK_CLUSTER_DATABASE": "mysql://u:secret@h/d"}, "PADDOCK_CLUSTER_DATABASE: "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_is_wrong_is_one_line(
    tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    async with _gateway(_environment(tmp_path, **changed)) as process:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    (line,) = output.decode().splitlines()
    assert line.startswith(f"paddock: {said}"), line
    assert "secret" not in line
    assert process.returncode != 0


async def test_a_certificate_that_nodes_refuse_is_one_line(tmp_path: Path) -> None:
    """Foreign, expired, or a node's: it does not start, because nodes would answer nothing."""
    environment = _environment(tmp_path)
    foreign, ours = Authority(tmp_path, "foreign"), Authority(tmp_path, "ours")
    ca = {"PADDOCK_GATEWAY_CA": str(ours.file)}
    for pair, said in (
        (foreign.sign("gateway"), "unable to get local issuer certificate"),
        (ours.sign("gateway", days=-1), "certificate has expired"),
        (ours.sign("node-1"), "its name is node-1, somebody, not gateway"),
    ):
        files = {"PADDOCK_GATEWAY_CERT": str(pair.cert), "PADDOCK_GATEWAY_KEY": str(pair.key)}
        async with _gateway({**environment, **ca, **files}) as process:
            async with asyncio.timeout(PATIENCE):
                output, _ = await process.communicate()
        (line,) = output.decode().splitlines()
        assert line.startswith(f"paddock: PADDOCK_GATEWAY_CERT: {pair.cert}: nodes with"), line
        assert f"would refuse it: {said}; make one: `paddock cluster certificates" in line
        assert process.returncode != 0


async def test_another_clusters_database_or_schema_is_one_line(
    tmp_path: Path, postgres: FreshDatabase
) -> None:
    await make_schema(postgres.dsn)
    changed = {"PADDOCK_CLUSTER_DATABASE": postgres.dsn, "PADDOCK_CLUSTER": "green"}
    newer = "INSERT INTO paddock.migrations VALUES (99, 99)"
    for cluster, statement, said in (
        ("green", "SELECT 1", "is the one of the cluster 'blue', not of 'green': mend PADDOCK"),
        (CLUSTER, newer, "has schema 99, for programs that know 99, and this one knows"),
        (CLUSTER, "DROP SCHEMA paddock CASCADE", "has no tables of a cluster: run `paddock"),
    ):
        await asyncio.to_thread(postgres.sql, statement)
        changed["PADDOCK_CLUSTER"] = cluster
        async with _gateway(_environment(tmp_path, **changed)) as process:
            async with asyncio.timeout(PATIENCE):
                output, _ = await process.communicate()
        (line,) = output.decode().splitlines()
        assert line.startswith(f"paddock: the cluster's database {said}"), line
        assert process.returncode != 0


async def test_it_imports_nothing_of_a_node() -> None:
    """Neither the engine, nor sandboxes, nor what keeps sessions."""
    program = "import sys, gateway.server, gateway.settings\nprint(*sorted(sys.modules), sep='\\n')"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    loaded = output.decode().split()
    assert "gateway.server" in loaded
    forbidden = (
        *("orchestrator.host.link", "orchestrator.host.workspace", "orchestrator.sandbox"),
        *("orchestrator.host.engine.docker", "orchestrator.sessions", "orchestrator.record"),
        *("orchestrator.state", "orchestrator.work", "orchestrator.programs", "api", "docker"),
        "orchestrator.operate",
    )
    found = [
        name
        for name in loaded
        if any(name == each or name.startswith((f"{each}.", f"{each}_")) for each in forbidden)
    ]
    assert not found
