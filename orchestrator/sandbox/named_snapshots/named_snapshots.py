"""All named snapshots: taken, listed, given to new sessions, removed; each change is on record."""

import asyncio
import logging
import re
import sqlite3
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orchestrator.cluster.names import NameClaims
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PaddockError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect, all_of
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Threads
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.storage import Storage
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.named_snapshots import snapshot_rows, snapshot_texts
from orchestrator.sandbox.named_snapshots.copies_ahead import CopiesAhead
from orchestrator.sandbox.named_snapshots.snapshot_files import SnapshotFiles
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from orchestrator.sandbox.named_snapshots.snapshot_taking import NO_IMAGE, SnapshotTaking
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from orchestrator.state.starting_files import StartingFiles

log = logging.getLogger(__name__)

# Copies that are made at the same time; more would only share the disk.
_MOST_COPIES = 4
_FILE_SECONDS = 60.0
_SYSTEM = "system"
_ID = re.compile("snap-[0-9a-f]{16}")


class ShownSnapshot(NamedTuple):
    """A snapshot, and how many bytes of it are copied so far; None unless it is being taken."""

    snapshot: NamedSnapshot
    copied: int | None


class NamedSnapshots:
    """Copies of workspaces, each a file. A change continues if its caller is cancelled."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        recorder: Recorder,
        storage: Storage,
        names: NameClaims,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._storage = storage
        self._names = names
        self._files = SnapshotFiles(settings.snapshots_path, settings.min_free_disk_bytes)
        self._threads = Threads("files of snapshots", _MOST_COPIES)
        self._copies = asyncio.Semaphore(_MOST_COPIES)
        self.ahead = CopiesAhead(storage, self._files, self._copies)
        self._taking = SnapshotTaking(
            *(settings, recorder, storage, self._files, self._copies, names),
            *(self._take_back, self._give_back),
        )
        self._changes = TaskScope("a change of a snapshot")

    async def take(
        self,
        principal: Principal,
        session: Session,
        name: str,
        metadata: Mapping[str, str] | None = None,
        *,
        layer: bool = False,
    ) -> ShownSnapshot:
        """A snapshot of the session's workspace under that name of its owner.

        What writes to the workspace waits for a moment. `metadata` are the client's own texts by
        name. `layer`: with what was written over the image. Raises: ValidationError; ConflictError
        if the name is taken, or the session can have no snapshot; RateLimitedError if the owner has
        too many; CapacityExhaustedError if the disk is full; StorageError, AuditUnavailableError;
        the errors of `Session.check_live`.
        """
        if _ID.fullmatch(name):
            raise ValidationError("name must not be one like an id", field="name")
        taking = self._taking.take(principal, session, name, metadata or {}, layer=layer)
        return ShownSnapshot(await self._changes.shield(taking), None)

    async def take_unnamed(self, principal: Principal, session: Session) -> NamedSnapshot:
        """A snapshot that nobody can find; its caller must remove it by `discard`.

        It has the layer, if the session's level has one. The next start removes it, too. Raises:
        likewise.
        """
        layer = session.level.root_bytes is not None
        return await self._taking.take(principal, session, None, {}, layer=layer)

    async def _take_back(self, snapshot: NamedSnapshot, error: BaseException | None = None) -> None:
        """Removes a snapshot that nobody knows."""
        why = error.detail if isinstance(error, PaddockError) else "interrupted"
        await self._forget(_SYSTEM, snapshot, f"the snapshot could not be taken: {why}")

    async def _give_back(self, snapshot: NamedSnapshot) -> None:
        """Frees the name of what was never recorded, or leaves that to the next start."""
        freed = self._freed(snapshot)
        if freed is None:
            return
        try:
            await self._database.write(freed, reserve=True)
        except StoreError as error:
            log.warning("the next start frees the name %s: %s", snapshot.name, error)

    def _freed(self, snapshot: NamedSnapshot) -> Effect | None:
        return None if snapshot.taken is None else self._names.freed(snapshot.id)

    # Showing.

    async def page(
        self, owner: str | None, session_id: str | None, after: tuple[str, str], limit: int
    ) -> list[ShownSnapshot]:
        """Snapshots of the owner, or of all, behind that owner and name.

        `session_id` None: of any session.
        """
        found = await self._database.read(
            lambda connection: snapshot_rows.page(connection, owner, session_id, after, limit)
        )
        return [self._shown(snapshot) for snapshot in found]

    async def show(self, owner: str, ref: str) -> ShownSnapshot:
        """The owner's snapshot with that id or name. Raises: NotFoundError."""
        find = partial(snapshot_rows.find, owner=owner, ref=ref)
        return self._shown(await self._database.read(find))

    def _shown(self, snapshot: NamedSnapshot) -> ShownSnapshot:
        return ShownSnapshot(snapshot, self._taking.copied.get(snapshot.id))

    def paths(self, snapshot: NamedSnapshot) -> list[Path]:
        """Its files, for whoever reads them; not all exist."""
        return self._files.paths(snapshot.id)

    # Changing and removing.

    async def change(
        self, principal: Principal, owner: str, ref: str, texts: Mapping[str, str | None]
    ) -> ShownSnapshot:
        """Changes the client's texts of a snapshot: None removes one, and the others stay.

        What sessions began as is not changed. Raises: NotFoundError; ConflictError while it is
        taken; ValidationError if the texts are too long together; AuditUnavailableError.
        """
        return await self._changes.shield(self._change(principal, owner, ref, texts))

    async def _change(
        self, principal: Principal, owner: str, ref: str, texts: Mapping[str, str | None]
    ) -> ShownSnapshot:
        snapshot = (await self.show(owner, ref)).snapshot
        _check_ready(snapshot)
        draft = EventDraft(
            "snapshot.change",
            actor=principal.name,
            decision="allow",
            args={"name": snapshot.name, "metadata": dict(texts)},
            made=Made(args={"id": snapshot.id, "key": owner}),
        )
        change = partial(snapshot_texts.changed, changes=texts)
        effect = partial(snapshot_rows.change, snapshot_id=snapshot.id, change=change)
        await self._recorder.record_of_key(owner, draft, effect)
        return await self.show(owner, snapshot.id)

    async def remove(self, principal: Principal, owner: str, ref: str) -> ShownSnapshot:
        """Removes a snapshot, and returns it as it was. Sessions that began as it keep their files.

        Raises: NotFoundError; ConflictError while it is taken; AuditUnavailableError.
        """
        return await self._changes.shield(self._remove(principal, owner, ref))

    async def _remove(self, principal: Principal, owner: str, ref: str) -> ShownSnapshot:
        shown = await self.show(owner, ref)
        _check_ready(shown.snapshot)
        await self._forget(principal.name, shown.snapshot)
        return shown

    async def discard(self, snapshot: NamedSnapshot) -> None:
        """Removes a snapshot without a name. Raises: AuditUnavailableError."""
        await self._forget(_SYSTEM, snapshot)

    async def remove_taken_before(self, moment: str) -> datetime | None:
        """Removes complete snapshots from before that time; returns when the oldest was taken."""
        expired = partial(snapshot_rows.expired, before=moment)
        for snapshot in await self._database.read(expired):
            await self._changes.shield(self._forget(_SYSTEM, snapshot))
        oldest = await self._database.read(snapshot_rows.oldest)
        return None if oldest is None else datetime.fromisoformat(oldest)

    async def _forget(self, actor: str, snapshot: NamedSnapshot, error: str | None = None) -> None:
        """Once the removal is on record, the next start completes it."""
        draft = EventDraft(
            "snapshot.remove",
            actor=actor,
            decision=None if actor == _SYSTEM else "allow",
            args={} if snapshot.name is None else {"name": snapshot.name},
            made=Made(args={"id": snapshot.id, "key": snapshot.owner}),
            error=error,
            stop=True,
        )
        effect = all_of(partial(snapshot_rows.remove, snapshot=snapshot), self._freed(snapshot))
        await self._recorder.record_of_key(snapshot.owner, draft, effect)
        FaultPoint.SNAPSHOT_FORGOTTEN.reached()
        try:
            await self._threads.call(partial(self._files.remove, snapshot.id), _FILE_SECONDS)
        except OSError as failure:  # includes TimeoutError
            log.warning("the next start removes the file of %s: %s", snapshot.id, failure)

    # For new sessions.

    async def starting(self, owner: str, ref: str) -> StartingFiles:
        """The files of the owner's snapshot with that id or name, for a new session.

        Raises: NotFoundError; ConflictError while it is taken.
        """
        return self.files_of((await self.show(owner, ref)).snapshot)

    def files_of(self, snapshot: NamedSnapshot) -> StartingFiles:
        """The files of a snapshot, for a new session. Raises: ConflictError while it is taken."""
        return StartingFiles(
            id=snapshot.id,
            name=snapshot.name,
            sha256=_check_ready(snapshot),
            session_id=snapshot.session_id,
            session_key=snapshot.session_key,
            used_bytes=snapshot.used_bytes,
            layer=snapshot.layer_bytes is not None,
            claiming=partial(_claiming, snapshot),
            place=partial(self._place, snapshot),
        )

    async def _place(self, snapshot: NamedSnapshot, session: Session) -> None:
        if session.workspace.quota is not Quota.IMAGE:
            raise ConflictError(NO_IMAGE)
        if not await self.ahead.take(snapshot.id, session.workspace):
            async with self._copies:
                await self._storage.on_slot(
                    session.workspace, lambda slot: self._files.place(snapshot.id, slot)
                )
        if snapshot.layer_bytes is not None:
            await self._storage.on_slot(
                session.workspace, partial(self._files.place_layer, snapshot.id)
            )
        FaultPoint.SNAPSHOT_PLACED.reached()

    # After a start.

    async def recover(self) -> None:
        """Removes what was interrupted, and files and rows that have lost each other.

        Raises: AuditUnavailableError.
        """
        known = await self._database.read(snapshot_rows.all_of)
        for snapshot in known:
            layer = snapshot.layer_bytes is not None
            missing = partial(self._files.missing, snapshot.id, layer=layer)
            if not snapshot.ready or snapshot.name is None:
                await self._take_back(snapshot)
            elif await self._threads.call(missing, _FILE_SECONDS):
                await self._forget(_SYSTEM, snapshot, "its file is gone")
        ids = {snapshot.id for snapshot in known}
        await self._threads.call(partial(self._files.remove_all_but, ids), _FILE_SECONDS)

    async def close(self) -> None:
        """Waits for changes."""
        await self._changes.drain()


def _check_ready(snapshot: NamedSnapshot) -> str:
    """The digest of a complete snapshot. Raises: ConflictError while it is taken."""
    if not snapshot.ready or snapshot.sha256 is None:
        raise ConflictError("the snapshot is being taken: wait until it is complete")
    return snapshot.sha256


def _claiming(snapshot: NamedSnapshot, session: Session) -> Effect:
    def check(connection: sqlite3.Connection) -> None:
        if slots.find(connection, session.id) is not None:
            raise ConflictError(
                f"there is a workspace {session.id} already: purge it, or choose another id",
                field="id",
            )
        if not snapshot_rows.exists(connection, snapshot.id):
            raise NotFoundError("the snapshot is gone: it was removed meanwhile")

    return check
