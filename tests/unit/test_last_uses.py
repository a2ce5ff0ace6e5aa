"""Uses of keys are written seldom, and survive a restart, as do the scopes of removed keys."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest_asyncio

from orchestrator.ground.store.database import Database
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from orchestrator.rules.access.last_uses import LastUses

SCOPES = frozenset({"sessions:create"})
KEYS = {digest("secret"): Principal("ci", Role.OPERATOR, scopes=SCOPES)}
HANDLE = Principal("handle:s", Role.HANDLE, "s:1", "ci")


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    found = await Database.open(tmp_path / "paddock.db")
    yield found
    await found.close()


async def _written(database: Database) -> list[int | None]:
    return await database.read(
        lambda db: [row[0] for row in db.execute("SELECT used_at FROM known_keys")]
    )


async def test_a_use_is_written_at_most_once_a_minute(database: Database) -> None:
    moments = [100_000.0]
    ring = KeyRing(KEYS)
    uses = LastUses(database, ring, lambda: moments[-1])
    await uses.load()
    for moment in (100_000.0, 100_030.0, 100_059.0):
        moments.append(moment)
        ring.authenticate("secret")
    await uses.close()
    assert await _written(database) == [100_000]
    assert uses.of("ci") == datetime.fromtimestamp(100_059, UTC)
    after = LastUses(database, KeyRing(KEYS))
    await after.load()
    assert after.of("ci") == datetime.fromtimestamp(100_000, UTC)
    await after.close()


async def test_handles_of_a_key_removed_before_the_start_have_no_more_than_it_had(
    database: Database,
) -> None:
    uses = LastUses(database, KeyRing(KEYS))
    await uses.load()
    await uses.close()
    ring = KeyRing({})
    assert ring.scopes(HANDLE) is None
    after = LastUses(database, ring)
    await after.load()
    assert ring.scopes(HANDLE) == SCOPES
    await after.close()
