"""The search index follows the ledger, and searches find the same without it."""

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from orchestrator.ground.store.database import Database
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.search_index import feed, search_index
from orchestrator.record.search_index.search import Search, search
from tests.support.cases import each
from tests.support.limits import WAIT_SECONDS
from tests.support.sources import ROOT
from tests.unit.ledger_support import draft, fill, following
from tests.unit.search_support import add_sessions, entries, find_all, scanned


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
    assert entries(tmp_path) == [(n,) for n in range(1, 6)]


async def test_it_has_no_text_of_events(database: Database, ledger: Ledger, tmp_path: Path) -> None:
    await ledger.append(draft(args={"path": "a-private-text"}))
    async with following(tmp_path, ledger) as index:
        await index.reach()
        (event,) = (await search(index, Search(text="A-Private"))).items
        assert event["args"] == {"path": "a-private-text"}
        files = list(tmp_path.glob("search.db*"))
        assert files
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        assert not any(b"a-private-text" in file.read_bytes() for file in files)


async def test_a_full_disk_stops_the_index_and_nothing_else(
    database: Database, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not indexed is read from the ledger; the wait for the index is bounded."""
    monkeypatch.setattr(search_index, "_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(search_index, "_AGAIN_SECONDS", 0.01)
    await database.write(add_sessions)
    await fill(ledger, 5)
    async with following(tmp_path, ledger) as index:
        await index.reach()
        room = "PRAGMA main.max_page_count = {}"
        await index.browse(lambda connection: connection.execute(room.format(1)).fetchall())
        names = [f"{number:03}" + "x" * 90 for number in range(100)]
        await asyncio.gather(*(ledger.append(draft(actor=name)) for name in names))
        await ledger.append(draft("k3", actor=names[0]))
        assert await find_all(index, Search(), 40) == list(range(106, 0, -1))
        assert await find_all(index, Search(owner="ops")) == [106]
        assert await find_all(index, Search(actor=names[0])) == [106, 6]
        assert await find_all(index, Search(actor="admin"), 2) == list(range(5, 0, -1))
        assert index.lag == 101
        await index.browse(lambda connection: connection.execute(room.format(9999)).fetchall())
        async with asyncio.timeout(WAIT_SECONDS):
            while index.lag:
                await index.reach()
    assert len(entries(tmp_path)) == 106


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
        assert len(await find_all(index, Search(operation="command.start"))) >= 3
    assert entries(tmp_path)


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
        assert await find_all(index, Search(actor="admin"), 100) == list(range(300, 0, -1))
        await index.reach()
        assert index.lag == 0
    assert len(entries(tmp_path)) == 300


async def test_a_directory_in_its_place_stops_nothing(
    database: Database, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_WAIT_SECONDS", 0.05)
    (tmp_path / "search.db").mkdir()
    await fill(ledger, 3)
    async with following(tmp_path, ledger) as index:
        assert await find_all(index, Search(operation="command.start")) == [3, 2, 1]
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
        assert await find_all(index, Search(operation="file.read")) == []
        assert await find_all(index, Search(operation="file.write")) == [4, 3]
    await again.close()
    words = "(SELECT word FROM words WHERE number = operation)"
    assert entries(tmp_path, words)[2:] == [("file.write",), ("file.write",)]


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
    assert len(entries(tmp_path)) == 101


async def test_the_ledger_s_rows_decide(database: Database, ledger: Ledger, tmp_path: Path) -> None:
    """Wrong entries show nobody an event of another owner."""
    await database.write(add_sessions)
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
            assert await find_all(index, Search(visible_to=owner)) == []


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
        found = await find_all(index, Search(actor="robot", operation="file.read"))
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
        found = await find_all(index, Search(since=since, until=until), 5000)
        assert found == await scanned(database, Search(since=since, until=until))
        # 5,000 events would take several times as many.
        assert steps < 60_000


_VICTIM = """
import asyncio, sys
from pathlib import Path
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.ledger import Ledger
from tests.unit.ledger_support import draft, following

async def main(directory):
    ledger = Ledger(await Database.open(directory / "paddock.db"))
    async with following(directory, ledger) as index:
        while True:
            await asyncio.gather(*(ledger.append(draft()) for _ in range(7)))
            print(await index.reach(), flush=True)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 4, 15])
async def test_a_kill_loses_and_doubles_nothing(tmp_path: Path, lines: int) -> None:
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _VICTIM, str(tmp_path)), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert victim.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        for _ in range(lines):
            await victim.stdout.readline()
        victim.kill()
        await victim.wait()
    database = await Database.open(tmp_path / "paddock.db")
    ledger = Ledger(database)
    await ledger.append(draft(operation="file.read"))
    async with following(tmp_path, ledger) as index:
        await index.reach()
        expected = await scanned(database, Search())
        assert len(expected) > 7 * lines
        assert await find_all(index, Search(), 50) == expected
    await ledger.close()
    await database.close()
    assert entries(tmp_path) == [(each,) for each in reversed(expected)]
