"""The search index follows the ledger, and searches find the same without it."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Tasks
from orchestrator.record.audit.archiving import Archiving
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.search_index import feed, search_index
from orchestrator.record.search_index import search as searching
from orchestrator.record.search_index.index_connection import IndexConnection
from orchestrator.record.search_index.search import Search, search
from orchestrator.record.search_index.search_index import SearchIndex
from tests.support.cases import each
from tests.unit.ledger_support import draft, fill, following

LONG_AGO = "2020-01-01T00:00:00.000000Z"
# The columns of a copy that is searched by a plain scan.
_ALL = """
    SELECT events.id, session_key, sessions.id, owner, incarnation, operation, decision, time, body,
           json_extract(body, '$.actor'), json_extract(body, '$.rule')
    FROM events LEFT JOIN sessions ON sessions.key = session_key ORDER BY events.id DESC
"""
OWNERS = {"k1": "ci", "k2": "ci", "k3": "ops"}
IDS = {"k1": "box", "k2": "box", "k3": "other"}


def _sessions(connection: sqlite3.Connection) -> None:
    for number, (key, owner) in enumerate(OWNERS.items(), 1):
        connection.execute(
            "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
            " created_at, incarnation) VALUES (?, ?, ?, 'completed', 'low', '{}', '', ?)",
            (key, IDS[key], owner, number),
        )


async def _scanned(database: Database, wanted: Search) -> list[int]:
    """What a search must find, decided row by row."""
    rows = await database.read(lambda connection: connection.execute(_ALL).fetchall())
    found = []
    for row in rows:
        event_id, _, session, owner, incarnation, operation, decision, time, body, actor, rule = row
        if (
            wanted.session in (None, session)
            and (wanted.session is None or wanted.incarnation in (None, incarnation))
            and wanted.owner in (None, owner)
            and wanted.visible_to in (None, owner)
            and wanted.operation in (None, operation)
            and wanted.decision in (None, decision)
            and wanted.actor in (None, actor)
            and wanted.rule in (None, rule)
            and (wanted.text is None or wanted.text.lower() in body.lower())
            and (wanted.since is None or wanted.since <= time)
            and (wanted.until is None or time <= wanted.until)
        ):
            found.append(event_id)
    return found


async def _found(index: SearchIndex, wanted: Search, limit: int = 7) -> list[int]:
    found: list[int] = []
    before: int | None = None
    while True:
        page = await search(index, wanted, before, limit)
        found += [event["id"] for event in page.items]
        if page.next is None:
            return found
        assert before is None or page.next < before
        before = page.next


def _entries(path: Path, columns: str = "id") -> list[Any]:
    with closing(sqlite3.connect(path / "search.db")) as connection:
        return connection.execute(f"SELECT {columns} FROM entries ORDER BY id").fetchall()


async def test_it_follows_and_tells_how_far_it_is_behind(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    await fill(ledger, 3)
    async with following(tmp_path, ledger) as index:
        await index.reach()
        assert index.lag == 0
        await fill(ledger, 2)
        assert index.lag == 2
        await index.reach()
        assert index.lag == 0
    assert _entries(tmp_path) == [(n,) for n in range(1, 6)]


async def test_it_has_no_text_of_events(database: Database, ledger: Ledger, tmp_path: Path) -> None:
    await ledger.append(draft(args={"path": "a-private-text"}))
    async with following(tmp_path, ledger) as index:
        await index.reach()
        (event,) = (await search(index, Search(text="A-Private"))).items
        assert event["args"] == {"path": "a-private-text"}
        files = list(tmp_path.glob("search.db*"))
        assert files
        assert not any(b"a-private-text" in file.read_bytes() for file in files)


async def test_a_search_reads_what_is_not_indexed_from_the_ledger(
    database: Database, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a disk is full: the index stays behind, and the wait for it is bounded."""
    await database.write(_sessions)
    await fill(ledger, 5)
    async with following(tmp_path, ledger) as index:
        await index.reach()
        monkeypatch.setattr(search_index, "_WAIT_SECONDS", 0.05)
        failing = mock.Mock(side_effect=StoreError("the disk is full"))
        monkeypatch.setattr(IndexConnection, "feed", failing)
        await fill(ledger, 4)
        await ledger.append(draft("k3"))
        assert await _found(index, Search(), 3) == list(range(10, 0, -1))
        assert await _found(index, Search(owner="ops")) == [10]
        assert await _found(index, Search(session="box"), 2) == list(range(9, 0, -1))
        assert failing.called
        assert index.lag == 5


@each("damage", [b"", b"no database at all" * 300, b"SQLite format 3\0" + b"\xff" * 8000, None])
async def test_a_lost_or_damaged_file_is_made_again(
    database: Database, ledger: Ledger, tmp_path: Path, damage: bytes | None
) -> None:
    await fill(ledger, 3)
    async with following(tmp_path, ledger) as index:
        await index.reach()
    file = tmp_path / "search.db"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    async with following(tmp_path, ledger) as index:
        assert len(await _found(index, Search(operation="command.start"))) >= 3
    assert _entries(tmp_path)


