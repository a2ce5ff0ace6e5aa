"""A backup that is bent anywhere, or whose database has a foreign schema, restores nothing."""

import io
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as how
from hypothesis import strategies as st

from orchestrator.ground.store import schema
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import build_schema
from orchestrator.operate.backups import layout
from orchestrator.operate.backups.backup import take
from orchestrator.operate.backups.backup_file import BackupError, BackupWriter
from orchestrator.operate.backups.restoration import restore
from orchestrator.record.audit.ledger import Ledger
from orchestrator.settings.settings import Settings
from tests.unit.ledger_support import fill

DATABASE = "paddock.db"
WHOLE = "backup.sha256"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups")


@pytest.fixture
async def backup(place: Path) -> bytes:
    """The bytes of a backup with a database, a long name, and an empty file."""
    file = place / "good.tar"
    if not file.exists():
        settings = Settings(state_dir=place / "state")
        state = settings.state_dir
        for name, text in (("keys.toml", ""), (f"archive/{'a' * 120}.gz", "content")):
            path = state / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        database = await Database.open(state / DATABASE)
        ledger = Ledger(database)
        await fill(ledger, 20)
        await ledger.close()
        await database.close()
        take(settings, file, lambda _: None)
    return file.read_bytes()


async def refused(place: Path, data: bytes) -> str:
    """Why it isn't restored; a directory stays as it was."""
    file, target = place / "bent.tar", place / "target"
    target.mkdir(mode=0o700, exist_ok=True)
    file.write_bytes(data)
    with pytest.raises(BackupError) as raised:
        await restore(Settings(state_dir=target), file, lambda _: None)
    assert {path.name for path in target.iterdir()} <= {"lock"}
    return str(raised.value)


