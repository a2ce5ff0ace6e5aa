"""Erases the content of one owner: files, outputs, transcripts, memory, and what events say.

The order is on record before anything is erased, and a start goes on with what is left. Chains
keep their events with digests of the content, so they still verify.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from orchestrator.ground.errors import AuditUnavailableError, PaddockError
from orchestrator.ground.events import SYSTEM_KEY, EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.ground.threads import KeyedThreads
from orchestrator.operate.privacy import erased_rows
from orchestrator.operate.privacy.erased_archive import erase_archive
from orchestrator.operate.privacy.erased_rows import EndedSession
from orchestrator.operate.privacy.owner_export import SUFFIX
from orchestrator.operate.privacy.owners_files import OwnersFiles
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.writer import chain_head
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.registry import Registry
from orchestrator.work.memory import memory_rows
from paddock.audit.archive_file import ArchiveError

log = logging.getLogger(__name__)

_ROUND_SECONDS = 3600.0
# One call of the disk: a long one makes an archive anew, or removes much evidence.
_DISK_SECONDS = 600.0
_PAGE = 100

T = TypeVar("T")


@dataclass(slots=True)
class Erasure:
    """What was erased. `old_events` of the instance's chain have no salt and stay as they are."""

    owner: str
    sessions: int = 0
    events: int = 0
    archives: int = 0
    removed_chains: int = 0
    old_events: int = 0
    volumes: int = 0
    snapshots: int = 0
    memory: int = 0


