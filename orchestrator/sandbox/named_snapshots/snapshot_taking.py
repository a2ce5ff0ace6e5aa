"""Takes snapshots: on record before and after, and within the quota of their owner."""

import asyncio
import json
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from orchestrator.cluster.names import NameClaims
from orchestrator.ground.errors import ConflictError, RateLimitedError
from orchestrator.ground.events import EventDraft, Made, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.limits import RETRY_SECONDS
from orchestrator.ground.store.effect import Effect
from orchestrator.host.workspace.freezing import Freezes
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.storage import Storage
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sandbox.named_snapshots import snapshot_rows
from orchestrator.sandbox.named_snapshots.snapshot_files import (
    KeptLayer,
    SavedSnapshot,
    SnapshotFiles,
    kept_layer,
)
from orchestrator.sandbox.named_snapshots.snapshot_rows import KeptSnapshots, NamedSnapshot
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from paddock.audit.chain import canonical

_SYSTEM = "system"


class SnapshotTaking:
    """Takes snapshots. `copied` has the bytes so far of each that is being taken, by id."""

    def __init__(
        self,
        settings: Settings,
        recorder: Recorder,
        storage: Storage,
        files: SnapshotFiles,
        copies: asyncio.Semaphore,
        names: NameClaims,
        take_back: Callable[[NamedSnapshot, BaseException], Awaitable[None]],
        give_back: Callable[[NamedSnapshot], Awaitable[None]],
    ) -> None:
        """`copies` limits how many are copied at a time.

        `take_back` removes what has failed, `give_back` frees the name of what was never recorded.
        """
        self._settings = settings
        self._recorder = recorder
        self._storage = storage
        self._files = files
        self._copies = copies
        self._names = names
        self._take_back = take_back
        self._give_back = give_back
        self.copied: dict[str, int] = {}

    async def take(
        self,
        principal: Principal,
        session: Session,
        name: str | None,
        metadata: Mapping[str, str],
        *,
        layer: bool,
    ) -> NamedSnapshot:
        """A snapshot under that name of its owner; without a name, its caller must remove it.

        `layer`: with what was written over the image.

        Raises: as `NamedSnapshots.take`.
        """
        session.check_live()
        _check_source(session)
        kept = await self._layer(session) if layer else None
        self._recorder.check_room(session)
        snapshot = await self._planned(session, name, metadata, kept)
        said: dict[str, Any] = {} if name is None else {"name": name}
        if layer:
            said["layer"] = True
        if metadata:
            said["metadata"] = dict(metadata)
        draft = EventDraft(
            "snapshot.start",
            actor=principal.name,
            decision="allow",
            args=said,
            made=Made(args={"id": snapshot.id}),
        )
        started = await self._begun(principal, session, snapshot, draft)
        FaultPoint.SNAPSHOT_RECORDED.reached()
        try:
            saved = await self._copy(session, snapshot, kept)
            complete = snapshot.completed(saved, _digest(snapshot, saved, started))
            await self._record_end(session, complete)
        except BaseException as error:
            await self._take_back(snapshot, error)
            raise
        FaultPoint.SNAPSHOT_ENDED.reached()
        return complete

    async def _begun(
        self, principal: Principal, session: Session, snapshot: NamedSnapshot, draft: EventDraft
    ) -> Recorded:
        """Takes the name, and records that the snapshot is to be taken."""
        try:
            if snapshot.taken is not None:
                await self._names.take(snapshot.taken)
                FaultPoint.SNAPSHOT_NAMED.reached()
            return await self._recorder.record(
                session, draft, effect=self._adding(principal, snapshot)
            )
        except BaseException:
            await self._give_back(snapshot)
            raise

    async def _planned(
        self,
        session: Session,
        name: str | None,
        metadata: Mapping[str, str],
        layer: KeptLayer | None,
    ) -> NamedSnapshot:
        usage = await self._storage.usage(session.workspace)
        estimate = 0 if usage is None else usage.used_bytes
        layer_bytes = None if layer is None else layer.bytes
        return NamedSnapshot(
            id=f"snap-{secrets.token_hex(8)}",
            owner=session.owner,
            name=name,
            session_id=session.id,
            session_key=session.key,
            created_at=now(),
            size=session.limits.workspace_bytes,
            bytes=estimate + (layer_bytes or 0),
            used_bytes=estimate,
            metadata=json.dumps(dict(metadata)),
            layer_bytes=layer_bytes,
        )

    def _adding(self, principal: Principal, snapshot: NamedSnapshot) -> Effect:
        def add(connection: sqlite3.Connection) -> None:
            if principal.role is not Role.ADMIN and snapshot.name is not None:
                self._check_quota(snapshot_rows.kept(connection, snapshot.owner), snapshot.bytes)
            snapshot_rows.add(connection, snapshot)

        return add

    def _check_quota(self, kept: KeptSnapshots, more: int) -> None:
        """Raises: RateLimitedError naming the limit."""
        settings = self._settings
        for limit, most, has, wanted in (
            ("key_max_snapshots", settings.key_max_snapshots, kept.snapshots, 1),
            ("key_max_snapshot_bytes", settings.key_max_snapshot_bytes, kept.bytes, more),
        ):
            if has + wanted > most:
                raise RateLimitedError(
                    f"{limit} is {most}, this key has {has} and this needs {wanted} more: remove "
                    "snapshots, `paddock snapshots rm NAME`",
                    limit=limit,
                    retry_after=RETRY_SECONDS,
                )

    async def _layer(self, session: Session) -> KeptLayer | None:
        """The layer of its sandbox; without one, what the next one begins with, if not the image.

        Raises: ConflictError at levels without layers; StorageError.
        """
        if session.level.root_bytes is None:
            raise ConflictError(
                f"level {session.level.name} has no writable layer that could be kept: it is for "
                "levels with root_bytes",
                field="layer",
            )
        sandbox = session.sandbox
        directory = None if sandbox is None else sandbox.directory.layer
        return await self._storage.on_slot(
            session.workspace, lambda slot: kept_layer(slot, directory)
        )

    async def _copy(
        self, session: Session, snapshot: NamedSnapshot, layer: KeptLayer | None
    ) -> SavedSnapshot:
        """What stops something in the sandbox ends the freezes of the copy."""
        self.copied[snapshot.id] = 0
        sandbox = session.sandbox
        freezes = Freezes() if sandbox is None else sandbox.freezes
        place = None if layer is None else layer.place
        progress = partial(self.copied.__setitem__, snapshot.id)
        try:
            async with self._copies:
                return await self._storage.on_slot(
                    session.workspace,
                    lambda slot: self._files.save(snapshot.id, slot, progress, freezes, place),
                )
        finally:
            self.copied.pop(snapshot.id, None)

    async def _record_end(self, session: Session, snapshot: NamedSnapshot) -> None:
        await self._recorder.record(
            session,
            EventDraft(
                "snapshot.end",
                actor=_SYSTEM,
                made=Made(
                    args={"id": snapshot.id},
                    result={
                        "sha256": snapshot.sha256,
                        "method": snapshot.method,
                        "bytes": snapshot.bytes,
                        **_layer_of(snapshot),
                        "frozen_us": snapshot.frozen_us,
                    },
                ),
                stop=True,  # the session may have ended meanwhile
            ),
            effect=partial(snapshot_rows.complete, snapshot=snapshot),
        )


