"""Workspaces from the sessions' side: claimed with a session, kept after it, purged on demand."""

import sqlite3

from orchestrator.audit.writer import Effect
from orchestrator.config import Settings
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.sessions import registry
from orchestrator.sessions.session import Session
from orchestrator.store.database import Database
from orchestrator.workspace import slots
from orchestrator.workspace.paths import data_path, visible_path
from orchestrator.workspace.purge import purge_slot
from orchestrator.workspace.slots import Workspace


class Workspaces:
    """The files that outlive sessions."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database

    def root_dir(self, workspace_id: str) -> str:
        """Where the workspace is visible on the host."""
        return str(visible_path(self._settings.workspaces_dir, workspace_id))

    def unclaimed(self, workspace_id: str, owner: str) -> Workspace:
        """What a session has before `claiming` was carried out."""
        return Workspace(workspace_id, owner, uid=0, slot="", created_at="")

    def claiming(self, session: Session) -> Effect:
        """An effect that claims the session's workspace and writes its row.

        Raises (from the transaction): ConflictError when the id is somebody else's.
        """
        settings = self._settings

        def apply(connection: sqlite3.Connection) -> None:
            session.workspace = slots.claim(
                connection, session.id, session.owner, settings.uid_base, settings.uid_count
            )
            registry.insert(connection, session)

        return apply

    def keeping(self, session: Session, **columns: object) -> Effect:
        """An effect that acknowledges the session, and sets columns of its row."""
        update = registry.updating(session, acknowledged=1, **columns)

        def apply(connection: sqlite3.Connection) -> None:
            update(connection)
            slots.keep(connection, session.id)

        return apply

    def forgetting(self, session: Session) -> Effect:
        """An effect that forgets a session whose creator was never told of it.

        A workspace that was made for it is ordered to be purged.
        """
        delete = registry.deleting(session.key)

        def apply(connection: sqlite3.Connection) -> None:
            delete(connection)
            slots.order_purge_unused(connection, session.id)

        return apply

    def prepare(self, workspace: Workspace) -> None:
        """Makes the workspace's directories and its visible link, where they are missing."""
        data = slots.create_slot(self._settings.state_dir, workspace.slot, workspace.uid)
        slots.show(self._settings.workspaces_dir, workspace.id, data)

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

        await self._carry_out(await self._database.write(order))

    async def finish_purges(self) -> int:
        """Carries out what was ordered before a restart; how many there were."""
        ordered = await self._database.read(slots.ordered_purges)
        for workspace in ordered:
            await self._carry_out(workspace)
        return len(ordered)

    async def finish_purge(self, workspace: Workspace) -> None:
        """Carries out the order to purge this one, where there is one. Raises: PurgeError."""
        if workspace in await self._database.read(slots.ordered_purges):
            await self._carry_out(workspace)

    async def _carry_out(self, workspace: Workspace) -> None:
        state_dir = self._settings.state_dir
        data = data_path(state_dir, workspace.slot)
        slots.hide(self._settings.workspaces_dir, workspace.id, data)
        await purge_slot(state_dir, workspace.slot, workspace.uid)
        await self._database.write(lambda connection: slots.release(connection, workspace.id))
