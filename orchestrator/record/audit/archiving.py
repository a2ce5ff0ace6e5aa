"""Moves the complete chains of ended sessions from the ledger to compressed files.

The file is written and read back, then its head is recorded, and only then are rows deleted. After
a kill, the next start continues from what is recorded.
"""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from orchestrator.ground.errors import CapacityExhaustedError, NotFoundError, PaddockError
from orchestrator.ground.events import SYSTEM_KEY, EventDraft, now, time_text
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.ground.threads import KeyedThreads
from orchestrator.record.audit import archive_rows, query
from orchestrator.record.audit.archive_rows import Archived, Ended
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.writer import chain_head
from paddock.audit import archive_file
from paddock.audit.archive_file import ArchiveError

log = logging.getLogger(__name__)

# Chains per call, so that the caller gets an answer soon.
MOST_AT_ONCE = 50
# The interval of the retention, which may therefore be this much late.
_LOOK_SECONDS = 3600.0
# The time for one chain, including the database's reads and writes, and for a whole run.
_CHAIN_SECONDS = 1800.0
_ROUND_SECONDS = 3600.0
# The time for one call of the disk. A long call packs, syncs and reads back an archive, or removes
# evidence.
_CALL_SECONDS, _LONG_CALL_SECONDS = 60.0, 600.0
_MOST_THREADS = 2

T = TypeVar("T")


class DiskHangsError(ArchiveError):
    """The disk did not answer in time, and would not do so for another chain either."""


class ArchiveDisk:
    """Calls the disk in threads, one at a time per chain. A call that hangs is abandoned."""

    def __init__(self) -> None:
        self._threads = KeyedThreads("archives", _MOST_THREADS)

    async def call(self, key: str, function: Callable[[], T], *, long: bool = False) -> T:
        """Runs `function`, which may access only that chain's files, and returns its result.

        Raises: DiskHangsError, also while an earlier call for the chain is still running; the
        errors of `function`.
        """
        seconds = _LONG_CALL_SECONDS if long else _CALL_SECONDS
        try:
            return await self._threads.call(key, function, seconds)
        except TimeoutError as error:
            detail = str(error) or f"no answer within {seconds:g} s"
            raise DiskHangsError(f"the disk hangs: {detail}") from None


class ArchivingRun(NamedTuple):
    """The result of a run: what was archived, what failed and why, and whether there is more.

    `refused` is keyed by session: its id, a slash, and its incarnation.
    """

    archived: list[Archived]
    refused: dict[str, str]
    more: bool


