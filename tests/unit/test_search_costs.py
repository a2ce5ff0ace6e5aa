"""Pages of audit cost the same in a record of any size, and so do pages of other readers."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.ground.open import DATABASE_FILE
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from orchestrator.record.audit import query
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.search_index import spans
from orchestrator.record.search_index.search import Search, search
from orchestrator.record.search_index.search_index import SearchIndex
from paddock.contract.audit import MOST_ARCHIVED
from tests.support.counted_steps import counted_steps
from tests.support.grown_record import grow

_EACH = 50
_FEW, _MANY = 60, 400
# A page reads so many; a seek in a larger tree is one instruction, too.
_LIMIT = 20
_SLACK = 1.05
# The time of the last event of the first session.
_EARLY = "2026-01-01T00:00:00.050000Z"
_ARCHIVED = """
    INSERT INTO archives (session_key, session_id, owner, file, sha256, bytes, seq, hash,
                          archived_at, emptied)
    SELECT key, id, owner, '', '', 0, 0, '', terminated_at, 1 FROM sessions
"""
Cost = Callable[[], int]


@asynccontextmanager
async def _reading(
    directory: Path, counting: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Database, SearchIndex, Cost]]:
    """A record's readers, and how much SQLite did since the last question."""
    with counting.context() as patch:
        steps = counted_steps(patch)
        database = await Database.open(directory / DATABASE_FILE)
        index = SearchIndex(directory / "search.db", directory / DATABASE_FILE, Ledger(database))
        index.start(Tasks())
        await index.reach()

        def cost() -> int:
            done, steps[0] = steps[0], 0
            return done

        try:
            yield database, index, cost
        finally:
            await index.close()
            await database.close()


_WANTED = (
    Search(),
    Search(session="box-1"),
    Search(owner="ci"),
    Search(visible_to="ops"),
    Search(decision="deny", rule="command-not-allowed"),
    Search(actor="admin", owner="ops"),
    Search(until=_EARLY),
    Search(since=_EARLY, operation="command.exit"),
    Search(text="attribute 'flatten'", owner="ci"),
)


@pytest.mark.parametrize("is_deep", [False, True], ids=["newest", "in the middle"])
async def test_pages_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deep: bool
) -> None:
    costs: list[list[int]] = []
    for sessions in (_FEW, _MANY - _FEW):
        grow(tmp_path, sessions, _EACH)
        async with _reading(tmp_path, monkeypatch) as (_, index, cost):
            found = []
            for wanted in _WANTED:
                before = (_FEW if len(costs) == 0 else _MANY) * _EACH // 2 if is_deep else None
                await search(index, wanted, before, _LIMIT)
                cost()
                await search(index, wanted, before, _LIMIT)
                found.append(cost())
        costs.append(found)
    for wanted, few, many in zip(_WANTED, *costs, strict=True):
        assert few > 0
        assert many <= few * _SLACK, (wanted, few, many)


async def test_a_page_of_one_owners_events_for_followers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for sessions in (_FEW, _MANY - _FEW):
        grow(tmp_path, sessions, _EACH)
        async with _reading(tmp_path, monkeypatch) as (database, _, cost):
            cost()
            await query.recorded(database, query.Selection(owner="ci"), 0, _LIMIT)
            costs.append(cost())
    assert 0 < costs[1] <= costs[0] * _SLACK, costs


async def test_archived_chains_are_counted_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, 2 * MOST_ARCHIVED, 2)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as connection:
        connection.execute(_ARCHIVED)
    async with _reading(tmp_path, monkeypatch) as (_, index, cost):
        cost()
        for wanted in (Search(), Search(since=_EARLY)):
            assert (await search(index, wanted, None, 1)).archived == MOST_ARCHIVED
            assert cost() < 20 * MOST_ARCHIVED
        one = Search(session="box-1")
        for wanted, count in ((one, 1), (replace(one, owner="nobody"), 0)):
            assert (await search(index, wanted, None, 1)).archived == count
            assert cost() < MOST_ARCHIVED


def test_a_time_is_found_among_any_number_of_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The farthest one in ten million events takes little more than in a hundred thousand."""
    costs = []
    for last in (100_000, 10_000_000):
        with monkeypatch.context() as patch:
            steps = counted_steps(patch)
            connection = sqlite3.connect(":memory:")
        with closing(connection):
            connection.executescript(spans.SPANS_SCHEMA)
            for size in spans.SIZES:
                begins = range(0, last, size)
                rows = [(size, n // size, f"{n:09d}", f"{n + size - 1:09d}") for n in begins]
                connection.executemany("INSERT INTO spans VALUES (?, ?, ?, ?)", rows)
            steps[0] = 0
            assert spans.ids_of_time(connection, None, "000000500", 1, last) == (1, 999)
            late = f"{last - 1000:09d}"
            assert spans.ids_of_time(connection, late, None, 1, last) == (last - 1000, last)
            costs.append(steps[0])
    assert costs[1] < 3 * costs[0], costs
