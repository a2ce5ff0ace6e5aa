"""Pages of lists of sessions cost what they have, however many sessions there are."""

import sqlite3
from functools import partial
from typing import Any

import pytest

from orchestrator.ground.store.database import Database
from orchestrator.state import session_pages, stored_sessions
from orchestrator.state.session_pages import WantedSessions, find_keys, forgetting

LONG_AGO, BEFORE, SINCE = (f"2026-03-04T0{hour}:00:00.000000Z" for hour in (1, 2, 3))
_INSERT = """
    INSERT INTO sessions (key, id, owner, status, permission_level, level, terms, acknowledged,
                          created_at, terminated_at, parent_key)
    SELECT :prefix || value, :prefix || value, :owner, :status, 'low', '{}',
           json_object('labels', json_object('n', value % 100)), 1,
           printf('2026-03-04T05:%02d:%02d.000000Z', value / 60 % 60, value % 60), :ended, :parent
    FROM generate_series
"""
_SERIES = """
    WITH RECURSIVE generate_series(value) AS (
        SELECT 0 UNION ALL SELECT value + 1 FROM generate_series WHERE value + 1 < :count
    )
"""


async def _insert(database: Database, prefix: str, count: int, **columns: Any) -> None:
    row = {"owner": "ci", "status": "active", "ended": None, "parent": None, **columns}
    values = {"prefix": prefix, "count": count, **row}
    await database.write(lambda connection: connection.execute(_SERIES + _INSERT, values) and None)


async def _fill(database: Database, each: int) -> None:
    """So many sessions of each kind, and a few of another key."""
    await _insert(database, "live-", each)
    await _insert(database, "paused-", each, status="paused")
    await _insert(database, "recent-", each, status="completed", ended=SINCE)
    await _insert(database, "old-", each, status="aborted", ended=LONG_AGO)
    await _insert(database, "child-", each, parent="live-0")
    await _insert(database, "other-", 30, owner="other")
    await database.write(forgetting(BEFORE))


async def _all(database: Database, wanted: WantedSessions, most: int) -> list[list[str]]:
    """The keys of all pages."""
    pages, after = [], None
    while True:
        find = partial(find_keys, wanted=wanted, after=after, most=most)
        found = await database.browse(find)
        pages.append(found.keys)
        after = found.next
        if after is None:
            return pages


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_pages_have_each_session_once_and_in_order(
    database: Database, oldest_first: bool
) -> None:
    await _fill(database, 45)
    for status, prefixes in (
        (None, ("live-", "paused-", "recent-", "other-")),
        ("live", ("live-", "paused-", "other-")),
        ("active", ("live-", "other-")),
        ("paused", ("paused-",)),
        ("ended", ("recent-", "old-")),
        ("completed", ("recent-",)),
        ("aborted", ("old-",)),
        ("budget-exceeded", ()),
    ):
        for owner in (None, "ci", "other", "nobody"):
            wanted = WantedSessions(owner, BEFORE, status, oldest_first=oldest_first)
            found = [key for page in await _all(database, wanted, 7) for key in page]
            expected = [
                f"{prefix}{number}"
                for prefix in prefixes
                for number in range(30 if prefix == "other-" else 45)
                if owner in (None, "other" if prefix == "other-" else "ci")
            ]
            assert sorted(found) == sorted(expected), (status, owner)
            places = [(int(key.split("-")[1]), key) for key in found]
            assert places == sorted(places, reverse=not oldest_first), (status, owner)


async def test_children_are_listed_by_their_parent_only(database: Database) -> None:
    await _fill(database, 5)
    wanted = WantedSessions("ci", BEFORE, parent_key="live-0")
    assert await _all(database, wanted, 3) == [
        ["child-4", "child-3", "child-2"],
        ["child-1", "child-0"],
    ]
    assert await _all(database, WantedSessions("other", BEFORE, parent_key="live-0"), 3) == [[]]


async def test_sessions_whose_clients_were_not_told_are_in_no_list(database: Database) -> None:
    await _insert(database, "live-", 1)
    await database.write(
        lambda connection: connection.execute("UPDATE sessions SET acknowledged = 0") and None
    )
    for status in (None, "live", "active"):
        assert await _all(database, WantedSessions(None, BEFORE, status), 3) == [[]]


@pytest.mark.parametrize("owner", [None, "ci"])
@pytest.mark.parametrize("status", [None, "live", "active", "ended"])
@pytest.mark.parametrize("oldest_first", [False, True])
async def test_a_page_costs_what_it_has(
    database: Database, owner: str | None, status: str | None, oldest_first: bool
) -> None:
    """Counted in steps of SQLite's machine: sorting 10,000 sessions takes many per session."""
    await _fill(database, 2_500)
    wanted = WantedSessions(owner, BEFORE, status, oldest_first=oldest_first)
    first = await database.browse(partial(find_keys, wanted=wanted, after=None, most=20))
    middle = ("2026-03-04T05:20:00.000000Z", "")
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    await database.browse(lambda connection: connection.set_progress_handler(count, 1))
    for after in (None, first.next, middle):
        steps = 0
        found = await database.browse(partial(find_keys, wanted=wanted, after=after, most=20))
        assert len(found.keys) == 20
        assert found.next is not None
        # At most each third session is of that kind.
        assert steps < 20 * 3 * 30, (after, steps)


async def test_what_few_have_is_searched_for_in_parts(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_pages, "MOST_EXAMINED", 50)
    await _insert(database, "live-", 400)
    steps = highest = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    await database.browse(lambda connection: connection.set_progress_handler(count, 1))
    after, found, pages = None, list[str](), 0
    while True:
        steps = 0
        wanted = WantedSessions("ci", BEFORE, label=("n", "7"))
        part = await database.browse(partial(find_keys, wanted=wanted, after=after, most=10))
        found, after, pages = [*found, *part.keys], part.next, pages + 1
        highest = max(highest, steps)
        if after is None:
            break
    assert found == []  # a number is not its text
    assert pages == 400 // 50
    assert highest < 50 * 100


async def test_a_start_does_not_look_at_what_has_ended_before(database: Database) -> None:
    """Counted in steps of SQLite's machine."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    await _insert(database, "live-", 10)
    await _insert(database, "recent-", 10, status="completed", ended=SINCE)
    await database.read(lambda connection: connection.set_progress_handler(count, 1))
    costs = []
    for more in ("a", "b"):
        await _insert(database, f"old-{more}-", 2_000, status="aborted", ended=LONG_AGO)
        steps = 0
        rows = await database.read(lambda connection: stored_sessions.load(connection, BEFORE, ()))
        assert len(rows) == 20
        costs.append(steps)
    assert costs[1] < 1.1 * costs[0], costs


async def test_what_has_ended_is_forgotten_once(database: Database) -> None:
    """Counted in rows that change: those that were forgotten before are not looked at again."""
    await _fill(database, 40)

    def forget(until: str, connection: sqlite3.Connection) -> int:
        before = connection.total_changes
        forgetting(until)(connection)
        return connection.total_changes - before

    assert await database.write(partial(forget, BEFORE)) == 0
    assert await database.write(partial(forget, SINCE)) == 40
    plan = await database.read(
        lambda connection: str(
            connection.execute(
                "EXPLAIN QUERY PLAN UPDATE sessions SET forgotten = 1 WHERE forgotten = 0"
                " AND terminated_at IS NOT NULL AND terminated_at <= ''"
            ).fetchall()
        )
    )
    assert "sessions_to_forget" in plan
