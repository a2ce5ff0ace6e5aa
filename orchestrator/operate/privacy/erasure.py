"""Erases the content of one owner: files, outputs, transcripts, memory, and what events say.

Chains keep their events with digests of the content, so they still verify. What is done twice
changes nothing the second time, so an erasure that was interrupted begins again.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TypeVar

from orchestrator.ground.errors import AuditUnavailableError, NotFoundError
from orchestrator.ground.events import SYSTEM_KEY, EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.threads import KeyedThreads
from orchestrator.operate.privacy import erased_rows, erasure_orders
from orchestrator.operate.privacy.erased_archive import erase_archive
from orchestrator.operate.privacy.erased_rows import EndedSession
from orchestrator.operate.privacy.erasure_orders import OwnerOrder
from orchestrator.operate.privacy.owner_export import draft_of, export_of, hooks_of
from orchestrator.operate.privacy.owners_content import OwnersContent
from orchestrator.record.audit.writer import chain_head
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.secret import Holder
from orchestrator.work.memory import memory_rows
from paddock.audit.archive_file import ArchiveError

# One call of the disk: a long one makes an archive anew, or removes much evidence.
_DISK_SECONDS = 600.0
_PAGE = 100

T = TypeVar("T")


@dataclass(slots=True)
class Erasure:
    """What was erased. `old_events` of the instance's chain have no salt and stay as they are."""

    sessions: int = 0
    events: int = 0
    archives: int = 0
    removed_chains: int = 0
    old_events: int = 0
    volumes: int = 0
    snapshots: int = 0
    memory: int = 0
    secrets: int = 0
    hooks: int = 0

    def add(self, other: "Erasure") -> None:
        """Adds what another node has erased."""
        for field in fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)


