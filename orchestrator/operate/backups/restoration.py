"""Restores a backup into the state directory of a control plane that does not run.

A backup is unpacked and verified in the directory `restoring`, which is then renamed to `restored`.
From then on the restoration is decided: whoever locks the state directory next moves the files into
place (`settle`). A restoration that is killed therefore leaves either what was there before or the
whole backup.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store import directories, schema
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError, migrate_file
from orchestrator.operate.backups.backup import check_whole
from orchestrator.operate.backups.backup_file import BackupError, BackupReader, Report
from orchestrator.operate.backups.contents import BELONGS_TO_DATABASE, DATABASE, roots
from orchestrator.operate.backups.workspaces import SLOTS, check_slots, settle_slots
from orchestrator.record.audit.ledger import Ledger
from orchestrator.settings.settings import Settings, ensure_state_dir

_DRAFT, _COMPLETE = "restoring", "restored"
_BESIDE = ("", "-wal", "-shm")
# No container has the new names, so the next start finds that their sandboxes are gone.
_END_SANDBOXES = """
    UPDATE sessions SET sandbox = lower(hex(randomblob(8))), container_id = NULL
    WHERE status IN ('active', 'paused') AND sandbox IS NOT NULL
"""


class RestoredBackup(NamedTuple):
    """What was restored: when it was taken, its sessions that end, and its chains.

    `kept` is the directory with what was there before.
    """

    taken_at: str
    sessions_ended: int
    chains: int
    workspaces: int
    kept: Path | None


async def restore(
    settings: Settings, source: Path, report: Report, *, replace: bool = False
) -> RestoredBackup:
    """Restores `source`; with `replace`, what is there is moved aside within the state directory.

    Sessions that were live when the backup was taken end as `crash` at the next start. Raises:
    BackupError, also if a control plane uses the directory; nothing is changed then.
    """
    state_dir = settings.state_dir
    try:
        ensure_state_dir(state_dir)
        with _locked(state_dir), source.open("rb") as file:
            settle(settings)
            if (state_dir / DATABASE).exists() and not replace:
                raise BackupError(f"{state_dir} has a database, which only --replace replaces")
            draft = state_dir / _DRAFT
            draft.mkdir(mode=0o700)
            try:
                reader = BackupReader.of(file)
                reader.unpack(draft, report)
                for name in BELONGS_TO_DATABASE:
                    (draft / name).mkdir(mode=0o700, exist_ok=True)
                if not reader.is_stated:
                    report("an older backup: it does not state the digest of all its bytes")
                restored = await _prepare(draft / DATABASE, reader.about, reader.sha256, report)
                directories.sync_tree(draft)
                draft.rename(state_dir / _COMPLETE)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            return restored._replace(kept=settle(settings))
    except BackupError as error:
        raise BackupError(f"{source}: {error}") from None
    except (OSError, sqlite3.Error, StoreError, PaddockError) as error:
        raise BackupError(f"{source} can't be restored: {error}") from None


def settle(settings: Settings) -> Path | None:
    """Completes a restoration that was decided, and forgets one that was not. It blocks.

    The caller has locked the state directory. Returns the directory with what was replaced, if
    there was something. Raises: OSError, MountError.
    """
    state_dir = settings.state_dir
    shutil.rmtree(state_dir / _DRAFT, ignore_errors=True)
    complete = state_dir / _COMPLETE
    if not complete.exists():
        return None
    kept = state_dir / time.strftime("replaced-%Y%m%dT%H%M%SZ", time.gmtime())

    def keep() -> Path:
        kept.mkdir(mode=0o700, exist_ok=True)
        return kept

    if (complete / SLOTS).exists():
        settle_slots(complete / SLOTS, state_dir, keep)
    targets = {**roots(settings), DATABASE: state_dir / DATABASE}
    # The database comes last: until it is moved, the old one is in force.
    for name in sorted(os.listdir(complete), key=lambda name: name == DATABASE):
        if name in targets:  # a keys file that the settings place elsewhere stays as it is
            _move(complete / name, targets[name], kept)
    shutil.rmtree(complete)
    directories.sync(state_dir)
    return kept if kept.exists() else None


def _move(new: Path, target: Path, kept: Path) -> None:
    """Moves away what is there, and then the new file or directory into its place."""
    for end in _BESIDE:
        old = target.with_name(target.name + end)
        if os.path.lexists(old):
            kept.mkdir(mode=0o700, exist_ok=True)
            shutil.move(old, kept / old.name)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.move(new, target)


async def _prepare(
    database: Path, about: dict[str, Any], digest: str, report: Report
) -> RestoredBackup:
    """Migrates and verifies the database, ends what ran, and records the restoration in it."""
    _check_schema(database)
    migrate_file(database)
    with closing(sqlite3.connect(database)) as connection:
        chains = check_whole(connection, report)
        workspaces = check_slots(database.parent, connection)
    ended = 0

    def apply(connection: sqlite3.Connection) -> None:
        nonlocal ended
        ended = connection.execute(_END_SANDBOXES).rowcount

    opened = await Database.open(database)
    try:
        ledger = Ledger(opened)
        taken_at = str(about.get("taken_at"))
        args = {"taken_at": taken_at, "sha256": digest, "instance": about.get("instance")}
        await ledger.append(EventDraft("state.restored", actor="system", args=args), apply)
        await ledger.close()
    finally:
        await opened.close()
    return RestoredBackup(taken_at, ended, chains, workspaces, None)


def _check_schema(database: Path) -> None:
    """Looks at the schema before anything of it is used. Raises: BackupError if it is not ours."""
    beside = [f"{DATABASE}{end}" for end in _BESIDE[1:]]
    if found := [name for name in beside if database.with_name(name).exists()]:
        raise BackupError(f"{found[0]} can't be in a backup")
    with closing(sqlite3.connect(database)) as connection:
        try:
            connection.execute("PRAGMA query_only = ON")
            foreign = schema.difference(connection)
        except sqlite3.Error as error:
            raise BackupError(f"its database can't be read: {error}") from None
    if foreign is not None:
        raise BackupError(
            f"its database has another schema than Paddock's: {foreign}. Restore a backup that"
            " nobody has changed, with this version or a newer one than wrote it"
        )


@contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    """Raises: BackupError while a control plane uses the directory."""
    try:
        descriptor = directories.lock(state_dir)
    except BlockingIOError:
        raise BackupError(f"a control plane uses {state_dir}: stop it first") from None
    try:
        yield
    finally:
        os.close(descriptor)
