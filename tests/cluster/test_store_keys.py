"""Keys of a cluster: in force on all nodes at once, and for a while without the database."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.cluster.postgres import keys as following
from orchestrator.cluster.postgres.key_copy import Clocks, KeyCopy
from orchestrator.cluster.postgres.key_table import KeyTable
from orchestrator.cluster.postgres.keys import PostgresKeys
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.tasks import Tasks
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.keys import ADMIN_NAME, KeyRing, Principal, Role, digest
from tests.support.cluster_store import CLUSTER, make_schema, opened
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import FreshDatabase

OWN_SECRET = "this machine's admin key"
VALID = 900.0


@pytest_asyncio.fixture
async def database(postgres: FreshDatabase) -> AsyncIterator[ClusterDatabase]:
    await make_schema(postgres.dsn)
    async with opened(postgres.dsn) as found:
        yield found


class OwnKeys:
    """This machine's files: an admin key, and one that does not count in a cluster."""

    store = None

    async def load(self) -> KeyRing:
        """Both."""
        local = Principal("local", Role.OPERATOR)
        own = Principal(ADMIN_NAME, Role.ADMIN)
        return KeyRing({digest(OWN_SECRET): own, digest("local"): local})

    def follow(self, keys: KeyRing, tasks: Tasks) -> None:
        """Files are watched by others."""


class Times:
    """The clocks of a machine that has started `boot`."""

    def __init__(self) -> None:
        self.since_boot, self.of_day = 500.0, 1_000_000.0

    def clocks(self, boot: str = "first") -> Clocks:
        """As the copy reads them."""
        return Clocks(boot, lambda: self.since_boot, lambda: self.of_day)


def source(
    database: ClusterDatabase, path: Path, clocks: Clocks | None = None, valid: float = VALID
) -> PostgresKeys:
    copy = KeyCopy(path, CLUSTER, clocks or Times().clocks())
    return PostgresKeys(database, OwnKeys(), copy, valid, look_seconds=0.05)


async def test_a_key_has_all_that_its_entry_says(database: ClusterDatabase, tmp_path: Path) -> None:
    table = KeyTable(database)
    expiry = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    made = Principal(
        "ci",
        Role.OPERATOR,
        limits=KeyLimits(max_sessions=3, max_cpus=1.5, requests_per_second=2.0),
        bounds=KeyBounds("medium", ("sandbox",), ("psql",), 60, 3600),
        expires_at=expiry,
    )
    secret = await table.add(made)
    viewer = await table.add(Principal("eve", Role.VIEWER, owner="ci"))
    ring = await source(database, tmp_path / "copy").load()
    assert ring.authenticate(secret) == made
    assert ring.authenticate(viewer) == Principal("eve", Role.VIEWER, owner="ci")
    own = ring.authenticate(OWN_SECRET)
    assert own is not None
    assert own.role is Role.ADMIN
    # Files of keys are no part of a cluster.
    assert ring.authenticate("local") is None
    with pytest.raises(ConflictError, match="'ci' is taken"):
        await table.add(made)
    with pytest.raises(ConflictError, match="'ci' is taken"):
        await table.check(made)
    await table.remove("ci")
    with pytest.raises(NotFoundError, match="no key 'ci'"):
        await table.remove("ci")
    assert [key.name for key in await table.list()] == ["eve"]


async def test_a_rotated_key_has_two_secrets_for_the_overlap(
    database: ClusterDatabase, tmp_path: Path
) -> None:
    table = KeyTable(database)
    first = await table.add(Principal("ci", Role.OPERATOR, scopes=frozenset({"exec"})))
    second = await table.rotate("ci", timedelta(hours=1))
    ring = await source(database, tmp_path / "copy").load()
    for secret in (first, second):
        known = ring.authenticate(secret)
        assert known is not None
        assert (known.name, known.scopes) == ("ci", frozenset({"exec"}))
    with pytest.raises(ConflictError, match="without an overlap"):
        await table.rotate("ci", timedelta(hours=1))
    third = await table.rotate("ci", timedelta())
    ring = await source(database, tmp_path / "copy").load()
    assert [ring.authenticate(each) is None for each in (first, second, third)] == [
        True,
        True,
        False,
    ]
    with pytest.raises(NotFoundError, match="no key 'cd'"):
        await table.rotate("cd", timedelta())