class Archiving:
    """One run at a time. `freed` is called with an owner and the bytes that were freed."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        directory: Path,
        evidence: Path,
        freed: Callable[[str, int], None],
        check_disk: Callable[[Path], None] = lambda _: None,
        hold_bytes: int = 0,
    ) -> None:
        """`check_disk` raises CapacityExhaustedError if a directory's disk is nearly full.

        `hold_bytes` of ended sessions wait for exports at most.
        """
        self._hold_bytes = hold_bytes
        self._database = database
        self._ledger = ledger
        self._directory = directory
        self._evidence = evidence
        self._freed = freed
        self._check_disk = check_disk
        self._disk = ArchiveDisk()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._lock = asyncio.Lock()
        # Sessions that could not be archived the last time: the others come first.
        self._refused: set[str] = set()
        self._task: Supervised | None = None

    def start(self, retention_seconds: int | None, tasks: Tasks) -> None:
        """Finishes an interrupted run, then archives older sessions periodically, if configured."""
        if retention_seconds is None:
            work, forever = self._finish, False
        else:
            work, forever = partial(self._keep, timedelta(seconds=retention_seconds)), True
        self._task = tasks.start(TaskName.ARCHIVING, work, forever=forever, rounds=self._rounds)

    async def close(self) -> None:
        """Stops; the next start finishes what is incomplete."""
        if self._task is not None:
            await self._task.close()

    async def run(self, older_than: timedelta, actor: str) -> ArchivingRun:
        """Archives sessions that ended before that time, oldest first. A hanging disk ends the run.

        Raises: AuditUnavailableError, StoreError.
        """
        before = time_text(datetime.now(UTC) - older_than)
        async with self._lock:
            with self._rounds.round() as this:
                await self._empty()
                run = await self._archive_all(before, actor)
                # Includes rows that the first attempt could not delete.
                this.failed = not await self._empty() or bool(run.refused)
        return run

    async def _archive_all(self, before: str, actor: str) -> ArchivingRun:
        # One more than are archived shows whether there is more.
        most = MOST_AT_ONCE + 1 + len(self._refused)
        found = await self._database.browse(
            lambda connection: archive_rows.due(connection, before, most, self._hold_bytes)
        )
        found.sort(key=lambda session: session.key in self._refused)
        archived, refused = list[Archived](), dict[str, str]()
        more = len(found) > MOST_AT_ONCE
        for session in found[:MOST_AT_ONCE]:
            try:
                archived.append(await self._archive(session, actor))
                self._refused.discard(session.key)
            except ArchiveError as error:
                log.error("session %s could not be archived: %s", session.id, error)
                refused[f"{session.id}/{session.incarnation}"] = str(error)
                self._refused.add(session.key)
                if isinstance(error, DiskHangsError):
                    more = False  # the next session would wait just as long
                    break
        return ArchivingRun(archived, refused, more and bool(archived))

    async def page(self, after: str, limit: int) -> list[Archived]:
        """Archived chains in the order of their sessions' keys. Raises: StoreError."""
        return await self._database.browse(lambda conn: archive_rows.page(conn, after, limit))

    async def check_here(self, session_key: str) -> None:
        """Raises NotFoundError that names the archive if the chain is archived."""
        found = await self._database.read(lambda conn: archive_rows.find(conn, session_key))
        if found is not None:
            raise NotFoundError(
                f"the audit chain of session {found.session_id} is archived: `paddock audit verify "
                f"--archive {self._directory / found.file}`",
                archive=found.file,
            )

    async def _archive(self, session: Ended, actor: str) -> Archived:
        """Raises ArchiveError; nothing has changed then."""
        try:
            async with asyncio.timeout(_CHAIN_SECONDS):
                return await self._archive_one(session, actor)
        except CapacityExhaustedError as error:
            raise ArchiveError(error.detail) from None
        except TimeoutError:
            raise DiskHangsError(f"it took longer than {_CHAIN_SECONDS:g} s") from None

    async def _archive_one(self, session: Ended, actor: str) -> Archived:
        call = partial(self._disk.call, session.key)
        await call(partial(self._check_disk, self._directory))
        head = await self._database.browse(lambda connection: chain_head(connection, session.key))
        draft = self._directory / f".{session.key}"
        name = session.key + archive_file.SUFFIX
        about = {"session": {n: v for n, v in session._asdict().items() if n != "audit_bytes"}}
        try:
            await call(partial(_make, draft))
            await self._write_rows(session.key, draft)
            evidence = self._evidence / session.key
            target = self._directory / name
            seal = await call(
                partial(archive_file.write, target, about, (head.seq, head.hash), draft, evidence),
                long=True,
            )
        except OSError as error:
            raise ArchiveError(f"{self._directory}: {error.strerror}") from None
        except ValueError as error:
            raise ArchiveError(f"an event is broken: {error}") from None
        finally:
            with suppress(DiskHangsError):  # the next attempt removes it
                await call(partial(shutil.rmtree, draft, ignore_errors=True))
        archived = Archived(
            session_key=session.key,
            session_id=session.id,
            owner=session.owner,
            file=name,
            archived_at=now(),
            **seal._asdict(),
        )
        await self._seal(archived, actor)
        return archived

    async def _write_rows(self, key: str, draft: Path) -> None:
        events, lines = draft / archive_file.EVENTS, list[str]()
        async for line in query.export(self._database, key):
            lines.append(line)
            if len(lines) == query.PAGE:
                await self._disk.call(key, partial(_append, events, lines))
                lines = []
        await self._disk.call(key, partial(_append, events, lines))
        for table, name in (
            ("approvals", archive_file.APPROVALS),
            ("terminals", archive_file.TERMINALS),
        ):
            rows = await self._database.browse(partial(archive_rows.rows_of, table=table, key=key))
            await self._disk.call(key, partial(_append, draft / name, rows))

    async def _seal(self, archived: Archived, actor: str) -> None:
        """Records the chain's head and the file in the chain without a session."""
        args = archived.public()
        unsent = await self._database.browse(
            partial(archive_rows.unsent, session_key=archived.session_key)
        )
        if unsent:
            log.error("session %s is archived: exports lack %d events", archived.session_id, unsent)
            args["unsent_events"] = unsent
        result = {"head_seq": args.pop("seq"), "head_hash": args.pop("hash")}
        draft = EventDraft(
            session_key=SYSTEM_KEY,
            session_id=None,
            source="control-plane",
            actor=actor,
            operation="audit.archived",
            args=args,
            result=result,
        )
        insert = archive_rows.inserting(archived)

        def apply(connection: sqlite3.Connection) -> None:
            if chain_head(connection, archived.session_key) != (archived.seq, archived.hash):
                raise ArchiveError("an event was recorded meanwhile: it will be tried again")
            insert(connection)

        await self._ledger.append(draft, apply)

    async def _empty(self) -> bool:
        """Deletes the rows of archived sessions; returns whether all of them are gone."""
        whole = True
        for key, owner, size in await self._database.browse(archive_rows.left):
            try:
                await self._disk.call(key, partial(_remove, self._evidence / key), long=True)
            except (ArchiveError, OSError) as error:
                log.error("evidence of an archived session could not be removed: %s", error)
                whole = False
                if isinstance(error, DiskHangsError):
                    break
                continue
            while not await self._database.write(partial(archive_rows.empty, key=key)):
                pass
            self._freed(owner, -size)
        return whole

    async def _finish(self) -> None:
        async with self._lock:
            with self._rounds.round() as this:
                this.failed = not await self._empty()

    async def _keep(self, retention: timedelta) -> None:
        while True:
            try:
                while (await self.run(retention, "system")).more:
                    pass
            except (PaddockError, StoreError, OSError) as error:
                log.error("ended sessions could not be archived: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)


def _make(draft: Path) -> None:
    draft.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(lines)


def _remove(evidence: Path) -> None:
    if evidence.exists():
        shutil.rmtree(evidence)