class Erasing:
    """One erasure at a time. It continues if its caller is cancelled."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        registry: Registry,
        files: OwnersFiles,
        scrub: Callable[[], None],
    ) -> None:
        """`scrub` has deleted rows removed from the database's files."""
        self._database = database
        self._recorder = recorder
        self._registry = registry
        self._files = files
        self._scrub = scrub
        self._disk = KeyedThreads("erasures", 1)
        self._changes = TaskScope("an erasure")
        self._rounds = Rounds(_ROUND_SECONDS)
        self._lock = asyncio.Lock()
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Goes on with what an earlier control plane has left."""
        self._task = tasks.start(TaskName.ERASING, self._finish, forever=False, rounds=self._rounds)

    async def close(self) -> None:
        """Stops; the next start goes on."""
        if self._task is not None:
            await self._task.close()
        await self._changes.drain()

    async def erase(self, principal: Principal, owner: str, reason: str) -> Erasure:
        """Erases it; `reason` is on record. What can't be removed now stays ordered.

        Raises: ConflictError while a session of the owner has not ended; AuditUnavailableError,
        StoreError, and the errors of what is removed, after which it can be asked for again.
        """
        return await self._changes.shield(self._erase(principal, owner, reason))

    async def _erase(self, principal: Principal, owner: str, reason: str) -> Erasure:
        async with self._lock:
            draft = EventDraft(
                "owner.erase",
                actor=principal.name,
                decision="allow",
                args={"key": owner, "reason": reason},
                stop=True,
            )
            begin = erased_rows.beginning(owner, principal.name)
            await self._recorder.record_of_key(owner, draft, begin)
            FaultPoint.ERASE_RECORDED.reached()
            return await self._carry_out(owner, principal.name)

    async def _finish(self) -> None:
        async with self._lock:
            with self._rounds.round() as this:
                this.failed = not await self._go_on()

    async def _go_on(self) -> bool:
        """Goes on with what has begun; returns whether all of it is done."""
        done = True
        for owner, asked_by in await self._database.read(erased_rows.begun):
            try:
                await self._carry_out(owner, asked_by)
            except (PaddockError, StoreError) as error:
                done = False
                log.error("what %s has could not be erased: %s", owner, error)
        return done

    async def _carry_out(self, owner: str, asked_by: str) -> Erasure:
        done = Erasure(owner)
        await self._remove_files(Principal(asked_by, Role.ADMIN), done)
        FaultPoint.ERASE_FILES_REMOVED.reached()
        await self._erase_sessions(done)
        await self._erase_archives(done)
        await self._erase_events_of_instance(done)
        FaultPoint.ERASE_ROWS_ERASED.reached()
        self._registry.forget_ended(owner)
        amounts = {name: value for name, value in asdict(done).items() if name != "owner"}
        draft = EventDraft(
            "owner.erased", actor=asked_by, args={"key": owner}, result=amounts, stop=True
        )
        await self._recorder.record_of_key(owner, draft, erased_rows.ending(owner))
        # Until then, readers may have kept the write-ahead log.
        if not await self._database.scrub():
            self._scrub()
        return done

    async def _remove_files(self, principal: Principal, done: Erasure) -> None:
        files, owner = self._files, done.owner
        exported = files.exports / f"{owner}{SUFFIX}"
        await self._on_disk(owner, partial(exported.unlink, missing_ok=True))
        # What an export that was killed has left.
        await self._on_disk(owner, partial(_remove, files.exports / f".{owner}"))
        await files.workspaces.purge_of(owner)
        while volumes := await files.volumes.page(owner, ("", ""), _PAGE):
            for each in volumes:
                await files.volumes.remove(principal, owner, each.volume.name)
                done.volumes += 1
        while snapshots := await files.snapshots.page(owner, None, ("", ""), _PAGE):
            for shown in snapshots:
                await files.snapshots.remove(principal, owner, shown.snapshot.id)
                done.snapshots += 1
        while entries := await files.memory.page(owner, None, None, _PAGE):
            for entry in entries:
                await files.memory.remove(principal, entry.id)
                done.memory += 1
        await self._database.write(memory_rows.forget_removed)

    async def _erase_sessions(self, done: Erasure) -> None:
        after = ""
        while found := await self._database.read(
            partial(erased_rows.sessions, owner=done.owner, after=after)
        ):
            for session in found:
                await self._erase_session(session, done)
            after = found[-1].key

    async def _erase_session(self, session: EndedSession, done: Erasure) -> None:
        evidence = self._files.evidence / session.key
        await self._on_disk(session.key, partial(_remove, evidence))
        await self._database.write(partial(erased_rows.erase_session, key=session.key))
        done.sessions += 1
        after: int | None = 0
        while after is not None:
            portion = await self._database.write(
                partial(erased_rows.erase_events, key=session.key, after=after)
            )
            done.events += portion.erased
            if portion.old:
                await self._remove_chain(session, done)
                return
            after = portion.last

    async def _remove_chain(self, session: EndedSession, done: Erasure) -> None:
        """Removes a chain of an earlier version, whose head is on record from then on."""
        head = await self._database.read(partial(chain_head, session_key=session.key))
        await self._record_removed(done.owner, session, {"seq": head.seq, "hash": head.hash})
        while not await self._database.write(partial(erased_rows.delete_events, key=session.key)):
            pass
        done.removed_chains += 1

    async def _record_removed(
        self, owner: str, session: EndedSession, head: dict[str, object]
    ) -> None:
        args = {"key": owner, "session_key": session.key, "session_id": session.id}
        draft = EventDraft(
            "audit.erased", actor="system", args=args, result={"head": head}, stop=True
        )
        await self._recorder.record_of_key(owner, draft, lambda connection: None)

    async def _erase_archives(self, done: Erasure) -> None:
        after = ""
        while found := await self._database.read(
            partial(erased_rows.archives, owner=done.owner, after=after)
        ):
            for key, file in found:
                await self._erase_archive(key, file, done)
            after = found[-1][0]

    async def _erase_archive(self, key: str, file: str, done: Erasure) -> None:
        path = self._files.archives / file
        seal = await self._on_disk(key, partial(erase_archive, path))
        done.archives += 1
        args = {"key": done.owner, "session_key": key, "file": file}
        result = None if seal is None else {"sha256": seal.sha256, "bytes": seal.bytes}
        draft = EventDraft("audit.erased", actor="system", args=args, result=result, stop=True)
        replaced = None if seal is None else (seal.sha256, seal.bytes)
        replace = partial(erased_rows.replace_archive, key=key, seal=replaced)
        await self._recorder.record_of_key(done.owner, draft, replace)

    async def _erase_events_of_instance(self, done: Erasure) -> None:
        after: int | None = 0
        while after is not None:
            portion = await self._database.write(
                partial(erased_rows.erase_events, key=SYSTEM_KEY, after=after, owner=done.owner)
            )
            done.events += portion.erased
            done.old_events += portion.old
            after = portion.last

    async def _on_disk(self, key: str, function: Callable[[], T]) -> T:
        try:
            return await self._disk.call(key, function, _DISK_SECONDS)
        except (ArchiveError, OSError, TimeoutError) as error:
            detail = str(error) or "the disk does not answer"
            raise AuditUnavailableError(f"not all is erased yet: {detail}; ask again") from error


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