async def test_an_entry_of_a_later_version_is_refused_and_others_work(
    database: ClusterDatabase, tmp_path: Path
) -> None:
    table = KeyTable(database)
    strange, good = (
        await table.add(Principal("a", Role.OPERATOR)),
        await table.add(Principal("b", Role.OPERATOR)),
    )

    async def limit(connection: Any) -> None:
        await connection.execute(
            """UPDATE keys SET entry = entry || '{"max_moons": 1}' WHERE name = 'a'"""
        )

    await database.transaction(limit)
    ring = await source(database, tmp_path / "copy").load()
    assert ring.authenticate(strange) is None
    assert ring.authenticate(good) is not None


async def changed(ring: KeyRing, act: Callable[[], Any]) -> None:
    """Acts, and waits until the keys change."""
    news = asyncio.Event()
    done = ring.on_change(news.set)
    await act()
    async with asyncio.timeout(WAIT_SECONDS):
        await news.wait()
    done()


async def test_changes_are_in_force_everywhere_without_asking(
    database: ClusterDatabase, tmp_path: Path
) -> None:
    table = KeyTable(database)
    first = await table.add(Principal("first", Role.OPERATOR))
    nodes, news = [], []
    for number in range(2):
        copy = KeyCopy(tmp_path / f"copy-{number}", CLUSTER, Times().clocks())
        # It never asks by itself.
        keys = PostgresKeys(database, OwnKeys(), copy, VALID, look_seconds=1e6)
        ring = await keys.load()
        await changed(ring, partial(_start, keys, ring))
        nodes.append((keys, ring))
        changes: asyncio.Queue[None] = asyncio.Queue()
        ring.on_change(partial(changes.put_nowait, None))
        news.append(changes)

    async def heard() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*(changes.get() for changes in news))

    second = await table.add(Principal("second", Role.OPERATOR))
    await heard()
    assert all(ring.authenticate(second) for _, ring in nodes)
    await table.remove("first")
    await heard()
    assert not any(ring.authenticate(first) for _, ring in nodes)
    for keys, _ in nodes:
        await keys.close()


async def _start(keys: PostgresKeys, ring: KeyRing) -> None:
    keys.follow(ring, Tasks())


async def test_without_the_database_the_last_good_copy_counts_for_a_while(
    database: ClusterDatabase, postgres: FreshDatabase, tmp_path: Path
) -> None:
    secret = await KeyTable(database).add(Principal("ci", Role.OPERATOR))
    times, path = Times(), tmp_path / "copy.json"
    await source(database, path, times.clocks()).load()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in path.read_text()
    await asyncio.to_thread(postgres.server.stop)

    async def known(clocks: Clocks) -> bool:
        ring = await source(database, path, clocks).load()
        assert ring.authenticate(OWN_SECRET) is not None
        return ring.authenticate(secret) is not None

    times.since_boot += VALID - 1
    # The time of day does not count on a machine that has not been started again.
    times.of_day -= 3600
    assert await known(times.clocks())
    times.since_boot += 1
    assert not await known(times.clocks())
    times.since_boot, times.of_day = 5.0, 1_000_000.0 + VALID - 1
    assert await known(times.clocks("second"))
    times.of_day += 1
    assert not await known(times.clocks("second"))
    times.of_day = 999_999.0
    assert not await known(times.clocks("second"))
    for content in ("", "{}", "[]", '{"cluster": "blue", "boot": 1, "at": "x", "entries": {}}'):
        path.write_text(content)
        assert not await known(Times().clocks())
    path.write_text(json.dumps({"cluster": "green"}))
    assert not await known(Times().clocks())


async def test_keys_end_when_they_are_no_longer_valid_and_come_back(
    database: ClusterDatabase,
    postgres: FreshDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "_PAUSE_SECONDS", 0.05)
    secret = await KeyTable(database).add(Principal("ci", Role.OPERATOR))
    keys = source(database, tmp_path / "copy", valid=2.0)
    ring = await keys.load()
    await changed(ring, partial(_start, keys, ring))
    await changed(ring, lambda: asyncio.to_thread(postgres.server.stop))
    assert ring.authenticate(secret) is None
    assert ring.authenticate(OWN_SECRET) is not None
    await changed(ring, lambda: asyncio.to_thread(postgres.server.start))
    assert ring.authenticate(secret) is not None
    await keys.close()
