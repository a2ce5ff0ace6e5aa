"""All volumes: created, listed, given to sessions, removed; each change is on record."""

import logging
import sqlite3
from functools import partial
from typing import NamedTuple

from orchestrator.cluster.names import NamedKind, TakenName
from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.errors import ConflictError, PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect, all_of, together
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.quota import DiskUsage
from orchestrator.host.workspace.storage import Storage
from orchestrator.host.workspace.uid_range import UidRange
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.sandboxes.workspaces import Workspaces, check_growth
from orchestrator.sandbox.volumes import volume_rows
from orchestrator.sandbox.volumes.volume_rows import User, Volume
from orchestrator.state.directory import MountedVolume
from orchestrator.state.session import Session

log = logging.getLogger(__name__)

# Each has a mount and a loop device.
MOST_OF_KEY = 100


class Shown(NamedTuple):
    """A volume, the live sessions that use it, and how full it is; None: nothing limits it."""

    volume: Volume
    users: list[User]
    usage: DiskUsage | None


class Volumes:
    """The files of a volume are kept like a workspace, under a uid of the volume's own.

    A change continues if its caller is cancelled.
    """

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        storage: Storage,
        uids: UidRange,
        workspaces: Workspaces,
        cluster: ClusterFloor,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._storage = storage
        self._uids = uids
        self._workspaces = workspaces
        self._cluster = cluster
        self._changes = TaskScope("a change of a volume")

    async def create(self, principal: Principal, name: str, size: int, quota: KeyLimits) -> Shown:
        """An empty volume of the caller, limited to `size` bytes.

        Raises: ConflictError if there is one with that name, or too many; RateLimitedError if it
        exceeds the quota; AuditUnavailableError, ClusterUnavailableError, and the errors of
        `Storage.prepare`.
        """
        return await self._changes.shield(self._create(principal, name, size, quota))

    async def _create(self, principal: Principal, name: str, size: int, quota: KeyLimits) -> Shown:
        owner, files_id = principal.account, slots.new_volume_id()
        added: list[Volume] = []

        def add(connection: sqlite3.Connection) -> None:
            before = slots.holdings(connection, owner)
            if len(volume_rows.page(connection, owner, ("", ""), MOST_OF_KEY)) >= MOST_OF_KEY:
                raise ConflictError(f"a key has at most {MOST_OF_KEY} volumes: remove one")
            uids, kind = (self._uids.base, self._uids.count), self._storage.choice.quota
            added[:] = [volume_rows.add(connection, files_id, owner, name, size, uids, kind)]
            check_growth(connection, added[0].files, quota, before)

        args = {"name": name, "key": owner, "size_bytes": size}
        draft = EventDraft("volume.create", actor=principal.name, decision="allow", args=args)
        taken = TakenName(NamedKind.VOLUME, owner, name, files_id)
        try:
            await self._cluster.names.take(taken)
            FaultPoint.VOLUME_NAMED.reached()
            await self._cluster.cluster_usage.add_volume(owner, files_id, size, quota)
            await self._recorder.record_of_key(owner, draft, add)
        except BaseException:
            await self._uncount(files_id)
            raise
        FaultPoint.VOLUME_RECORDED.reached()
        volume = added[0]
        try:
            await self._storage.prepare(volume.files, size)
            FaultPoint.VOLUME_MADE.reached()
            await self._database.write(partial(volume_rows.made, volume=volume))
        except BaseException as error:
            await self._take_back(volume, error)
            raise
        return await self.show(volume.owner, name)

    async def _uncount(self, files_id: str) -> None:
        """Has the cluster forget a volume that was never made, or leaves that to the next start."""
        cluster = self._cluster
        forgotten = together(cluster.names.freed(files_id), cluster.places.purged(files_id))
        if forgotten is None:
            return
        try:
            await self._database.write(forgotten, reserve=True)
        except StoreError as error:
            log.warning("the next start has the cluster forget %s: %s", files_id, error)

    async def _take_back(self, volume: Volume, error: BaseException | None = None) -> None:
        """Removes a volume that nobody knows."""
        why = error.detail if isinstance(error, PaddockError) else "interrupted"
        draft = EventDraft(
            "volume.remove",
            actor="system",
            args={"name": volume.name, "key": volume.owner},
            error=f"the volume could not be created: {why}",
            stop=True,
        )
        await self._recorder.record_of_key(volume.owner, draft, self._removing(volume))
        await self._purge(volume)

    def _removing(self, volume: Volume) -> Effect:
        """An effect that orders the removal of the files, and frees the name in the cluster."""
        freed = self._cluster.names.freed(volume.files.id)
        return all_of(partial(volume_rows.remove, volume=volume), freed)

    async def page(self, owner: str | None, after: tuple[str, str], limit: int) -> list[Shown]:
        """Volumes of the owner, or of all, behind that owner and name."""

        def read(connection: sqlite3.Connection) -> list[tuple[Volume, list[User]]]:
            found = volume_rows.page(connection, owner, after, limit)
            users = {
                each: volume_rows.users(connection, each)
                for each in {volume.owner for volume in found}
            }
            return [(volume, _users_of(volume, users[volume.owner])) for volume in found]

        found = await self._database.read(read)
        return [await self._shown(volume, users) for volume, users in found]

    async def show(self, owner: str, name: str) -> Shown:
        """One volume. Raises: NotFoundError."""

        def read(connection: sqlite3.Connection) -> tuple[Volume, list[User]]:
            volume = volume_rows.find(connection, owner, name)
            return volume, _users_of(volume, volume_rows.users(connection, owner))

        return await self._shown(*await self._database.read(read))

    async def _shown(self, volume: Volume, users: list[User]) -> Shown:
        return Shown(volume, users, await self._storage.usage(volume.files))

    async def remove(self, principal: Principal, owner: str, name: str) -> Shown:
        """Removes a volume with its files, and returns it as it was.

        Once the removal is on record, the next start completes it. Raises: NotFoundError;
        ConflictError while a session uses it; AuditUnavailableError.
        """
        return await self._changes.shield(self._remove(principal, owner, name))

    async def _remove(self, principal: Principal, owner: str, name: str) -> Shown:
        shown = await self.show(owner, name)

        def remove(connection: sqlite3.Connection) -> None:
            volume = volume_rows.find(connection, owner, name)
            volume_rows.check_free(connection, volume)
            self._removing(volume)(connection)

        args = {"name": name, "key": owner}
        draft = EventDraft(
            "volume.remove", actor=principal.name, decision="allow", args=args, stop=True
        )
        await self._recorder.record_of_key(owner, draft, remove)
        await self._purge(shown.volume)
        return shown

    async def _purge(self, volume: Volume) -> None:
        try:
            await self._workspaces.finish_purge(volume.files)
        except PaddockError as error:
            log.warning("the next start removes volume %s: %s", volume.name, error.detail)

    # For sessions.

    def claiming(self, session: Session) -> Effect:
        """An effect that gives a session that is being created its volumes.

        Raises (from the transaction): NotFoundError; ConflictError if another writes to one.
        """
        owner, key, uses = session.owner, session.key, session.terms.volumes
        return partial(volume_rows.check_uses, owner=owner, key=key, uses=uses)

    async def mounted(self, session: Session) -> list[tuple[str, MountedVolume]]:
        """The session's volumes with their paths in the sandbox, mounted on the host.

        Raises: NotFoundError, StorageError.
        """
        found = []
        for use in session.terms.volumes:
            volume = await self._database.read(
                partial(volume_rows.find, owner=session.owner, name=use.name)
            )
            files, uid = volume.files, session.workspace.uid
            await self._storage.mount(files)
            data = self._storage.data(files)
            mount = MountedVolume(files.slot, data, files.uid, uid, use.read_only)
            found.append((use.path, mount))
        return found

    # After a start.

    async def recover(self) -> None:
        """Removes what an interrupted creation has left. Raises: AuditUnavailableError."""
        for volume in await self._database.read(volume_rows.unfinished):
            await self._take_back(volume)

    async def close(self) -> None:
        """Waits for changes."""
        await self._changes.drain()


def _users_of(volume: Volume, users: list[User]) -> list[User]:
    return [user for user in users if user.use.name == volume.name]
