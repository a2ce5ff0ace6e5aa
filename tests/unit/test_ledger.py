import asyncio
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import AuditUnavailableError, ConflictError
from orchestrator.ground.events import EventError
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.room import Room
from orchestrator.record.audit import query, verification
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.query import Selection
from paddock.audit.chain import GENESIS_HASH
from tests.unit.ledger_support import draft, fill


def mark(connection: sqlite3.Connection, name: str = "w") -> None:
    connection.execute(
        "INSERT INTO workspaces (id, owner, uid, slot, created_at)"
        " VALUES (?, 'admin', abs(random()), ?, '')",
        (name, name),
    )


def marks(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT id FROM workspaces ORDER BY id")]


async def read_only(database: Database, value: bool) -> None:
    worker = database._writer
    await worker.run(lambda: worker._connected().execute(f"PRAGMA query_only = {value}"))


async def test_an_event_in_its_chain(database: Database, ledger: Ledger) -> None:
    first = await ledger.append(draft(decision="allow", command_id="c"))
    other = await ledger.append(draft("k2"))
    second = await ledger.append(draft())
    assert [(e.id, e.seq) for e in (first, other, second)] == [(1, 1), (2, 1), (3, 2)]
    assert first.prev_hash == other.prev_hash == GENESIS_HASH
    assert second.prev_hash == first.hash
    assert await query.events(database, "k1") == [first.event, second.event]
    assert len(first.event) == 22
    assert (await verification.verify(database, "k1")).hash == second.hash


async def test_concurrent_appends_share_commits(database: Database, ledger: Ledger) -> None:
    commits = 0
    write = database.write

    async def counting(function: Any, **how: Any) -> Any:
        nonlocal commits
        commits += 1
        return await write(function, **how)

    database.write = counting  # type: ignore[method-assign]
    recorded = await asyncio.gather(*(ledger.append(draft(f"k{n % 5}")) for n in range(200)))
    assert commits <= 2
    assert sorted(event.id for event in recorded) == list(range(1, 201))
    for key in range(5):
        verdict = await verification.verify(database, f"k{key}")
        assert (verdict.ok, verdict.seq) == (True, 40)


async def test_effects_commit_with_their_event(database: Database, ledger: Ledger) -> None:
    await ledger.append(draft(), mark)
    assert await database.read(marks) == ["w"]


@pytest.mark.parametrize("key", ["k1", "k9"])
async def test_a_failing_effect_fails_only_its_own_append(
    database: Database, ledger: Ledger, key: str
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        mark(connection, "failed")
        raise ConflictError("taken")

    outcomes = await asyncio.gather(
        ledger.append(draft(), mark),
        ledger.append(draft(key), fail),
        ledger.append(draft(), lambda conn: mark(conn, "W")),
        ledger.append(draft(), lambda conn: mark(conn, "x")),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], ConflictError)
    assert isinstance(outcomes[2], sqlite3.IntegrityError)
    assert await database.read(marks) == ["w", "x"]
    verdict = await verification.verify(database, "k1")
    assert (verdict.ok, verdict.seq) == (True, 2)
    assert [event.id for event in (await query.recorded(database, Selection())).items] == [1, 2]


@pytest.mark.parametrize("error", [ConflictError("taken"), sqlite3.IntegrityError("taken")])
async def test_a_failing_effect_of_the_only_event_leaves_nothing(
    database: Database, ledger: Ledger, error: Exception
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        mark(connection, "failed")
        raise error

    await ledger.append(draft(), mark)
    with pytest.raises(type(error)):
        await ledger.append(draft(), fail)
    assert await database.read(marks) == ["w"]
    assert (await ledger.append(draft(), lambda conn: mark(conn, "x"))).seq == 2
    assert await database.read(marks) == ["w", "x"]
    verdict = await verification.verify(database, "k1")
    assert (verdict.ok, verdict.seq) == (True, 2)


async def test_an_effect_with_a_mistake_fails_alone(ledger: Ledger) -> None:
    def mistake(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM missing")

    good, bad = await asyncio.gather(
        ledger.append(draft()),
        ledger.append(draft(), mistake),
        return_exceptions=True,
    )
    assert isinstance(bad, sqlite3.OperationalError)
    assert not isinstance(good, BaseException)


async def test_a_malformed_draft_changes_nothing(database: Database, ledger: Ledger) -> None:
    with pytest.raises(EventError):
        await ledger.append(draft(args={"x": 1.5}))
    assert (await query.recorded(database, Selection())).items == []


async def test_an_agents_repeated_event_is_the_one_recorded(
    database: Database, ledger: Ledger
) -> None:
    event = draft(source="agent", operation="command.exit", command_id="c", agent=("boot", 1))
    first = await ledger.append(event, mark)
    again, twice, new = await asyncio.gather(
        ledger.append(event, mark),
        ledger.append(event),
        ledger.append(draft(agent=("boot", 2))),
    )
    assert again == twice == replace(first, bytes=0)
    assert new.seq == 2
    assert await ledger.append(draft(agent=("other-boot", 1))) != first
    assert await ledger.agent_head("k1", "boot") == 2
    assert await ledger.agent_head("k1", "none") == 0
    assert await ledger.agent_head("k2", "boot") == 0


async def test_reopening_continues_the_chain(tmp_path: Path) -> None:
    for _ in range(3):
        database = await Database.open(tmp_path / "paddock.db")
        ledger = Ledger(database)
        await fill(ledger, 3)
        await ledger.close()
        verdict = await verification.verify(database, "k1")
        await database.close()
    assert (verdict.ok, verdict.seq) == (True, 9)


async def test_a_full_disk_and_recovery(database: Database, ledger: Ledger) -> None:
    await fill(ledger, 2)
    pages = await database.write(
        lambda conn: conn.execute("PRAGMA max_page_count = 1").fetchone()[0]
    )
    large = {"text": "x" * 8000, "more": "y" * 8000}
    outcomes = await asyncio.gather(
        *(ledger.append(draft(args=large), mark if n == 3 else None) for n in range(20)),
        return_exceptions=True,
    )
    assert all(isinstance(outcome, AuditUnavailableError) for outcome in outcomes)
    assert "full" in str(outcomes[0])
    await database.write(
        lambda conn: conn.execute(f"PRAGMA max_page_count = {pages + 1000}").fetchone()
    )
    recorded = await ledger.append(draft(args=large), mark)
    assert (recorded.id, recorded.seq) == (3, 3)
    assert (await verification.verify(database, "k1")).ok


async def test_stops_have_the_room_that_others_have_not(
    database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "kept", lambda _: False)
    outcomes = await asyncio.gather(
        ledger.append(draft(), mark),
        ledger.append(draft(operation="session.terminated", stop=True), mark),
        ledger.append(draft()),
        ledger.append(draft(operation="audit.gap", stop=True)),
        return_exceptions=True,
    )
    assert [isinstance(outcome, AuditUnavailableError) for outcome in outcomes] == [
        True,
        False,
        True,
        False,
    ]
    assert "reserved for recording stops" in str(outcomes[0])
    recorded = await query.events(database, "k1")
    assert [event["operation"] for event in recorded] == ["session.terminated", "audit.gap"]
    assert await database.read(marks) == ["w"]
    monkeypatch.undo()
    assert (await ledger.append(draft())).seq == 3
    assert (await verification.verify(database, "k1")).ok


async def test_a_disk_that_hangs_keeps_nobody(
    database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    hanging = asyncio.ensure_future(database._writer.run(answers.wait))
    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.ground.store.database._WRITE_SECONDS", 0.05)
        for _ in range(3):
            with pytest.raises(AuditUnavailableError, match="did not answer"):
                await ledger.append(draft())
    answers.set()
    await hanging
    # A write that was given up before it began is not carried out later.
    assert (await ledger.append(draft())).seq == 1


async def test_a_read_only_file_and_recovery(database: Database, ledger: Ledger) -> None:
    await read_only(database, True)
    for effect in (None, mark):
        with pytest.raises(AuditUnavailableError, match="readonly"):
            await ledger.append(draft(), effect)
    await read_only(database, False)
    assert (await ledger.append(draft())).seq == 1


async def test_a_closed_ledger_or_database(database: Database) -> None:
    ledger = Ledger(database)
    under_way = asyncio.create_task(ledger.append(draft()))
    await asyncio.sleep(0)
    await ledger.close()
    assert (await under_way).seq == 1
    with pytest.raises(AuditUnavailableError, match="closed"):
        await ledger.append(draft())
    other = Ledger(database)
    await database.close()
    with pytest.raises(AuditUnavailableError, match="closed"):
        await other.append(draft())
    with pytest.raises(AuditUnavailableError, match="closed"):
        await other.agent_head("k1", "boot")


async def test_a_cancelled_append_is_recorded_and_harms_nobody(
    database: Database, ledger: Ledger
) -> None:
    tasks = [asyncio.create_task(ledger.append(draft())) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    verdict = await verification.verify(database, "k1")
    assert (verdict.ok, verdict.seq) == (True, 3)


async def test_a_subscriber_hears_of_what_is_new(ledger: Ledger) -> None:
    waiters = [
        asyncio.create_task(ledger.wait("k1", 0)),
        asyncio.create_task(ledger.wait("k1", 1)),
        asyncio.create_task(ledger.wait(None, 2)),
        asyncio.create_task(ledger.wait("k3", 0)),
    ]
    await ledger.append(draft("k2"))
    await ledger.append(draft("k1"))
    assert await waiters[0] == 1
    assert not waiters[1].done()
    await ledger.append(draft("k1"))
    assert await waiters[1] == 2
    assert await waiters[2] == 3
    assert not waiters[3].done()
    waiters[3].cancel()
    await asyncio.wait([waiters[3]])
    # A wait for an existing event ends at once, also in a ledger that has just started.
    assert await ledger.wait("k1", 1) == 2


async def test_a_new_ledger_knows_the_position(database: Database, ledger: Ledger) -> None:
    await fill(ledger, 2)
    started = Ledger(database)
    assert await started.wait("k1", 1) == 2
    assert await started.wait(None, 0) == 2


async def test_subscribers_that_went_away_leave_nothing(ledger: Ledger) -> None:
    waiter = asyncio.create_task(ledger.wait("k1", 0))
    await ledger.append(draft("k2"))
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert await ledger.wait("k2", 0) == 1
    assert ledger._waiters == {}


async def test_the_two_commits_of_a_command_write_little(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    """Counted in pages of the write-ahead log: indexes that only searches need are not in it."""

    async def run(number: int) -> None:
        args = {"command_id": f"c{number:04}", "argv": ["grep", "-c", "hello", "notes.txt"]}
        await ledger.append(draft(decision="allow", args=args))
        await ledger.append(
            draft(
                operation="command.exit",
                args={"command_id": f"c{number:04}"},
                agent=("boot", number + 1),
                result={"exit_code": 0, "pad": "x" * 200},
            )
        )

    for number in range(300):
        await run(number)
    log = tmp_path / "paddock.db-wal"
    await database.scrub()
    await database.write(lambda connection: connection.execute("PRAGMA wal_autocheckpoint = 0"))
    before = log.stat().st_size
    for number in range(300, 400):
        await run(number)
    # With seven more indexes, it was 21.
    assert (log.stat().st_size - before) / 4096 / 100 < 15
