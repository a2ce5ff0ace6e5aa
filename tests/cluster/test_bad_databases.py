"""Databases that are full, held or failing over, and clocks that differ: said, and nothing lost."""

import asyncio
import logging
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.cluster.postgres.membership import PostgresMembership
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.tasks import Tasks
from scripts.cluster.database import DatabaseError
from tests.support.cli import run
from tests.support.cluster_store import (
    CLUSTER,
    StoreNode,
    claim,
    counted_anew,
    joined,
    made_node,
    make_schema,
    opened,
    report,
    usage_of,
)
from tests.support.limits import PROGRAM_SECONDS
from tests.support.postgres import FreshDatabase
from tests.support.until import until

# So long, a statement of the tested node waits for a lock.
SHORT = 1.0
_FULL = "has no disk space left: make room on its server"


@pytest_asyncio.fixture
async def node(postgres: FreshDatabase) -> AsyncIterator[StoreNode]:
    await make_schema(postgres.dsn)
    async with opened(postgres.dsn, SHORT) as database:
        yield await joined(database, "node-1")


@pytest.fixture
def commands(postgres: FreshDatabase, monkeypatch: pytest.MonkeyPatch) -> FreshDatabase:
    """The variables that commands need to find the database."""
    monkeypatch.setenv("PADDOCK_CLUSTER", CLUSTER)
    monkeypatch.setenv("PADDOCK_CLUSTER_DATABASE", postgres.dsn)
    return postgres


async def said_by(node: StoreNode, session_id: str) -> str:
    """The line that a refused claim says."""
    with pytest.raises(ClusterUnavailableError) as caught:
        await node.places.claim(claim(session_id))
    assert "\n" not in caught.value.detail
    return caught.value.detail


async def command(*words: str) -> str:
    """The line that a refused command says."""
    ended = await asyncio.to_thread(run, "cluster", *words)
    assert ended.status != 0
    return ended.line


async def whole(node: StoreNode, *sessions: str) -> None:
    """The node has these sessions, and what is counted is what there is."""
    assert await node.sessions() == {f"key-{each}" for each in sessions}
    assert await usage_of(node.database) == await counted_anew(node.database)


@contextmanager
def small_disk(postgres: FreshDatabase) -> Iterator[Path]:
    """A full file system for the database's server: 4 MB, without its first."""
    with tempfile.TemporaryDirectory(prefix="paddock-full-") as directory:
        os.chmod(directory, 0o755)
        owner = postgres.server.directory.stat().st_uid
        options = f"size=4m,mode=700,uid={owner},gid={postgres.server.directory.stat().st_gid}"
        mount = ("mount", "-t", "tmpfs", "-o", options, "none", directory)
        subprocess.run(mount, check=True, timeout=PROGRAM_SECONDS)
        try:
            yield Path(directory)
        finally:
            subprocess.run(("umount", "-l", directory), check=True, timeout=PROGRAM_SECONDS)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
async def test_a_full_disk(commands: FreshDatabase, node: StoreNode) -> None:
    """A real one: claims, ends and commands say so; what was confirmed before is there after."""
    await node.places.claim(claim("before"))
    sql = commands.sql
    space = f"small_{commands.name}"
    with small_disk(commands) as directory:
        await asyncio.to_thread(sql, f"CREATE TABLESPACE {space} LOCATION '{directory}'")
        try:
            for table in ("places", "nodes", "key_usage", "outboxes"):
                moved = f"ALTER TABLE paddock.{table} SET TABLESPACE {space}"
                await asyncio.to_thread(sql, moved)
            for index in ("places_pkey", "places_session_key_key"):
                moved = f"ALTER INDEX paddock.{index} SET TABLESPACE {space}"
                await asyncio.to_thread(sql, moved)
            # Until nothing is left; the statement itself fails.
            filler = f"CREATE TABLE filler (text text) TABLESPACE {space}"
            await asyncio.to_thread(sql, filler)
            await asyncio.to_thread(fill, commands)
            said = await until_full(node)
            assert _FULL in said
            # Ends wait in the outbox until there is room.
            assert "before" in {key.removeprefix("key-") for key in await node.sessions()}
            await asyncio.to_thread(sql, "DROP TABLE filler")
            await node.places.claim(claim("after"))
            assert await usage_of(node.database) == await counted_anew(node.database)
            assert {"key-before", "key-after"} <= await node.sessions()
        finally:
            await asyncio.to_thread(sql, "DROP SCHEMA IF EXISTS paddock CASCADE")
            await asyncio.to_thread(sql, "DROP TABLE IF EXISTS filler")
            await asyncio.to_thread(sql, f"DROP TABLESPACE {space}")