def members(data: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getmembers()


def parts_at(data: bytes, position: int) -> set[str]:
    """The part that has this byte, and the one before, after which a bent head is not found."""
    found = members(data)
    number = sum(each.offset <= position for each in found) - 1
    return {found[number].name, found[max(0, number - 1)].name}


def edges(data: bytes) -> list[int]:
    """The first and last bytes of heads, contents and blocks."""
    found = [0, len(data) - 1]
    for each in members(data):
        end = each.offset_data + each.size
        found += [
            each.offset,
            each.offset_data - 1,
            each.offset_data,
            end,
            -(-end // 512) * 512 - 1,
        ]
    return sorted({at for at in found if at < len(data)})


@how(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(where=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
@example(where=0.99999, bits=1)
async def test_each_bent_byte_is_found(backup: bytes, place: Path, where: float, bits: int) -> None:
    await assert_found(backup, place, int(where * len(backup)), bits)


@pytest.mark.parametrize("bits", [1, 0x20, 0xFF])
async def test_so_are_those_at_the_edges_of_its_parts(
    backup: bytes, place: Path, bits: int
) -> None:
    for position in edges(backup):
        await assert_found(backup, place, position, bits)


async def assert_found(backup: bytes, place: Path, position: int, bits: int) -> None:
    bent = bytearray(backup)
    bent[position] ^= bits
    said = await refused(place, bytes(bent))
    if position < members(backup)[1].offset:
        return  # a bent beginning is that of no backup
    names = parts_at(backup, position)
    if "digests.json" in names:
        return  # a digest that is bent differs from the part that it is of
    assert any(name[:90] in said for name in names) or "its end" in said, (position, said)


@pytest.mark.parametrize("length", [1, 200, 700, 5000])
async def test_an_end_that_is_replaced_is_found(backup: bytes, place: Path, length: int) -> None:
    assert "its end" in await refused(place, backup[:-length] + b"x" * length)
    # How much of the end is padding depends on what is in front of it.
    cut = await refused(place, backup[:-length])
    assert "its end" in cut or "unexpected end" in cut
    assert "its end" in await refused(place, backup + b"\0" * length)


def unpacked(backup: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(backup)) as archive:
        found = ((each.name, archive.extractfile(each)) for each in archive)
        return {name: data.read() for name, data in found if data is not None}


def written(place: Path, contents: dict[str, bytes]) -> bytes:
    """A backup with these contents, whose digests are right."""
    file = place / "forged.tar"
    with file.open("wb") as target:
        writer = BackupWriter(target, {"taken_at": "2026-01-01T00:00:00.000000Z"})
        for name, data in contents.items():
            path = place / "part"
            path.write_bytes(data)
            writer.add(name, path)
        writer.close()
    return file.read_bytes()


def forged(place: Path, backup: bytes, *statements: str, **more: bytes) -> bytes:
    """The backup with another database."""
    path = place / "forged.db"
    path.write_bytes(unpacked(backup)[DATABASE])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return written(place, {DATABASE: path.read_bytes(), **more})


WRITABLE = "PRAGMA writable_schema = ON"


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            [
                "CREATE TRIGGER cleaning AFTER INSERT ON events BEGIN"
                " DELETE FROM events WHERE id < NEW.id; END"
            ],
            "a foreign trigger 'cleaning'",
        ),
        (["CREATE VIEW seen AS SELECT * FROM events"], "a foreign view 'seen'"),
        (["CREATE INDEX fast ON events (time)"], "a foreign index 'fast'"),
        (["CREATE TABLE others (id INTEGER)"], "a foreign table 'others'"),
        (["CREATE VIRTUAL TABLE words USING fts5(word)"], "a foreign table 'words"),
        (["ALTER TABLE events ADD COLUMN more TEXT"], "a changed table 'events'"),
        (["DROP INDEX events_started"], "no index 'events_started'"),
        (["DROP TABLE schema_version"], "no table schema_version"),
        (
            ["DROP TABLE schema_version", "CREATE VIEW schema_version AS SELECT 99 AS version"],
            "no table schema_version",
        ),
        (
            [
                WRITABLE,
                "UPDATE sqlite_schema SET sql = replace(sql, 'TEXT', 'BLOB') WHERE name = 'events'",
            ],
            "a changed table 'events'",
        ),
        (["DELETE FROM schema_version WHERE version > 3"], "a "),
        (["INSERT INTO schema_version VALUES (999, 'later', 'now')"], "knows schemas up to"),
    ],
)
async def test_a_foreign_schema_is_refused(
    backup: bytes, place: Path, statements: list[str], said: str
) -> None:
    assert said in await refused(place, forged(place, backup, *statements))


async def test_what_is_forged_is_refused_before_it_does_anything(
    backup: bytes, place: Path
) -> None:
    """The trigger would remove all events but the one that a restoration records."""
    trigger = (
        "CREATE TRIGGER cleaning AFTER INSERT ON events BEGIN"
        " DELETE FROM events WHERE id < NEW.id; END"
    )
    data = forged(place, backup, trigger)
    assert "has another schema than Paddock's" in await refused(place, data)
    # The same database without the trigger is restored, with all its events.
    file, target = place / "whole.tar", place / "whole"
    file.write_bytes(forged(place, backup))
    await restore(Settings(state_dir=target), file, lambda _: None)
    with closing(sqlite3.connect(target / DATABASE)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (21,)


async def test_a_log_beside_the_database_is_refused(backup: bytes, place: Path) -> None:
    for name in (f"{DATABASE}-wal", f"{DATABASE}-shm"):
        contents = {DATABASE: unpacked(backup)[DATABASE], name: b"anything"}
        assert f"{name} can't be in a backup" in await refused(place, written(place, contents))


def test_no_backup_is_taken_that_could_not_be_restored(backup: bytes, place: Path) -> None:
    state = place / "changed"
    state.mkdir(mode=0o700)
    (state / DATABASE).write_bytes(unpacked(backup)[DATABASE])
    with closing(sqlite3.connect(state / DATABASE)) as connection:
        connection.execute("CREATE VIEW seen AS SELECT 1")
    with pytest.raises(BackupError, match="another schema than Paddock's: a foreign view 'seen'"):
        take(Settings(state_dir=state), place / "never.tar", lambda _: None)
    assert not (place / "never.tar").exists()


@pytest.fixture
def older(backup: bytes) -> bytes:
    """The same backup as earlier versions wrote it, without the digest of the whole."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in unpacked(backup).items():
            if name != WHOLE:
                archive.addfile(layout.info(name, len(data)), io.BytesIO(data))
    return file.getvalue()


async def test_an_older_backup_is_restored_and_says_what_it_does_not_state(
    older: bytes, place: Path
) -> None:
    file, said = place / "older.tar", list[str]()
    file.write_bytes(older)
    await restore(Settings(state_dir=place / "older"), file, said.append)
    assert "an older backup: it does not state the digest of all its bytes" in said
    assert "its end" in await refused(place, older[:-200] + b"x" * 200)


def test_the_schema_of_the_migrations_differs_in_nothing() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        build_schema(connection, range(1000))
        assert schema.difference(connection) is None
