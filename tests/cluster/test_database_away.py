"""The cluster's database goes away while clients work: what goes on, and what is there after."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.record.audit.verification import verify_all
from scripts.cluster.building import Cluster
from scripts.cluster.database import Database
from scripts.cluster.nodes import Node
from tests.support.cluster_load import Load, loaded
from tests.support.machines import NAMES, client
from tests.support.until import until

# What keys are said to use, and what that comes to by their places and workspaces.
_SUMS = "coalesce(sum(sessions), 0), coalesce(sum(micro_cpus), 0), coalesce(sum(memory_bytes), 0)"
_SAID = f"SELECT {_SUMS}, sum(workspaces), sum(workspace_bytes) FROM key_usage"
_HELD = "SELECT count(*) AS workspaces, coalesce(sum(bytes), 0) AS bytes FROM workspaces"
_COUNTED = f"SELECT p.*, w.* FROM (SELECT {_SUMS} FROM places) p, ({_HELD}) w"


def hangs(database: Database) -> Callable[[], None]:
    """It answers nothing, and its connections stay."""
    database.pause()
    return database.resume


def dies(database: Database) -> Callable[[], None]:
    """It is killed with its connections."""
    database.kill()
    return database.start


@pytest.mark.parametrize(
    ("lose", "seconds"),
    [
        (hangs, 0.0),
        pytest.param(hangs, 60.0, marks=pytest.mark.whole),
        pytest.param(dies, 60.0, marks=pytest.mark.whole),
    ],
)
def test_a_database_that_goes_away_under_load(
    cluster: Cluster, lose: Callable[[Database], Callable[[], None]], seconds: float
) -> None:
    """Until a creation was refused twice, at least, and for longer than a lease if it is whole."""
    (gateway,) = cluster.gateways()
    there = _there(cluster)
    with client(cluster, gateway) as paddock:
        sessions = _on_both(cluster)
        paddock.sessions.create(id="ends", permission_level="low")
        with loaded(paddock, sessions) as load:
            load.wait(lambda: len(load.created) > 1)
            load.goes_on()
            before, refused, lasted = len(load.created), len(load.refused), len(load.seconds)
            back = lose(cluster.database)
            try:
                load.goes_on(seconds=seconds)
                load.wait(lambda: len(load.refused) > refused + 1)
                # What stops does not wait for it.
                paddock.sessions.close("ends", purge=True)
                while_away = load.seconds[lasted:]
            finally:
                back()
            load.wait(lambda: len(load.created) > before + 2)
            load.goes_on()
        _print(load.seconds[:lasted], while_away)
        assert load.refused
        for each in load.refused:
            assert (each.status, each.retry_after) == (503, 3.0)
            assert "database" in each.detail or "lease of this node" in each.detail
        _check_records(cluster, load)
        for name in sessions:
            paddock.sessions.close(name, purge=True)
        # Nothing is left of what was refused, and everything was told that ended meanwhile.
        for node in cluster.nodes():
            asyncio.run(until(lambda node=node: _undelivered(node) == 0))  # type: ignore[misc]
        assert _there(cluster) == there
        assert _asked(cluster, _SAID) == _asked(cluster, _COUNTED)
        paddock.sessions.create(id="ends", permission_level="low").close(purge=True)


def _on_both(cluster: Cluster) -> list[str]:
    """Two sessions on each node, so that each has more than one client."""
    names = [f"works-{node}-{number}" for node in NAMES for number in range(2)]
    for name in names:
        with client(cluster, cluster.node(name.split("-")[1])) as direct:
            direct.sessions.create(id=name, permission_level="low")
    return names


def _asked(cluster: Cluster, query: str) -> str:
    return cluster.database.sql(query, "local").strip()


def _there(cluster: Cluster) -> str:
    """All places and workspaces."""
    return _asked(cluster, "SELECT id FROM places UNION SELECT id FROM workspaces ORDER BY id")


def _ledger(node: Node) -> sqlite3.Connection:
    """The node's database, read beside it."""
    first = node.machine.first_process()
    assert first is not None
    path = Path(f"/proc/{first.pid}/root{node.machine.directory}/state/paddock.db")
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)


def _undelivered(node: Node) -> int:
    with closing(_ledger(node)) as connection:
        return int(connection.execute("SELECT count(*) FROM outbox").fetchone()[0])


def _check_records(cluster: Cluster, load: Load) -> None:
    """All chains are whole, and have each command of which a client has heard."""
    kept: set[str] = set()
    for node in cluster.nodes():
        with closing(_ledger(node)) as connection:
            broken = [key for key, verdict in verify_all(connection) if not verdict.ok]
            assert broken == []
            kept.update(
                command
                for (command,) in connection.execute(
                    "SELECT command_id FROM events WHERE operation = 'command.exit'"
                )
            )
    for name, commands in load.commands.items():
        assert set(commands) <= kept, name


def _print(before: list[float], away: list[float]) -> None:
    """How long commands took, which is no assertion on a busy machine."""
    for what, some in (("with it", sorted(before)), ("without it", sorted(away))):
        half, most = some[len(some) // 2], some[len(some) * 99 // 100]
        print(f"{len(some)} commands {what}: {half * 1e3:.1f} ms, p99 {most * 1e3:.1f} ms")