def fill(postgres: FreshDatabase) -> None:
    """Fills the small disk, in ever smaller pieces."""
    for size in (1_000_000, 100_000, 8_000, 100):
        for _ in range(200):
            try:
                # Random text is not compressed.
                postgres.sql(
                    "INSERT INTO filler SELECT string_agg(md5(random()::text), '')"
                    f" FROM generate_series(1, {size // 32 + 1})"
                )
            except DatabaseError:
                break


async def until_full(node: StoreNode) -> str:
    """What is said by the first claim for which the pages that are there have no room."""
    for number in range(2000):
        try:
            await node.places.claim(claim(f"s{number}"))
        except ClusterUnavailableError as error:
            return error.detail
    raise AssertionError("there was always room")


async def test_rows_that_others_hold(commands: FreshDatabase, node: StoreNode) -> None:
    """Slow without an end: a statement ends in time, on the server too, and holds nothing after."""
    await node.places.claim(claim("before"))
    async with opened(commands.dsn) as other:

        async def hold(connection: object) -> None:
            await connection.execute("LOCK TABLE places")  # type: ignore[attr-defined]
            said = await said_by(node, "refused")
            assert "is too slow, or others hold its rows: see its load and locks" in said

        await other.transaction(hold)
    await node.places.claim(claim("after"))
    await whole(node, "before", "after")


async def test_another_server_behind_the_same_address(
    commands: FreshDatabase, node: StoreNode
) -> None:
    """A fail-over to one that has everything, then one that only reads, then another cluster's."""
    await node.places.claim(claim("before"))
    name, server = commands.name, commands.server

    async def fails_over(change: str = "") -> None:
        """All connections end; a copy of the database has the name from now on."""
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        copied = f"CREATE DATABASE {name}_copy TEMPLATE {name}"
        renamed = (f"DROP DATABASE {name}", f"ALTER DATABASE {name}_copy RENAME TO {name}")
        for statement in (ended, copied, *renamed):
            await asyncio.to_thread(server.sql, statement)
        if change:
            await asyncio.to_thread(server.sql, change, name)

    await fails_over()
    await _in_time(node, "after")
    await whole(node, "before", "after")

    await fails_over(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "is read-only, as a standby is: end its fail-over" in await _refused(node)
    assert "is read-only" in await command("drain", "node-1")
    assert "is read-only" in await command("init")
    await asyncio.to_thread(
        server.sql, f"ALTER DATABASE {name} RESET default_transaction_read_only"
    )
    await node.places.claim(claim("later"))

    await fails_over("UPDATE paddock.cluster SET name = 'green'")
    assert "is the one of the cluster 'green', not of 'blue'" in await _refused(node)
    assert "is the one of the cluster 'green'" in await command("nodes")
    await asyncio.to_thread(commands.sql, "UPDATE paddock.cluster SET name = 'blue'")
    await whole(node, "before", "after", "later")

    await asyncio.to_thread(commands.sql, "INSERT INTO paddock.migrations VALUES (99, 99)")
    for words in (("nodes",), ("drain", "node-1"), ("migrate",)):
        assert "install the version that the cluster's other machines have" in await command(*words)


async def _refused(node: StoreNode) -> str:
    """What is said once connections that had ended are noticed."""
    said = await said_by(node, "refused")
    return await said_by(node, "refused") if "connection" in said else said


async def _in_time(node: StoreNode, session_id: str) -> None:
    """Claims it, if need be after the ended connections were noticed."""
    try:
        await node.places.claim(claim(session_id))
    except ClusterUnavailableError:
        await node.unclaim(f"key-{session_id}")
        await node.places.claim(claim(session_id))


async def test_a_clock_that_is_an_hour_off(
    postgres: FreshDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and once when it is mended; the lease does not depend on it."""
    await make_schema(postgres.dsn)
    caplog.set_level(logging.INFO, "orchestrator.cluster.postgres.membership")
    off = timedelta(hours=-1)

    async def compared() -> None:
        pass

    class Capacity:
        def report(self) -> object:
            return report("node-1")

    async with opened(postgres.dsn) as database:
        node = made_node(database, "node-1", today=lambda: datetime.now(UTC) + off)
        tasks = Tasks()
        membership = PostgresMembership(node.lease, tasks, _nothing_sent)
        await membership.join(Capacity(), compared)  # type: ignore[arg-type]
        (line,) = _about_clocks(caplog)
        assert "this machine's clock is 3600 s behind that of the cluster's database" in line
        assert "set both by NTP" in line
        assert node.lease.alive
        await node.places.claim(claim("a"))
        off = timedelta()
        await until(lambda: len(_about_clocks(caplog)) > 1)
        assert "agree again" in _about_clocks(caplog)[-1]
        await membership.close()


async def _nothing_sent() -> int:
    return 0


def _about_clocks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]
