import asyncio
import os
import shutil
import sqlite3
import threading
from functools import partial
from pathlib import Path

import pytest

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import MIGRATIONS, StoreError
from orchestrator.state.stored_sessions import next_incarnation


def workspace(connection: sqlite3.Connection, name: str, uid: int) -> None:
    connection.execute(
        "INSERT INTO workspaces (id, owner, uid, slot, created_at) VALUES (?, 'admin', ?, ?, '')",
        (name, uid, f"slot{uid}"),
    )


def names(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT id FROM workspaces ORDER BY id")]


def session(connection: sqlite3.Connection, key: str, status: str, name: str = "Sess") -> None:
    connection.execute(
        "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
        " created_at) VALUES (?, ?, 'admin', ?, 'low', '', '')",
        (key, name, status),
    )


def earlier_session(connection: sqlite3.Connection, key: str, name: str) -> None:
    """An ended session, in the schema of a time when its terms had columns."""
    connection.execute(
        "INSERT INTO sessions (key, id, owner, status, permission_level, level, image,"
        " idle_timeout, created_at) VALUES (?, ?, 'admin', 'completed', 'low', '', '', 1, '')",
        (key, name),
    )


async def test_what_is_written_is_read(database: Database) -> None:
    await database.write(lambda conn: workspace(conn, "a", 1))
    assert await database.read(names) == ["a"]


async def test_settings_of_the_connections(database: Database, tmp_path: Path) -> None:
    def read(connection: sqlite3.Connection) -> dict[str, int | str]:
        wanted = ("journal_mode", "synchronous", "foreign_keys", "query_only")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}

    writer = await database.write(read)
    assert writer == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "query_only": 0,
    }
    assert (await database.read(read))["query_only"] == 1
    for name in ("paddock.db", "paddock.db-wal", "paddock.db-shm"):
        assert os.stat(tmp_path / name).st_mode & 0o777 == 0o600


async def test_a_failing_write_leaves_nothing(database: Database) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        workspace(connection, "a", 1)
        raise LookupError("no")

    with pytest.raises(LookupError):
        await database.write(fail)
    assert await database.read(names) == []
    await database.write(lambda conn: workspace(conn, "b", 1))


async def test_errors_of_sqlite_are_store_errors(database: Database) -> None:
    with pytest.raises(StoreError, match="no such table"):
        await database.write(lambda conn: conn.execute("DELETE FROM missing"))
    with pytest.raises(StoreError, match="readonly"):
        await database.read(lambda conn: workspace(conn, "a", 1))
    assert await database.read(names) == []


async def test_constraints_are_told_apart(database: Database) -> None:
    await database.write(lambda conn: workspace(conn, "Name", 1))
    with pytest.raises(sqlite3.IntegrityError):
        await database.write(lambda conn: workspace(conn, "nAME", 2))


async def test_a_live_id_is_unique_and_can_be_used_again(database: Database) -> None:
    await database.write(lambda conn: session(conn, "1", "completed"))
    await database.write(lambda conn: session(conn, "2", "paused", "sess"))
    with pytest.raises(sqlite3.IntegrityError):
        await database.write(lambda conn: session(conn, "3", "active", "SESS"))
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        await database.write(lambda conn: session(conn, "4", "gone", "other"))


async def test_many_writers(database: Database) -> None:
    await asyncio.gather(
        *(database.write(partial(workspace, name=f"{n:03}", uid=n)) for n in range(50))
    )
    assert len(await database.read(names)) == 50


async def test_closed(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "paddock.db")
    late = asyncio.create_task(database.write(lambda conn: workspace(conn, "a", 1)))
    await asyncio.sleep(0)
    await database.close()
    await database.close()
    await late
    with pytest.raises(StoreError, match="closed"):
        await database.read(names)
    reopened = await Database.open(tmp_path / "paddock.db")
    assert await reopened.read(names) == ["a"]
    await reopened.close()


async def test_migrations_are_applied_once_and_in_order(tmp_path: Path) -> None:
    files = tmp_path / "migrations"
    files.mkdir()
    (files / "0001_one.sql").write_text("CREATE TABLE workspaces (id TEXT);")
    first = await Database.open(tmp_path / "x.db", files)
    await first.close()
    (files / "0002_two.sql").write_text("INSERT INTO workspaces VALUES ('from two');")
    for _ in range(2):
        database = await Database.open(tmp_path / "x.db", files)
        assert await database.read(names) == ["from two"]
        await database.close()


