"""Backups: whole or refused, of any schema, and restored all or not at all."""

import asyncio
import io
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.store import directories
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import MIGRATIONS, migrate_file, newest_schema
from orchestrator.operate.backups.backup import TakenBackup, take
from orchestrator.operate.backups.backup_file import BackupError
from orchestrator.operate.backups.contents import PRIVATE
from orchestrator.operate.backups.restoration import RestoredBackup, restore, settle
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.verification import verify_all
from orchestrator.settings.settings import Settings
from paddock.audit.chain import GENESIS_HASH, canonical, chain_hash
from tests.unit.ledger_support import fill


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of an instance with every kind of file."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for name in ("evidence/0123/pty-1/raw", "archive/0123.tar.gz", *PRIVATE[:4], "keys.toml"):
        path = state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the content of {name}")
    (state / "instance").write_text("01234567\n")
    return Settings(state_dir=state)


@pytest.fixture
async def filled(settings: Settings) -> Settings:
    await with_events(settings)
    return settings


async def with_events(settings: Settings, count: int = 20) -> None:
    database = await Database.open(settings.state_dir / "paddock.db")
    ledger = Ledger(database)
    await fill(ledger, count)
    await fill(ledger, count, "k2")
    await ledger.close()
    await database.close()


def took(settings: Settings, target: Path, **more: Any) -> TakenBackup:
    return take(settings, target, lambda _text: None, **more)


async def restored(settings: Settings, source: Path, **more: Any) -> RestoredBackup:
    return await restore(settings, source, lambda _text: None, **more)


def elsewhere(settings: Settings, name: str = "other") -> Settings:
    return Settings(state_dir=settings.state_dir.parent / name)


def events(state_dir: Path) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(state_dir / "paddock.db")) as connection:
        assert all(verdict.ok for _, verdict in verify_all(connection))
        rows = connection.execute("SELECT session_key, seq, hash FROM events ORDER BY id")
        return rows.fetchall()


