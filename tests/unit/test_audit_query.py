import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground import store
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.store.database import Database
from orchestrator.record.audit import query, recorded_work
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.query import Selection
from paddock.audit.chain import verify_chain
from tests.unit.ledger_support import draft, fill


async def test_pages_and_filters(database: Database, ledger: Ledger) -> None:
    await ledger.append(draft(turn=1, decision="allow"))
    await ledger.append(draft(turn=1, decision="deny"))
    await ledger.append(draft(turn=2, operation="file.read"))

    async def seqs(**filters: object) -> list[int]:
        return [e["seq"] for e in await query.events(database, "k1", **filters)]

    assert await seqs() == [1, 2, 3]
    assert await seqs(after_seq=1, limit=1) == [2]
    assert await seqs(turn=1) == [1, 2]
    assert await seqs(operation="file.read") == [3]
    assert await seqs(decision="deny", turn=1) == [2]
    assert await seqs(turn=0) == []
    assert await query.events(database, "k2") == []


def command(number: int, operation: str = "command.start", **more: Any) -> Any:
    return draft(operation=operation, args={"command_id": f"c{number}"}, **more)


async def ids(database: Database, limit: int) -> list[tuple[str, str]]:
    found = await recorded_work.latest_commands(database, "k1", limit)
    return [(each["operation"][8:], each["args"]["command_id"]) for each in found]


async def test_the_latest_commands_and_all_that_have_no_end(
    database: Database, ledger: Ledger
) -> None:
    assert await ids(database, 2) == []
    for number in range(6):
        await ledger.append(command(number, decision="deny" if number == 4 else "allow"))
        if number not in (1, 4):
            await ledger.append(command(number, "command.exit"))
    await ledger.append(draft("k2", args={"command_id": "other"}))
    # c1 has no end; c4 was refused.
    both = [("start", "c3"), ("exit", "c3"), ("start", "c5"), ("exit", "c5")]
    assert await ids(database, 2) == [("start", "c1"), *both]
    await ledger.append(command(1, "command.exit", decision="deny"))
    assert await ids(database, 2) == both
    await ledger.append(command(6, decision="allow"))
    assert await ids(database, 1) == [("start", "c6")]