class Erasing:
    """Carries out erasures, one at a time. Its steps are in the order of its methods.

    Each of them raises AuditUnavailableError, StoreError, and the errors of what is removed.
    """

    def __init__(self, content: OwnersContent) -> None:
        self._content = content
        self._database = content.database
        self._recorder = content.recorder
        self._disk = KeyedThreads("erasures", 1)

    async def begin(self, order: OwnerOrder) -> None:
        """Puts it on record. Raises: ConflictError while a session of the owner has not ended."""
        draft = EventDraft(
            "owner.erase",
            actor=order.asked_by,
            decision="allow",
            args={"key": order.owner, "reason": order.reason},
            stop=True,
        )
        effect = erasure_orders.beginning(order)
        await self._recorder.record_of_key(order.owner, draft, effect)
        FaultPoint.ERASE_RECORDED.reached()

    async def erase_of_key(self, order: OwnerOrder, done: Erasure) -> None:
        """Erases what a key has itself, which all nodes of a cluster share."""
        content, owner = self._content, order.owner
        admin = Principal(order.asked_by, Role.ADMIN)
        while entries := await content.memory.page(owner, None, None, _PAGE):
            for entry in entries:
                with suppress(NotFoundError):  # somebody else has removed it
                    await content.memory.remove(admin, entry.id)
                    done.memory += 1
        for secret in content.secrets.held_by(Holder(owner)):
            with suppress(NotFoundError):
                await content.secrets.remove(admin, Holder(owner), secret.name)
                done.secrets += 1
        for hook in hooks_of(content.hooks, owner):
            with suppress(NotFoundError):
                await content.hooks.remove(admin, hook.id)
                done.hooks += 1

    async def erase_here(self, order: OwnerOrder, done: Erasure) -> None:
        """Erases what is on this machine."""
        await self._remove_files(order, done)
        erase = partial(erased_rows.erase_own_of_key, owner=order.owner)
        while not await self._database.write(erase):
            pass
        await self._database.write(memory_rows.forget_removed)
        FaultPoint.ERASE_FILES_REMOVED.reached()
        await self._erase_sessions(order.owner, done)
        await self._erase_archives(order.owner, done)
        await self._erase_events_of_instance(order.owner, done)
        FaultPoint.ERASE_ROWS_ERASED.reached()

    async def end(self, order: OwnerOrder, done: Erasure) -> None:
        """Puts on record what was erased, and removes it from the database's files."""
        self._content.registry.forget_ended(order.owner)
        draft = EventDraft(
            "owner.erased",
            actor=order.asked_by,
            args={"key": order.owner},
            result=asdict(done),
            stop=True,
        )
        effect = erasure_orders.ending(order)
        await self._recorder.record_of_key(order.owner, draft, effect)
        # Until then, readers may have kept the write-ahead log.
        if not await self._database.scrub():
            self._content.scrub()

    async def _remove_files(self, order: OwnerOrder, done: Erasure) -> None:
        content, owner = self._content, order.owner
        principal = Principal(order.asked_by, Role.ADMIN)
        exported = export_of(content.exports, owner)
        await self._on_disk(owner, partial(exported.unlink, missing_ok=True))
        # What an export that was killed has left.
        await self._on_disk(owner, partial(_remove, draft_of(content.exports, owner)))
        await content.workspaces.purge_of(owner)
        while volumes := await content.volumes.page(owner, ("", ""), _PAGE):
            for each in volumes:
                await content.volumes.remove(principal, owner, each.volume.name)
                done.volumes += 1
        while snapshots := await content.snapshots.page(owner, None, ("", ""), _PAGE):
            for shown in snapshots:
                await content.snapshots.remove(principal, owner, shown.snapshot.id)
                done.snapshots += 1

    async def _erase_sessions(self, owner: str, done: Erasure) -> None:
        after = ""
        while found := await self._database.read(
            partial(erased_rows.sessions, owner=owner, after=after)
        ):
            for session in found:
                await self._erase_session(owner, session, done)
            after = found[-1].key

    async def _erase_session(self, owner: str, session: EndedSession, done: Erasure) -> None:
        evidence = self._content.evidence / session.key
        await self._on_disk(session.key, partial(_remove, evidence))
        while not await self._database.write(partial(erased_rows.erase_session, key=session.key)):
            pass
        done.sessions += 1
        after: int | None = 0
        while after is not None:
            portion = await self._database.write(
                partial(erased_rows.erase_events, key=session.key, after=after)
            )
            done.events += portion.erased
            if portion.old:
                await self._remove_chain(owner, session, done)
                return
            after = portion.last

    async def _remove_chain(self, owner: str, session: EndedSession, done: Erasure) -> None:
        """Removes a chain of an earlier version, whose head is on record from then on."""
        head = await self._database.read(partial(chain_head, session_key=session.key))
        args = {"key": owner, "session_key": session.key, "session_id": session.id}
        result = {"head": {"seq": head.seq, "hash": head.hash}}
        draft = EventDraft("audit.erased", actor="system", args=args, result=result, stop=True)
        await self._recorder.record_of_key(owner, draft, lambda connection: None)
        while not await self._database.write(partial(erased_rows.delete_events, key=session.key)):
            pass
        done.removed_chains += 1

    async def _erase_archives(self, owner: str, done: Erasure) -> None:
        after = ""
        while found := await self._database.read(
            partial(erased_rows.archives, owner=owner, after=after)
        ):
            for key, file in found:
                await self._erase_archive(owner, key, file)
                done.archives += 1
            after = found[-1][0]

    async def _erase_archive(self, owner: str, key: str, file: str) -> None:
        path = self._content.archives / file
        seal = await self._on_disk(key, partial(erase_archive, path))
        args = {"key": owner, "session_key": key, "file": file}
        result = None if seal is None else {"sha256": seal.sha256, "bytes": seal.bytes}
        draft = EventDraft("audit.erased", actor="system", args=args, result=result, stop=True)
        replaced = None if seal is None else (seal.sha256, seal.bytes)
        replace = partial(erased_rows.replace_archive, key=key, seal=replaced)
        await self._recorder.record_of_key(owner, draft, replace)

    async def _erase_events_of_instance(self, owner: str, done: Erasure) -> None:
        after: int | None = 0
        while after is not None:
            portion = await self._database.write(
                partial(erased_rows.erase_events, key=SYSTEM_KEY, after=after, owner=owner)
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
