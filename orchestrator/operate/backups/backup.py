"""Takes a backup of a state directory, whether its control plane runs or not. It blocks."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

from orchestrator.ground.events import now
from orchestrator.ground.store import schema
from orchestrator.ground.store.database_file import StoreError, migrate_file
from orchestrator.operate.backups.backup_file import BackupError, BackupReader, BackupWriter, Report
from orchestrator.operate.backups.contents import ARCHIVE, DATABASE, members, roots
from orchestrator.operate.backups.workspaces import AddedWorkspaces, add_workspaces
from orchestrator.record.audit.verification import verify_all
from orchestrator.settings.settings import Settings

# Pages for each step, between which progress is reported.
_STEP_PAGES = 4096
_BUSY_SECONDS = 10.0
# If sessions are archived meanwhile, their evidence moves, and everything is copied again.
_ATTEMPTS = 3


class TakenBackup(NamedTuple):
    """A complete and verified backup: the size of its file, and how much it has.

    `left_out` has, by id, why requested workspaces are not in it.
    """

    bytes: int
    files: int
    events: int
    chains: int
    workspaces: int
    left_out: dict[str, str]


def take(
    settings: Settings,
    target: Path,
    report: Report,
    *,
    private: bool = True,
    workspaces: bool = False,
) -> TakenBackup:
    """Writes a backup to `target`, which appears when it is complete and verified.

    `private`: with the keys. Raises: BackupError.
    """
    if not (settings.state_dir / DATABASE).exists():
        raise BackupError(f"{settings.state_dir}: there is no database to back up")
    if os.path.lexists(target):
        raise BackupError(f"{target} exists: a backup replaces no file")
    try:
        with _draft(target) as (draft, file), _scratch(draft) as copy:
            for _ in range(_ATTEMPTS):
                before = _archives(settings)
                _copy_database(settings.state_dir / DATABASE, copy, report)
                file.seek(0)
                file.truncate()
                writer = _write(settings, file, copy, report, private=private)
                if _archives(settings) == before:
                    break
            else:
                raise BackupError("sessions were archived meanwhile: try again")
            added = AddedWorkspaces(0, {})
            if workspaces:
                image = draft.with_name(f"{draft.name}.img")
                added = add_workspaces(writer, copy, settings.state_dir, image, report)
            writer.close()
            report("verifying")
            events, chains = _verified(copy, report)
            taken = TakenBackup(_finish(file), len(writer.digests), events, chains, *added)
            _name(draft, target)
    except (OSError, sqlite3.Error, StoreError) as error:
        raise BackupError(f"{target}: {error}") from None
    return taken


@contextmanager
def _draft(target: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A file beside the target, for this process only; removed in the end."""
    draft = target.with_name(f".{target.name}.draft")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600), "w+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"another backup is writing {target}") from None
        try:
            os.fchmod(file.fileno(), 0o600)
            yield draft, file
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def _scratch(draft: Path) -> Iterator[Path]:
    """The copy of the database while the backup is written."""
    copy = draft.with_name(f"{draft.name}.db")
    files = [copy, *(copy.with_name(copy.name + end) for end in ("-journal", "-wal", "-shm"))]
    try:
        for file in files:
            file.unlink(missing_ok=True)
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        yield copy
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _copy_database(source: Path, copy: Path, report: Report) -> None:
    """Copies one consistent view of the database; writers do not wait, however long it takes."""

    def progress(_status: int, remaining: int, total: int) -> None:
        report(f"database, {100 * (total - remaining) // max(total, 1)} %")

    uri = f"file:{quote(str(source))}?mode=rw"
    with (
        closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as origin,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        origin.isolation_level = None
        origin.execute("PRAGMA query_only = ON")
        # All steps see the database as of this transaction. Without one, each commit of the
        # control plane would make the copy begin again.
        origin.execute("BEGIN")
        origin.execute("SELECT count(*) FROM schema_version").fetchone()
        target.execute("PRAGMA synchronous = OFF")
        origin.backup(target, pages=_STEP_PAGES, progress=progress)
        origin.execute("ROLLBACK")
        target.execute("PRAGMA journal_mode = DELETE")


def _write(
    settings: Settings, file: IO[bytes], copy: Path, report: Report, *, private: bool
) -> BackupWriter:
    """Writes everything but workspaces; the caller closes the writer."""
    writer = BackupWriter(file, _about(settings, copy, private=private))
    writer.add(DATABASE, copy)
    for member in members(roots(settings, private=private)):
        report(member.name)
        try:
            writer.add(member.name, member.path)
        except FileNotFoundError:  # removed meanwhile, with the record that names it
            continue
    return writer


def _about(settings: Settings, copy: Path, *, private: bool) -> dict[str, object]:
    with closing(sqlite3.connect(copy)) as connection:
        (schema,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    try:
        instance = (settings.state_dir / "instance").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        instance = None
    return {
        "taken_at": now(),
        "instance": instance,
        "schema": schema,
        "keys": private,
    }


def _archives(settings: Settings) -> list[str]:
    found = roots(settings)[ARCHIVE]
    return sorted(each.name for each in members({ARCHIVE: found}))


def _verified(copy: Path, report: Report) -> tuple[int, int]:
    """Checks the copy of the database, and returns the numbers of its events and chains.

    Migrates it first, so that its chains can be read. A backup of another schema could not be
    restored.
    """
    with closing(sqlite3.connect(copy)) as connection:
        if foreign := schema.difference(connection):
            raise BackupError(f"the database has another schema than Paddock's: {foreign}")
    migrate_file(copy)
    with closing(sqlite3.connect(copy)) as connection:
        chains = check_whole(connection, report)
        (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return events, chains


def check_whole(connection: sqlite3.Connection, report: Report) -> int:
    """Checks every page and every chain; returns the number of chains. Raises: BackupError."""
    report("checking the database")
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise BackupError(f"the database is damaged: {'; '.join(found)}")
    number = 0
    for number, (key, verdict) in enumerate(verify_all(connection), 1):
        report(f"{number} chains verified")
        if not verdict.ok:
            raise BackupError(
                f"the chain {key} does not verify: event {verdict.index}: {verdict.reason}"
            )
    return number


def _finish(file: IO[bytes]) -> int:
    """Makes the file durable and reads it back; returns its size. Raises: BackupError."""
    file.flush()
    os.fsync(file.fileno())
    BackupReader.of(file).check()
    return os.fstat(file.fileno()).st_size


def _name(draft: Path, target: Path) -> None:
    """Gives the complete file its name, unless something else has it by now. Raises: OSError."""
    os.link(draft, target)
    descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