NO_IMAGE = (
    "the workspace is a directory of the host's own file system, of which no snapshot can be "
    "taken: have the operator set PADDOCK_WORKSPACE_QUOTA=image"
)


def _check_source(session: Session) -> None:
    """Raises: ConflictError if no snapshot can be taken of the session's workspace."""
    if session.pack is not None:
        raise ConflictError("a session with a context pack has no snapshot: issue it again")
    if session.family.shares:
        raise ConflictError("a child that reads its parent's workspace has no snapshot")
    if session.workspace.quota is not Quota.IMAGE:
        raise ConflictError(NO_IMAGE)


def _layer_of(snapshot: NamedSnapshot) -> dict[str, int]:
    return {} if snapshot.layer_bytes is None else {"layer_bytes": snapshot.layer_bytes}


def _digest(snapshot: NamedSnapshot, saved: SavedSnapshot, started: Recorded) -> str:
    """The digest of what the record says: the copy, and the place in the source's chain."""
    told = {
        "id": snapshot.id,
        "session_key": snapshot.session_key,
        "seq": started.seq,
        "hash": started.hash,
        "size": saved.files.size,
        "used_bytes": saved.files.used_bytes,
    }
    if saved.layer is not None:
        told["layer_bytes"] = saved.layer.bytes
    return sha256(canonical(told).encode()).hexdigest()