async def test_a_long_chain_costs_no_more_than_its_latest_commands(
    database: Database, ledger: Ledger
) -> None:
    """Counted in steps of SQLite's machine."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    costs = []
    for length in (50, 400):
        for number in range(length):
            await ledger.append(command(number, decision="allow"))
            await ledger.append(command(number, "command.exit"))
        steps = 0
        await database.browse(lambda connection: connection.set_progress_handler(count, 1))
        assert len(await ids(database, 10)) >= 20
        costs.append(steps)
        await database.browse(lambda connection: connection.set_progress_handler(None, 0))
    assert costs[1] < 1.5 * costs[0], costs


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [{"turn": 7}, {"operation": "pty.exit"}, {"decision": "deny"}])
async def test_what_is_rare_is_found_without_a_look_at_the_chain(
    database: Database, ledger: Ledger, wanted: dict[str, object]
) -> None:
    """Counted in steps of SQLite's machine: a scan takes several steps per event."""
    rare: dict[str, Any] = {"turn": 7, "operation": "pty.exit", "decision": "deny"}
    for drafts in (
        [draft(turn=1) for _ in range(400)],
        [draft(**rare) for _ in range(3)],
        [draft(turn=1) for _ in range(400)],
    ):
        await asyncio.gather(*(ledger.append(item) for item in drafts))
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def watch(connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(count, 1)

    await database.browse(watch)
    found: list[int] = []
    for after in (0, 401, 402, 403, 800, 10_000):
        page = await query.events(database, "k1", after_seq=after, limit=2, **wanted)
        found += [event["seq"] for event in page]
    assert found == [401, 402, 402, 403, 403]
    assert steps < 1500


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted",
    [
        {"decision": "pending"},
        {"operation": "command.start", "decision": "pending"},
        {"operation": "command.start", "decision": "deny"},
        {"operation": "command.exit"},
        {"turn": 1, "operation": "pty.exit"},
    ],
)
async def test_a_page_looks_at_a_part_and_says_where_to_go_on(
    database: Database, ledger: Ledger, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events without a suitable index are examined part by part, so that no page takes long."""
    monkeypatch.setattr(query, "MOST_EXAMINED", 50)
    rare = {"turn": 1, "operation": "command.start", **wanted}
    for drafts in (
        [draft(turn=1, decision="allow") for _ in range(300)],
        [draft(**rare)],
        [draft(turn=1, decision="allow") for _ in range(300)],
    ):
        await asyncio.gather(*(ledger.append(item) for item in drafts))
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    await database.browse(lambda connection: connection.set_progress_handler(count, 1))
    found: list[int] = []
    after: int | None = 0
    pages, highest = 0, 0
    while after is not None:
        steps = 0
        page = await query.page(database, "k1", after_seq=after, limit=2, **wanted)
        found += [event["seq"] for event in page.items]
        assert page.next is None or page.next > after
        after, pages, highest = page.next, pages + 1, max(highest, steps)
    assert found == [301]
    assert pages >= 600 // 50
    assert highest < 50 * 60


async def test_events_of_a_key_are_looked_for_part_by_part(
    database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MOST_EXAMINED", 10)
    await fill(ledger, 25, "k1")
    page = await query.recorded(database, Selection(owner="ci"))
    assert (page.items, page.next) == ([], 10)
    page = await query.recorded(database, Selection(owner="ci"), 20)
    assert (page.items, page.next) == ([], None)
    assert (await query.recorded(database, Selection(), limit=20)).next == 20


async def test_all_chains_and_those_of_one_owner(database: Database, ledger: Ledger) -> None:
    await fill(ledger, 2, "k1")
    await fill(ledger, 1, "k2")
    await database.write(
        lambda conn: conn.execute(
            "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
            " created_at) VALUES ('k2', 's', 'ci', 'active', 'low', '', '')"
        )
    )

    async def ids(wanted: Selection, *place: int) -> list[int]:
        return [event.id for event in (await query.recorded(database, wanted, *place)).items]

    assert await ids(Selection()) == [1, 2, 3]
    assert await ids(Selection(), 1, 1) == [2]
    assert await ids(Selection("k1"), 1) == [2]
    assert await ids(Selection(owner="ci")) == [3]
    assert await ids(Selection(owner="nobody")) == []


async def test_operations_that_are_selected(database: Database, ledger: Ledger) -> None:
    for operation in ("file.read", "file.write", "command.exit", "file.read"):
        await ledger.append(draft("k1", operation=operation))
    await ledger.append(draft("k2", operation="file.read"))

    async def ids(wanted: Selection) -> list[int]:
        return [event.id for event in (await query.recorded(database, wanted)).items]

    files = frozenset({"file.read", "file.write"})
    assert await ids(Selection("k1", operations=files)) == [1, 2, 4]
    assert await ids(Selection(operations=frozenset({"file.read"}))) == [1, 4, 5]
    assert await ids(Selection(operations=frozenset())) == []


def test_a_selection_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no such operations: command\.begin"):
        Selection(operations=frozenset({"command.begin", "command.exit"}))
    with pytest.raises(ValueError, match="a chain has one owner"):
        Selection("k1", owner="ci")


async def test_stats(database: Database, ledger: Ledger) -> None:
    await ledger.append(draft(decision="allow", tokens_used=3))
    await ledger.append(draft(decision="deny", tokens_used=4))
    await ledger.append(draft(operation="file.read"))
    assert await query.stats(database, "k1") == query.ChainStats(
        total_operations=3,
        operation_counts={"command.start": 2, "file.read": 1},
        decisions={"allow": 1, "deny": 1},
        total_tokens=7,
    )
    assert await query.stats(database, "none") == query.ChainStats(
        total_operations=0,
        operation_counts={},
        decisions={},
        total_tokens=0,
    )


async def test_statistics_count_what_was_committed(database: Database, ledger: Ledger) -> None:
    """Rolled-back and repeated events do not count, and no event is read."""

    def fail(_connection: sqlite3.Connection) -> None:
        raise ConflictError("no")

    agents = draft(operation="command.exit", agent=("b", 1), tokens_used=5)
    results = await asyncio.gather(
        ledger.append(draft(decision="allow")),
        ledger.append(draft(decision="allow"), fail),
        ledger.append(agents),
        ledger.append(agents),
        ledger.append(draft("k2")),
        return_exceptions=True,
    )
    assert sum(isinstance(result, ConflictError) for result in results) == 1
    await ledger.append(agents)
    await database.write(lambda connection: connection.execute("DELETE FROM events"))
    assert await query.stats(database, "k1") == query.ChainStats(
        total_operations=2,
        operation_counts={"command.exit": 1, "command.start": 1},
        decisions={"allow": 1},
        total_tokens=5,
    )


async def test_a_ledger_from_before_counts_is_counted(tmp_path: Path) -> None:
    """The database is as an earlier version left it: with events, without their counts."""
    files = sorted((Path(store.__file__).parent / "migrations").iterdir())
    files = [file for file in files if file.suffix == ".sql"]
    (before,) = [file for file in files if file.name.endswith("_event_counts.sql")]
    old, new = tmp_path / "old", tmp_path / "new"
    for directory, upto in ((old, files.index(before)), (new, len(files))):
        directory.mkdir()
        for file in files[:upto]:
            shutil.copy(file, directory)
    database = await Database.open(tmp_path / "paddock.db", old)

    def events(connection: sqlite3.Connection) -> None:
        for number, (operation, decision, tokens) in enumerate(
            [("command.start", "allow", None), ("command.start", "deny", 4), ("file.read", None, 3)]
        ):
            connection.execute(
                "INSERT INTO events (id, session_key, seq, time, operation, decision, body,"
                " prev_hash, hash) VALUES (?, 'k1', ?, '', ?, ?, ?, '', '')",
                (number, number, operation, decision, json.dumps({"tokens_used": tokens})),
            )

    await database.write(events)
    await database.close()
    database = await Database.open(tmp_path / "paddock.db", new)
    assert await query.stats(database, "k1") == query.ChainStats(
        total_operations=3,
        operation_counts={"command.start": 2, "file.read": 1},
        decisions={"allow": 1, "deny": 1},
        total_tokens=7,
    )
    await database.close()


async def test_export_is_the_whole_chain(
    database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "PAGE", 3)
    await fill(ledger, 8)
    await fill(ledger, 2, "k2")
    lines = [line async for line in query.export(database, "k1")]
    assert len(lines) == 8
    assert verify_chain(lines).ok
    assert [line async for line in query.export(database, "none")] == []


async def test_export_ends_where_the_chain_ended(database: Database, ledger: Ledger) -> None:
    await fill(ledger, 2)
    seen = 0
    async for _ in query.export(database, "k1"):
        seen += 1
        await fill(ledger, 1)
    assert seen == 2
