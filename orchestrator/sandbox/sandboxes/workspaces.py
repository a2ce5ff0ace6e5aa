"""Sessions' workspaces: claimed with a session, kept after it, purged on request."""

import logging
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.cluster.base import Places
from orchestrator.ground.errors import ConflictError, NotFoundError, PaddockError
from orchestrator.ground.events import time_text
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.limits import KeyLimits, KeyUsage, check_quota
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.paths import slots_path, visible_path
from orchestrator.host.workspace.quota import DiskUsage
from orchestrator.host.workspace.slots import Workspace
from orchestrator.host.workspace.staging_area import StagingArea
from orchestrator.host.workspace.storage import Storage
from orchestrator.host.workspace.uid_range import UidRange
from orchestrator.settings.settings import Settings
from orchestrator.state import pack_rows, session_rows
from orchestrator.state.session import Session

log = logging.getLogger(__name__)


class Workspaces:
    """The files that outlive sessions."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        storage: Storage,
        uids: UidRange,
        places: Places,
    ) -> None:
        """New workspaces have `uids`; the others keep theirs."""
        self._settings = settings
        self._uids = uids
        self._database = database
        self._storage = storage
        self._places = places

    def root_dir(self, workspace_id: str) -> str:
        """The directory at which the workspace is visible on the host."""
        return str(visible_path(self._settings.workspaces_dir, workspace_id))

    def unclaimed(self, workspace_id: str, owner: str) -> Workspace:
        """A session's workspace before `claiming` has run."""
        quota = self._storage.choice.quota
        return Workspace(workspace_id, owner, uid=0, slot="", created_at="", quota=quota)

    def claiming(self, session: Session, quota: KeyLimits) -> Effect:
        """An effect that claims the session's workspace and writes its row.

        Raises (from the transaction): ConflictError if the id is someone else's or in use;
        RateLimitedError if it exceeds the owner's quota.
        """

        def apply(connection: sqlite3.Connection) -> None:
            if slots.in_use(connection, session.id):
                raise ConflictError("the end of the last session with this id is not recorded yet")
            if session.family.shares:  # it has none of its own
                session_rows.insert(connection, session)
                return
            before = slots.holdings(connection, session.owner)
            session.workspace = slots.claim(
                connection,
                session.id,
                session.owner,
                self._uids.base,
                self._uids.count,
                self._storage.choice.quota,
            )
            slots.set_size(connection, session.id, session.limits.workspace_bytes)
            check_growth(connection, session.workspace, quota, before)
            session_rows.insert(connection, session)

        return apply

    def keeping(self, session: Session, **columns: object) -> Effect:
        """An effect that acknowledges the session and sets columns of its row."""
        update = session_rows.updating(session, acknowledged=1, **columns)

        def apply(connection: sqlite3.Connection) -> None:
            update(connection)
            slots.keep(connection, session.id)
            if session.pack is not None:
                pack_rows.forget_earlier(connection, session.key, session.id)

        return apply

    def forgetting(self, session: Session) -> Effect:
        """An effect that forgets a session that its client never knew, and releases its place.

        Orders the purge of a workspace that was created for it.
        """
        forget = session_rows.forgetting(session.key)
        release = self._places.released(session.key, session.id)

        def apply(connection: sqlite3.Connection) -> None:
            forget(connection)
            if release is not None:
                release(connection)
            slots.order_purge_unused(connection, session.id)

        return apply

    async def prepare(self, workspace: Workspace, size: int, stages: str | None = None) -> Path:
        """Creates the workspace and its visible link if they are missing; returns its data.

        Limits it to `size` bytes; no sandbox may use it meanwhile. Only the session with the key
        `stages` keeps what it has staged. Raises: CapacityExhaustedError,
        ConflictError, and the errors of `Storage.prepare`.
        """
        data = await self._storage.prepare(workspace, size, stages)
        settings = self._settings
        slots.show(settings.workspaces_dir, workspace.id, data, slots_path(settings.state_dir))
        FaultPoint.CREATE_SHOWN.reached()
        return data

    def data(self, workspace: Workspace) -> Path:
        """The directory of its files, once it is prepared."""
        return self._storage.data(workspace)

    def layer(self, workspace: Workspace) -> Path:
        """The writable layer with which its session's sandboxes begin, if the file exists."""
        return self._storage.layer(workspace)

    async def stage(self, workspace: Workspace, session_key: str) -> StagingArea:
        """The session's staging area. Raises: the errors of `Storage.stage`."""
        return await self._storage.stage(workspace, session_key)

    async def unstage(self, workspace: Workspace, session_key: str) -> None:
        """Removes what the session has staged. Raises: the errors of `Storage.unstage`."""
        await self._storage.unstage(workspace, session_key)

    def expect(self, size: int) -> None:
        """Has new workspaces of that size made ahead."""
        self._storage.expect(size)

    async def reserve(self, workspace: Workspace, size: int, quota: KeyLimits) -> None:
        """Counts a larger size for the workspace before it is resized.

        Raises: RateLimitedError if it exceeds the owner's quota.
        """

        def apply(connection: sqlite3.Connection) -> None:
            before = slots.holdings(connection, workspace.owner)
            if slots.set_size(connection, workspace.id, size, only_larger=True):
                check_growth(connection, workspace, quota, before)

        await self._database.write(apply)

    async def resized(self, workspace: Workspace, size: int) -> None:
        """Counts the workspace's new size after it was resized; a failure is logged."""
        try:
            await self._database.write(
                lambda connection: slots.set_size(connection, workspace.id, size)
            )
        except StoreError as error:
            log.warning("workspace %s counts with an earlier size: %s", workspace.id, error)

    async def usage(self, workspace: Workspace) -> DiskUsage | None:
        """Its usage; None if it has no size limit or is gone."""
        return await self._storage.usage(workspace) if workspace.slot else None

    async def purge(self, workspace_id: str, owner: str | None) -> None:
        """Removes the workspace's files and frees its id; `owner` None: any owner.

        The purge order is made durable first, and a restart carries it out. Raises: NotFoundError;
        ConflictError while a session uses it; PurgeError.
        """

        def order(connection: sqlite3.Connection) -> Workspace:
            workspace = slots.find(connection, workspace_id)
            if workspace is None or owner not in (None, workspace.owner):
                raise NotFoundError(f"no workspace {workspace_id[:128]}")
            if slots.in_use(connection, workspace_id):
                raise ConflictError("a session uses this workspace: close it first")
            slots.order_purge(connection, workspace_id)
            return workspace

        workspace = await self._database.write(order, reserve=True)
        FaultPoint.PURGE_ORDERED.reached()
        await self._carry_out(workspace)

    async def purge_of(self, owner: str) -> None:
        """Removes every workspace of the owner that no session uses. Raises: PurgeError."""
        for workspace in await self._database.read(slots.kept):
            if workspace.owner == owner:
                with suppress(NotFoundError, ConflictError):
                    await self.purge(workspace.id, owner)

    async def finish_purges(self) -> int:
        """Carries out every ordered purge; returns how many there were.

        A purge that fails is logged and stays ordered: the next start tries again.
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
        """Carries out the order to purge this one, if there is one. Raises: PurgeError."""
        if workspace in await self._database.read(slots.ordered_purges):
            await self._carry_out(workspace)

    async def purge_ended_before(self, moment: datetime) -> None:
        """Purges every workspace whose last session ended before that time."""
        before = time_text(moment.astimezone(UTC))
        if await self._database.write(
            lambda connection: slots.order_expired_purges(connection, before)
        ):
            done = await self.finish_purges()
            log.info("workspaces purged after their retention: %d", done)

    async def next_expiry(self) -> datetime | None:
        """The end of the session whose workspace expires next."""
        found = await self._database.read(slots.next_expiry)
        return None if found is None else datetime.fromisoformat(found)

    async def clock_changed(self, forward: timedelta, now: datetime) -> None:
        """Keeps what is left of unused workspaces' time, after the clock was set forward to now."""
        await self._database.write(lambda conn: slots.clock_changed(conn, forward, now))

    async def mount_kept(self) -> None:
        """Mounts every workspace that an earlier control plane, or an earlier boot, has left."""
        for workspace in await self._database.read(slots.kept):
            try:
                await self._storage.mount(workspace)
            except PaddockError as error:
                log.error("workspace %s can't be mounted: %s", workspace.id, error.detail)

    async def unmount_strays(self) -> int:
        """Unmounts what belongs to no workspace; returns the number of mounts."""
        known = await self._database.read(slots.kept)
        return await self._storage.unmount_strays(known)

    async def _carry_out(self, workspace: Workspace) -> None:
        settings = self._settings
        if not workspace.is_volume:  # these are not shown
            slots.hide(settings.workspaces_dir, workspace.id, slots_path(settings.state_dir))
        FaultPoint.PURGE_HIDDEN.reached()
        await self._storage.remove(workspace)
        FaultPoint.PURGE_REMOVED.reached()

        purged = self._places.purged(workspace.id)

        def release(connection: sqlite3.Connection) -> None:
            slots.release(connection, workspace.id)
            pack_rows.forget_all(connection, workspace.id)
            if purged is not None:
                purged(connection)

        await self._database.write(release, reserve=True)


def check_growth(
    connection: sqlite3.Connection, workspace: Workspace, quota: KeyLimits, before: slots.Holdings
) -> None:
    """Raises RateLimitedError if the growth of the owner's workspaces exceeds the quota."""
    now = slots.holdings(connection, workspace.owner)
    used = KeyUsage(workspaces=before.workspaces, workspace_bytes=before.size)
    more = KeyUsage(
        workspaces=now.workspaces - before.workspaces, workspace_bytes=now.size - before.size
    )
    kept = slots.oldest_kept(connection, workspace.owner, workspace.id)
    check_quota(quota, used, more, kept)
