"""The cluster's keys at a gateway: told of at once, and not valid for ever without the database."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.keys import FollowedKeys
from orchestrator.cluster.postgres.key_table import KeyTable
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from tests.support.cluster_store import make_schema, opened
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import FreshDatabase


@pytest_asyncio.fixture
async def database(postgres: FreshDatabase) -> AsyncIterator[ClusterDatabase]:
    await make_schema(postgres.dsn)
    async with opened(postgres.dsn) as found:
        yield found


async def test_changes_are_told_without_being_asked_for(
    database: ClusterDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is looked at within the test but what the database tells of.
    keys = FollowedKeys(database, look_seconds=10 * WAIT_SECONDS)
    known: asyncio.Queue[list[str]] = asyncio.Queue()
    replace = keys.ring.replace

    def replaced(ring: KeyRing) -> None:
        replace(ring)
        known.put_nowait(sorted(key.name for key in keys.ring.all))

    monkeypatch.setattr(keys.ring, "replace", replaced)
    table = KeyTable(database)
    following = asyncio.create_task(keys.follow())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            assert await known.get() == []
            await table.add(Principal("ann", Role.OPERATOR))
            assert await known.get() == ["ann"]
            await table.remove("ann")
            assert await known.get() == []
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_keys_end_some_time_after_the_last_contact(
    database: ClusterDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await KeyTable(database).add(Principal("ann", Role.OPERATOR))
    now = 0.0
    keys = FollowedKeys(database, lambda: now)
    await keys.refresh()

    async def away(work: object) -> None:
        raise ClusterUnavailableError("it is away")

    monkeypatch.setattr(database, "transaction", away)
    now = 900.0
    await keys.refresh()
    assert [key.name for key in keys.ring.all] == ["ann"]
    now = 901.0
    await keys.refresh()
    assert not list(keys.ring.all)
