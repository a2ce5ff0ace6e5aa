"""Searches over all chains examine a bounded part at a time, whatever the conditions."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.store.database import Database
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.search_index import search as searching
from orchestrator.record.search_index.search import Search, search
from orchestrator.record.search_index.search_index import SearchIndex
from tests.support.cases import each
from tests.unit.ledger_support import draft, following

# Several sessions of one id, with one session of another id between them.
KEYS = ("k1", "other", *(f"k{number}" for number in range(2, 20)))
EACH = 100


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[SearchIndex]:
    """A ledger in which the id's second chain has one refusal and one pending approval."""
    database = await Database.open(tmp_path / "paddock.db")
    ledger = Ledger(database)

    def sessions(connection: sqlite3.Connection) -> None:
        for number, key in enumerate(KEYS, 1):
            connection.execute(
                "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
                " created_at, incarnation) VALUES (?, ?, ?, 'completed', 'low', '', '', ?)",
                (key, "other" if key == "other" else "box", "ci", number),
            )

    await database.write(sessions)
    for key in KEYS:
        decisions = ["allow"] * EACH
        if key == "k2":
            decisions[35], decisions[40] = "deny", "pending"
        drafts = [draft(session_key=key, decision=decision) for decision in decisions]
        await asyncio.gather(*(ledger.append(each) for each in drafts))
    async with following(tmp_path, ledger) as index:
        yield index
    await ledger.close()
    await database.close()


@pytest.mark.slow
@each(
    "wanted",
    [
        {"session": "box", "decision": "pending"},
        {"session": "box", "operation": "command.start", "decision": "deny"},
        {"operation": "command.start", "decision": "pending"},
        {"operation": "command.start", "decision": "deny", "owner": "ci"},
        {"decision": "pending", "visible_to": "ci"},
        {"session": "box"},
        {"session": "box", "incarnation": 3},
        {},
    ],
)
async def test_a_search_looks_at_a_part_and_finds_all(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    monkeypatch.setattr(searching, "MOST_EXAMINED", 30)
    await index.reach()
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 10

    await index.browse(lambda connection: connection.set_progress_handler(count, 10))
    found: list[int] = []
    before: int | None = None
    highest = 0
    while True:
        steps = 0
        page = await search(index, Search(**wanted), before, 10)
        found += [event["id"] for event in page.items]
        highest = max(highest, steps)
        if page.next is None:
            break
        assert before is None or page.next < before
        before = page.next
    assert found == sorted(found, reverse=True)
    keys = ["k2"] if "incarnation" in wanted else [key for key in KEYS if key != "other"]
    if "session" not in wanted:
        keys = list(KEYS)
    expected = [
        KEYS.index(key) * EACH + number + 1
        for key in keys
        for number in range(EACH)
        if "decision" not in wanted
        or (key, number) == ("k2", {"deny": 35, "pending": 40}[wanted["decision"]])
    ]
    assert found == expected[::-1]
    # A scan takes several steps per event, and the id has 1,900 events.
    assert highest < 30 * 200


@each(
    "wanted",
    [
        {},
        {"operation": "command.start"},
        {"decision": "allow"},
        {"text": "command.start"},
        {"visible_to": "ci"},
        {"owner": "ci", "text": "command.start"},
    ],
)
async def test_a_page_that_is_full_is_all_that_is_read(
    index: SearchIndex, wanted: dict[str, Any]
) -> None:
    """Not every event that a search may examine, but those of the page."""
    await index.reach()
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    await index.browse(lambda connection: connection.set_progress_handler(count, 1))
    searched = await search(index, Search(**wanted), None, 10)
    assert [event["id"] for event in searched.items] == list(range(2000, 1990, -1))
    # Reading the ids of all 2,000 alone would take several times as many.
    assert steps < 2000, steps