def everything(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


async def test_what_is_backed_up_is_restored(filled: Settings, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    taken = took(filled, file)
    assert (taken.events, taken.chains, taken.bytes) == (40, 2, file.stat().st_size)
    assert file.stat().st_mode & 0o777 == 0o600
    other = elsewhere(filled)
    assert (await restored(other, file)).chains == 2
    *same, last = events(other.state_dir)
    assert same == events(filled.state_dir)
    assert last[:2] == ("system", 1)
    for name in ("evidence/0123/pty-1/raw", "archive/0123.tar.gz", *PRIVATE[:4], "keys.toml"):
        path = other.state_dir / name
        assert path.read_text() == f"the content of {name}"
        assert path.stat().st_mode & 0o777 == 0o600
    # It is another instance, whose containers are not those of the first.
    assert not (other.state_dir / "instance").exists()
    assert sorted(os.listdir(tmp_path)) == ["backup.tar", "other", "state"]


async def test_without_keys(filled: Settings, tmp_path: Path) -> None:
    took(filled, tmp_path / "backup.tar", private=False)
    other = elsewhere(filled)
    await restored(other, tmp_path / "backup.tar")
    assert not set(PRIVATE) & set(os.listdir(other.state_dir))
    assert (other.state_dir / "keys.toml").exists()


@pytest.mark.slow
async def test_a_backup_of_a_busy_database_is_of_one_moment(
    settings: Settings, tmp_path: Path
) -> None:
    """Events are recorded all the time, and none of them waits for the backup."""
    database = await Database.open(settings.state_dir / "paddock.db")
    ledger = Ledger(database)
    await fill(ledger, 200)
    going = asyncio.create_task(fill(ledger, 100_000))
    before = ledger.committed
    for number in range(3):
        taken = await asyncio.to_thread(took, settings, tmp_path / f"{number}.tar")
        assert before <= taken.events <= ledger.committed
        assert ledger.committed > before
        before = ledger.committed
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    await ledger.close()
    await database.close()
    await restored(elsewhere(settings), tmp_path / "2.tar")
    assert len(events(elsewhere(settings).state_dir)) == taken.events + 1


@pytest.mark.parametrize("schema", [1, 9, newest_schema()])
async def test_of_any_schema(settings: Settings, tmp_path: Path, schema: int) -> None:
    """An earlier Paddock's state, as it was written."""
    old = tmp_path / "migrations"
    old.mkdir()
    for file in sorted(MIGRATIONS.glob("*.sql"))[:schema]:
        shutil.copy(file, old)
    database = settings.state_dir / "paddock.db"
    migrate_file(database, old)
    _record(database)
    took(settings, tmp_path / "backup.tar")
    other = elsewhere(settings)
    await restored(other, tmp_path / "backup.tar")
    *same, _ = events(other.state_dir)
    assert same == events(settings.state_dir)
    with closing(sqlite3.connect(other.state_dir / "paddock.db")) as connection:
        newest = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    assert newest == (newest_schema(),)


def _record(database: Path) -> None:
    """Two events, with the columns of every schema."""
    with closing(sqlite3.connect(database)) as connection, connection:
        previous = GENESIS_HASH
        for seq in (1, 2):
            body: dict[str, Any] = {
                **{"id": seq, "session_id": "s", "seq": seq, "time": "t", "operation": "o"},
                **{"decision": None, "turn": None, "args": {}, "agent": None},
            }
            text = canonical(body)
            now = chain_hash(previous, text)
            row = (seq, "k", "s", seq, "t", "o", text, previous, now)
            connection.execute(
                "INSERT INTO events (id, session_key, session_id, seq, time, operation, body,"
                " prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            previous = now


def _rewritten(file: Path, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> None:
    """Writes the backup again, with other members."""
    with tarfile.open(file) as archive:
        read = [(each.name, archive.extractfile(each)) for each in archive]
        found = [(name, data.read()) for name, data in read if data is not None]
    with tarfile.open(file, "w") as archive:
        for name, data in found:
            changed = change(name, data)
            if changed is not None:
                info = tarfile.TarInfo(changed[0])
                info.size = len(changed[1])
                archive.addfile(info, io.BytesIO(changed[1]))


def _flip(name: str, data: bytes) -> tuple[str, bytes]:
    return name, data[:-1] + bytes([data[-1] ^ 1]) if name == "keys.toml" else data


async def test_a_damaged_one_changes_nothing(filled: Settings, tmp_path: Path) -> None:
    good = tmp_path / "good.tar"
    took(filled, good)
    size = good.stat().st_size
    other = elsewhere(filled)
    other.state_dir.mkdir(mode=0o700)
    before = everything(other.state_dir)

    def cut(length: int) -> Callable[[Path], None]:
        return lambda file: os.truncate(file, length)

    def rewrite(
        change: Callable[[str, bytes], tuple[str, bytes] | None],
    ) -> Callable[[Path], None]:
        return lambda file: _rewritten(file, change)

    damages: dict[str, Callable[[Path], object]] = {
        "begin with": lambda file: file.write_bytes(b"\0" * 10_240),
        "no backup": lambda file: file.write_bytes(b"anything"),
        "truncated header": cut(100),
        "damaged": cut(size // 2),
        "its end is missing": rewrite(lambda n, d: None if n == "digests.json" else (n, d)),
        "keys.toml is not as": rewrite(_flip),
        "anchor.key is not as": rewrite(lambda n, d: None if n == "anchor.key" else (n, d)),
        "formats up to 1": rewrite(lambda n, d: (n, d.replace(b'"format": 1', b'"format": 2'))),
        "names no format": rewrite(lambda n, d: (n, b"{}") if n == "backup.json" else (n, d)),
        "'../up' can't be": rewrite(lambda n, d: ("../up", d) if n == "keys.toml" else (n, d)),
        "'/tmp/up' can't": rewrite(lambda n, d: ("/tmp/up", d) if n == "keys.toml" else (n, d)),
    }
    for number, (message, damage) in enumerate(damages.items()):
        file = tmp_path / f"{number}.tar"
        shutil.copy(good, file)
        damage(file)
        with pytest.raises(BackupError, match=message):
            await restored(other, file)
        assert {**everything(other.state_dir), "lock": b""} == {**before, "lock": b""}, message
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        info = tarfile.TarInfo("backup.json")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(BackupError, match="is no file"):
        await restored(other, tmp_path / "link.tar")
    await restored(other, good)


async def test_a_broken_chain_is_not_backed_up_or_restored(
    filled: Settings, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(filled.state_dir / "paddock.db")) as connection, connection:
        connection.execute("UPDATE events SET body = replace(body, 'number', 'numbed')")
    with pytest.raises(BackupError, match="chain k1 does not verify: event 0"):
        took(filled, tmp_path / "backup.tar")
    assert os.listdir(tmp_path) == ["state"]


async def test_what_is_refused(filled: Settings, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    with pytest.raises(BackupError, match="there is no database"):
        took(elsewhere(filled), file)
    took(filled, file)
    with pytest.raises(BackupError, match="exists: a backup replaces no file"):
        took(filled, file)
    with pytest.raises(BackupError, match="has a database, which only --replace replaces"):
        await restored(filled, file)
    used = directories.lock(filled.state_dir)
    with pytest.raises(BackupError, match="a control plane uses"):
        await restored(filled, file, replace=True)
    os.close(used)
    with pytest.raises(BackupError, match="No such file"):
        await restored(elsewhere(filled), tmp_path / "missing.tar")


async def test_what_is_replaced_is_kept(filled: Settings, tmp_path: Path) -> None:
    took(filled, tmp_path / "backup.tar")
    first = events(filled.state_dir)
    await with_events(filled, 3)
    second = events(filled.state_dir)
    done = await restored(filled, tmp_path / "backup.tar", replace=True)
    assert events(filled.state_dir)[:-1] == first
    assert done.kept is not None
    assert events(done.kept) == second
    assert (done.kept / "evidence/0123/pty-1/raw").exists()
    # The instance stays the same, so that its containers are found.
    assert (filled.state_dir / "instance").read_text() == "01234567\n"


async def test_a_restoration_that_is_killed_is_completed_later(
    filled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took(filled, tmp_path / "backup.tar")
    wanted, before = events(filled.state_dir), everything(filled.state_dir)
    await with_events(filled, 3)
    real, moves = shutil.move, 0

    class Killed(BaseException):
        pass

    def move(source: Path, target: Path) -> object:
        nonlocal moves
        if moves == 0:
            raise Killed
        moves -= 1
        return real(source, target)

    monkeypatch.setattr(shutil, "move", move)
    with pytest.raises(Killed):
        await restored(filled, tmp_path / "backup.tar", replace=True)
    for _ in range(20):  # each attempt gets one step further
        moves = 1
        try:
            settle(filled)
        except Killed:
            continue
        break
    assert events(filled.state_dir)[:-1] == wanted
    after = everything(filled.state_dir)
    assert {name for name in before if "db" not in name} <= set(after)
    assert "restored" not in str(sorted(after))