async def test_sessions_of_earlier_versions_get_their_numbers(tmp_path: Path) -> None:
    files = tmp_path / "migrations"
    files.mkdir()
    for file in sorted(MIGRATIONS.glob("*.sql")):
        if file.name < "0016":
            shutil.copy(file, files)
    database = await Database.open(tmp_path / "paddock.db", files)

    def make(connection: sqlite3.Connection) -> None:
        rows = (("k3", "a", "3"), ("k1", "a", "1"), ("k2", "a", "2"), ("k4", "A", "4"))
        for key, name, created_at in (*rows, ("k5", "b", "5")):
            earlier_session(connection, key, name)
            connection.execute(
                "UPDATE sessions SET created_at = ? WHERE key = ?", (created_at, key)
            )

    await database.write(make)
    await database.close()
    database = await Database.open(tmp_path / "paddock.db")
    found = await database.read(
        lambda conn: conn.execute("SELECT key, incarnation FROM sessions ORDER BY key").fetchall()
    )
    assert found == [("k1", 1), ("k2", 2), ("k3", 3), ("k4", 1), ("k5", 1)]
    latest = [await database.read(partial(next_incarnation, session_id=name)) for name in "aAbc"]
    assert latest == [4, 2, 2, 1]
    await database.close()


async def test_numbering_sessions_looks_at_each_a_few_times(tmp_path: Path) -> None:
    """The cost of a migration grows linearly with the number of sessions, not quadratically."""
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    for file in sorted(MIGRATIONS.glob("*.sql")):
        if file.name < "0016":
            connection.executescript(file.read_text())
    steps = []
    (migration,) = MIGRATIONS.glob("0016_*.sql")
    for count in (1000, 4000):
        connection.execute("BEGIN")
        for number in range(count):
            earlier_session(connection, f"k{count}-{number}", "same")
        counted = [0]

        def step(counted: list[int] = counted) -> int:
            counted[0] += 1
            return 0

        connection.set_progress_handler(step, 100)  # instructions of SQLite's virtual machine
        for statement in _statements(migration.read_text()):
            connection.execute(statement)
        connection.set_progress_handler(None, 0)
        connection.execute("ROLLBACK")
        steps.append(counted[0])
    connection.close()
    assert steps[1] < 8 * steps[0]


def _statements(script: str) -> list[str]:
    statements, rest = [], ""
    for line in script.splitlines():
        rest += line + "\n"
        if sqlite3.complete_statement(rest):
            statements.append(rest)
            rest = ""
    return statements


async def test_a_broken_migration_leaves_the_schema_as_it_was(tmp_path: Path) -> None:
    files = tmp_path / "migrations"
    files.mkdir()
    path = files / "0001_one.sql"
    path.write_text("CREATE TABLE workspaces (id TEXT); CREATE TABLE workspaces (id TEXT);")
    with pytest.raises(StoreError, match=r"0001_one\.sql: table workspaces already"):
        await Database.open(tmp_path / "x.db", files)
    path.write_text("CREATE TABLE workspaces (id TEXT);")
    database = await Database.open(tmp_path / "x.db", files)
    assert await database.read(names) == []
    await database.close()


async def test_a_migration_that_comes_later_is_applied_whatever_its_number(tmp_path: Path) -> None:
    (tmp_path / "0001_one.sql").write_text("CREATE TABLE one (a);")
    (tmp_path / "0003_three.sql").write_text("CREATE TABLE three (a);")
    await (await Database.open(tmp_path / "x.db", tmp_path)).close()
    (tmp_path / "0002_two.sql").write_text("CREATE TABLE two (a);")
    database = await Database.open(tmp_path / "x.db", tmp_path)
    await database.write(lambda conn: conn.execute("INSERT INTO two SELECT one.a FROM one, three"))
    await database.close()


async def test_two_migrations_with_one_number_are_refused(tmp_path: Path) -> None:
    (tmp_path / "0001_one.sql").write_text("")
    (tmp_path / "0001_other.sql").write_text("")
    with pytest.raises(StoreError, match=r"0001_one\.sql has the same number"):
        await Database.open(tmp_path / "x.db", tmp_path)


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "x.db")
    await database.write(
        lambda conn: conn.execute("INSERT INTO schema_version VALUES (999, 'later', '')")
    )
    await database.close()
    with pytest.raises(StoreError, match="has schema 999"):
        await Database.open(tmp_path / "x.db")


async def test_files_that_are_no_database(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but text " * 100)
    (tmp_path / "link.db").symlink_to(tmp_path / "text.db")
    for name in ("text.db", "link.db", "none/x.db"):
        with pytest.raises(StoreError, match=name):
            await Database.open(tmp_path / name)


@pytest.mark.parametrize("method", ["read", "browse", "write"])
async def test_nobody_waits_for_a_disk_that_hangs(
    database: Database, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    release, call = threading.Event(), getattr(database, method)
    with monkeypatch.context() as patch:
        patch.setattr(f"orchestrator.ground.store.database._{method.upper()}_SECONDS", 0.01)
        with pytest.raises(StoreError, match="did not answer"):
            await call(lambda _: release.wait())
    release.set()
    assert await call(lambda _: 5) == 5
