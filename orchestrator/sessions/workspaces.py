"""Workspaces from the sessions' side: claimed with a session, kept after it, purged on demand."""

import logging
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.access.limits import KeyLimits, KeyUsage, check_quota
from orchestrator.audit.writer import Effect
from orchestrator.config.settings import Settings
from orchestrator.errors import ConflictError, NotFoundError, PaddockError
from orchestrator.sessions import session_rows
from orchestrator.sessions.session import Session
from orchestrator.store.database import Database, StoreError
from orchestrator.workspace import slots
from orchestrator.workspace.paths import slots_path, visible_path
from orchestrator.workspace.quota import DiskUsage
from orchestrator.workspace.slots import Workspace
from orchestrator.workspace.storage import Storage

log = logging.getLogger(__name__)

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class Workspaces:
    """The files that outlive sessions."""

    def __init__(self, settings: Settings, database: Database, storage: Storage) -> None:
        self._settings = settings
        self._database = database
        self._storage = storage

    def root_dir(self, workspace_id: str) -> str:
        """Where the workspace is visible on the host."""
        return str(visible_path(self._settings.workspaces_dir, workspace_id))

    def unclaimed(self, workspace_id: str, owner: str) -> Workspace:
        """What a session has before `claiming` was carried out."""
        quota = self._storage.choice.quota
        return Workspace(workspace_id, owner, uid=0, slot="", created_at="", quota=quota)

    def claiming(self, session: Session, quota: KeyLimits) -> Effect:
        """An effect that claims the session's workspace and writes its row.

        Raises (from the transaction): ConflictError when the id is somebody else's or in use;
        RateLimitedError where the owner's quota has no room for it.
        """
        settings = self._settings

        def apply(connection: sqlite3.Connection) -> None:
            if slots.in_use(connection, session.id):
                raise ConflictError("that the last session of this id has ended is not on record")
            before = slots.holdings(connection, session.owner)
            session.workspace = slots.claim(
                connection,
                session.id,
                session.owner,
                settings.uid_base,
                settings.uid_count,
                self._storage.choice.quota,
            )
            slots.set_size(connection, session.id, session.limits.workspace_bytes)
            _check_growth(connection, session.workspace, quota, before)
            session_rows.insert(connection, session)

        return apply

    def keeping(self, session: Session, **columns: object) -> Effect:
        """An effect that acknowledges the session, and sets columns of its row."""
        update = session_rows.updating(session, acknowledged=1, **columns)

        def apply(connection: sqlite3.Connection) -> None:
            update(connection)
            slots.keep(connection, session.id)

        return apply

    def forgetting(self, session: Session) -> Effect:
        """An effect that forgets a session whose creator was never told of it.

        A workspace that was made for it is ordered to be purged.
        """
        forget = session_rows.forgetting(session.key)

        def apply(connection: sqlite3.Connection) -> None:
            forget(connection)
            slots.order_purge_unused(connection, session.id)

        return apply

    async def prepare(self, workspace: Workspace, size: int) -> Path:
        """Makes the workspace and its visible link where they are missing; returns its data.

        It is held to `size` bytes from now on; no sandbox may have it meanwhile.
        Raises: CapacityExhaustedError, ConflictError, and what `Storage.prepare` raises.
        """
        data = await self._storage.prepare(workspace, size)
        settings = self._settings
        slots.show(settings.workspaces_dir, workspace.id, data, slots_path(settings.state_dir))
        return data

    async def reserve(self, workspace: Workspace, size: int, quota: KeyLimits) -> None:
        """Counts the size as the workspace's, before it gets it, where it is larger.

        Raises: RateLimitedError where the owner's quota has no room for it.
        """

        def apply(connection: sqlite3.Connection) -> None:
            before = slots.holdings(connection, workspace.owner)
            if slots.set_size(connection, workspace.id, size, only_larger=True):
                _check_growth(connection, workspace, quota, before)

        await self._database.write(apply)

    async def resized(self, workspace: Workspace, size: int) -> None:
        """Counts the size as the workspace's, which has it by now; a failure is logged."""
        try:
            await self._database.write(
                lambda connection: slots.set_size(connection, workspace.id, size)
            )
        except StoreError as error:
            log.warning("workspace %s counts with an earlier size: %s", workspace.id, error)

    async def usage(self, workspace: Workspace) -> DiskUsage | None:
        """How full it is; None where nothing holds it, or it is gone."""
        return await self._storage.usage(workspace) if workspace.slot else None

    async def purge(self, workspace_id: str, owner: str | None) -> None:
        """Removes the workspace's files and frees its id; `owner` None: whoever's it is.

        The order to purge is durable first: a restart carries it out.
        Raises: NotFoundError; ConflictError while a session uses it; PurgeError.
        """

        def order(connection: sqlite3.Connection) -> Workspace:
            workspace = slots.find(connection, workspace_id)
            if workspace is None or owner not in (None, workspace.owner):
                raise NotFoundError(f"no workspace {workspace_id[:128]}")
            if slots.in_use(connection, workspace_id):
                raise ConflictError("a session uses this workspace: close it first")
            slots.order_purge(connection, workspace_id)
            return workspace

        await self._carry_out(await self._database.write(order, reserve=True))

    async def finish_purges(self) -> int:
        """Carries out every purge that was ordered; how many there were.

        One that fails is logged, and stays ordered: the next start tries again.
        """
        done = 0
        for workspace in await self._database.read(slots.ordered_purges):
            try:
                await self._carry_out(workspace)
                done += 1
            except PaddockError as error:
                log.error("the next start purges workspace %s: %s", workspace.id, error.detail)
        return done

    async def finish_purge(self, workspace: Workspace) -> None:
        """Carries out the order to purge this one, where there is one. Raises: PurgeError."""
        if workspace in await self._database.read(slots.ordered_purges):
            await self._carry_out(workspace)

    async def purge_ended_before(self, moment: datetime) -> None:
        """Purges every workspace whose last session ended before that."""
        before = moment.astimezone(UTC).strftime(_TIME)
        if await self._database.write(
            lambda connection: slots.order_expired_purges(connection, before)
        ):
            done = await self.finish_purges()
            log.info("workspaces purged as their retention has ended: %d", done)

    async def next_expiry(self) -> datetime | None:
        """When the session ended whose workspace is the next to be purged."""
        found = await self._database.read(slots.next_expiry)
        return None if found is None else datetime.fromisoformat(found)

    async def mount_kept(self) -> None:
        """Mounts every workspace that an earlier control plane, or an earlier boot, has left."""
        for workspace in await self._database.read(slots.kept):
            try:
                await self._storage.mount(workspace)
            except PaddockError as error:
                log.error("workspace %s can't be mounted: %s", workspace.id, error.detail)

    async def unmount_strays(self) -> int:
        """Unmounts what no workspace has; how many mounts that were."""
        known = await self._database.read(slots.kept)
        return await self._storage.unmount_strays(known)

    async def _carry_out(self, workspace: Workspace) -> None:
        settings = self._settings
        slots.hide(settings.workspaces_dir, workspace.id, slots_path(settings.state_dir))
        await self._storage.remove(workspace)
        await self._database.write(
            lambda connection: slots.release(connection, workspace.id), reserve=True
        )


def _check_growth(
    connection: sqlite3.Connection, workspace: Workspace, quota: KeyLimits, before: slots.Holdings
) -> None:
    """Raises: RateLimitedError where what its owner's workspaces have grown by is too much."""
    now = slots.holdings(connection, workspace.owner)
    used = KeyUsage(workspaces=before.workspaces, workspace_bytes=before.size)
    more = KeyUsage(
        workspaces=now.workspaces - before.workspaces, workspace_bytes=now.size - before.size
    )
    kept = slots.oldest_kept(connection, workspace.owner, workspace.id)
    check_quota(quota, used, more, kept)