async def test_damage_in_use_is_noticed_and_nothing_is_left_out(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    await fill(ledger, 300)
    async with following(tmp_path, ledger) as index:
        await index.reach()
        await index._run(index._connection.close)
        file = tmp_path / "search.db"
        # Behind the position, which is looked at when the file is opened.
        damaged = 5 * 4096
        with file.open("r+b") as writing:
            writing.seek(damaged)
            writing.write(b"\xff" * (file.stat().st_size - damaged))
        assert await _found(index, Search(actor="admin"), 100) == list(range(300, 0, -1))
        await index.reach()
        assert index.lag == 0
    assert len(_entries(tmp_path)) == 300


async def test_a_directory_in_its_place_stops_nothing(
    database: Database, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_WAIT_SECONDS", 0.05)
    (tmp_path / "search.db").mkdir()
    await fill(ledger, 3)
    async with following(tmp_path, ledger) as index:
        assert await _found(index, Search(operation="command.start")) == [3, 2, 1]
        assert index.lag == 3


async def test_the_index_of_another_ledger_is_made_again(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    """As after a restored backup, whose ledger went another way from there on."""
    await fill(ledger, 2)
    await ledger.append(draft(operation="file.read"))
    async with following(tmp_path, ledger) as index:
        await index.reach()
    await ledger.close()
    await database.write(lambda connection: connection.execute("DELETE FROM events WHERE id > 2"))
    again = Ledger(database)
    for _ in range(2):
        await again.append(draft(operation="file.write"))
    async with following(tmp_path, again) as index:
        await index.reach()
        assert await _found(index, Search(operation="file.read")) == []
        assert await _found(index, Search(operation="file.write")) == [4, 3]
    await again.close()
    words = "(SELECT word FROM words WHERE number = operation)"
    assert _entries(tmp_path, words)[2:] == [("file.write",), ("file.write",)]


async def test_a_rebuild_tells_how_far_it_is(
    database: Database, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PORTION", 10)
    await asyncio.gather(*(ledger.append(draft()) for _ in range(100)))
    async with following(tmp_path, ledger) as index:
        await index.reach()
        await ledger.append(draft())
        await index.reach()
        told = [await index.rebuild()]
        while told[-1].position < 101:
            told.append(await index.progress(told[-1].position))
        assert told[0] == (0, 101)
        assert told[-1] == (101, 101)
        assert told == sorted(told)
        # Nothing is awaited that has happened, or can't happen.
        assert await index.progress(50) == await index.progress(101) == (101, 101)
    assert len(_entries(tmp_path)) == 101


async def test_the_ledger_s_rows_decide(database: Database, ledger: Ledger, tmp_path: Path) -> None:
    """Wrong entries show nobody an event of another owner."""
    await database.write(_sessions)
    await ledger.append(draft("k1"))
    await ledger.append(draft("k3"))
    async with following(tmp_path, ledger) as index:
        await index.reach()

        def swap(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE entries SET owner = 3 - id")
            numbers = "SELECT number FROM words WHERE kind = 'owner' ORDER BY number"
            first, second = (number for (number,) in connection.execute(numbers).fetchall())
            connection.execute("UPDATE entries SET owner = iif(id = 1, ?, ?)", (second, first))

        await index.browse(swap)
        for owner in ("ci", "ops"):
            assert await _found(index, Search(visible_to=owner)) == []


async def test_a_rare_word_leads_past_events_of_a_frequent_one(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    """Counted in steps of SQLite's machine."""
    frequent = [draft(actor="robot") for _ in range(400)]
    rare = [draft(actor="robot", operation="file.read"), draft(operation="file.read")]
    await asyncio.gather(*(ledger.append(each) for each in (*rare, *frequent)))
    async with following(tmp_path, ledger) as index:
        await index.reach()
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        await index.browse(lambda connection: connection.set_progress_handler(count, 1))
        found = await _found(index, Search(actor="robot", operation="file.read"))
        assert found == [1]
        assert steps < 1000


async def test_a_time_leads_to_its_span(database: Database, ledger: Ledger, tmp_path: Path) -> None:
    await asyncio.gather(*(ledger.append(draft()) for _ in range(5000)))
    times = await database.read(
        lambda connection: connection.execute("SELECT id, time FROM events ORDER BY id").fetchall()
    )
    async with following(tmp_path, ledger) as index:
        await index.reach()
        while index.lag:
            await index.reach()
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        await index.browse(lambda connection: connection.set_progress_handler(count, 1))
        since, until = times[1499][1], times[1509][1]
        found = await _found(index, Search(since=since, until=until), 5000)
        assert found == await _scanned(database, Search(since=since, until=until))
        # 5,000 events would take several times as many.
        assert steps < 60_000


class World:
    """A ledger, its index, and what may happen to them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.index: SearchIndex | None = None
        self.gone: set[str] = set()

    async def open(self) -> None:
        self.database = await Database.open(self.directory / "paddock.db")
        self.ledger = Ledger(self.database)
        self._follow()

    def _follow(self) -> None:
        path, ledger = self.directory / "search.db", self.directory / "paddock.db"
        self.index = SearchIndex(path, ledger, self.ledger)
        self.index.start(Tasks())

    async def close(self) -> None:
        assert self.index is not None
        await self.index.close()
        await self.ledger.close()
        await self.database.close()

    async def append(self, key: str, operation: str, actor: str, denied: bool, count: int) -> None:
        members: dict[str, Any] = {"operation": operation, "actor": actor}
        if denied:
            members |= {"decision": "deny", "rule": "command-allowlist"}
        await asyncio.gather(*(self.ledger.append(draft(key, **members)) for _ in range(count)))

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def kill(self) -> None:
        """The follower is gone, between any two of its portions."""
        assert self.index is not None
        assert self.index._task is not None
        await self.index._task.close()
        await self.restart()

    async def rebuild(self) -> None:
        assert self.index is not None
        await self.index.rebuild()

    async def keep(self) -> None:
        """A backup of the ledger."""
        with (
            closing(sqlite3.connect(self.directory / "kept.db")) as target,
            closing(sqlite3.connect(self.directory / "paddock.db")) as source,
        ):
            source.backup(target)

    async def restore(self) -> None:
        """The backup is restored, and the index stays as it was."""
        if not (self.directory / "kept.db").exists():
            return
        await self.close()
        for file in self.directory.glob("paddock.db*"):
            file.unlink()
        (self.directory / "paddock.db").write_bytes((self.directory / "kept.db").read_bytes())
        await self.open()

    async def archive(self, key: str) -> None:
        await self.database.write(
            lambda connection: connection.execute(
                "UPDATE sessions SET terminated_at = ? WHERE key = ?",
                (LONG_AGO, key),
            )
        )
        archiving = Archiving(
            self.database,
            self.ledger,
            self.directory / "archive",
            self.directory / "evidence",
            lambda owner, size: None,
        )
        await archiving.run(timedelta(0), "admin")

    async def check(self, wanted: Search, limit: int) -> None:
        assert self.index is not None
        expected = await _scanned(self.database, wanted)
        assert await _found(self.index, wanted, limit) == expected


KEYS, OPERATIONS, ACTORS = tuple(OWNERS), ("command.start", "file.read"), ("admin", "robot")
SEARCHES = st.builds(
    Search,
    session=st.sampled_from((None, None, "box", "other", "none")),
    incarnation=st.sampled_from((None, None, 1, 2)),
    owner=st.sampled_from((None, None, "ci", "ops")),
    visible_to=st.sampled_from((None, None, "ci")),
    operation=st.sampled_from((None, *OPERATIONS, "audit.archived")),
    decision=st.sampled_from((None, None, "deny", "allow")),
    rule=st.sampled_from((None, None, "command-allowlist")),
    actor=st.sampled_from((None, *ACTORS)),
    text=st.sampled_from((None, None, "ROBOT")),
    since=st.sampled_from((None, None, LONG_AGO, "2999")),
    until=st.sampled_from((None, None, LONG_AGO, "2999")),
)
CHECKS = st.tuples(st.just("check"), SEARCHES, st.integers(1, 9))
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.sampled_from(KEYS),
            st.sampled_from(OPERATIONS),
            st.sampled_from(ACTORS),
            st.booleans(),
            st.integers(1, 12),
        ),
        CHECKS,
        CHECKS,
        st.tuples(st.just("archive"), st.sampled_from(KEYS)),
        *(st.tuples(st.just(each)) for each in ("restart", "kill", "rebuild", "keep", "restore")),
    ),
    max_size=25,
)


async def _play(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        await world.open()
        try:
            await world.database.write(_sessions)
            for name, *values in steps:
                step: Callable[..., Any] = getattr(world, name)
                await step(*values)
            await world.check(Search(), 5)
            # Nothing is left of events that the ledger no longer has.
            assert world.index is not None
            await world.index.reach()
            await world.restart()
            await world.index.reach()
            ids = "SELECT id FROM events ORDER BY id"
            rows = await world.database.read(lambda conn: conn.execute(ids).fetchall())
            assert _entries(world.directory) == rows
        finally:
            await world.close()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_answers_are_those_of_a_scan_whatever_happened(steps: list[tuple[Any, ...]]) -> None:
    with (
        mock.patch.object(feed, "PORTION", 4),
        mock.patch.object(searching, "SLICE", 5),
        mock.patch.object(searching, "MOST_EXAMINED", 12),
    ):
        asyncio.run(_play(steps))
