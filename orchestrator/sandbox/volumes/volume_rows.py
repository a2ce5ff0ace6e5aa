"""Rows of volumes. Each function runs inside the caller's transaction.

Which sessions use a volume follows from the terms of the sessions that have not ended, so an end
releases it, however it comes about.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.slots import Workspace
from orchestrator.state.volume_use import VolumeUse

_VOLUMES = (
    "SELECT name, size, used, id, workspaces.owner, uid, slot, created_at, quota"
    " FROM volumes JOIN workspaces ON id = workspace_id"
)
# `json_each` has no rows for the terms of sessions from before there were volumes.
_USES = (
    "SELECT sessions.id, sessions.key, json_extract(value, '$.name'),"
    " json_extract(value, '$.path'), json_extract(value, '$.read_only')"
    " FROM sessions, json_each(terms, '$.volumes')"
    " WHERE owner = ? AND status IN ('active', 'paused')"
)


class Volume(NamedTuple):
    """A volume. `size` is in bytes; `ready`: its files have been made."""

    name: str
    size: int
    ready: bool
    files: Workspace

    @property
    def owner(self) -> str:
        """The name of its key."""
        return self.files.owner


class User(NamedTuple):
    """A live session that uses a volume."""

    session_id: str
    session_key: str
    use: VolumeUse


def find(conn: sqlite3.Connection, owner: str, name: str) -> Volume:
    """Raises: NotFoundError."""
    row = conn.execute(f"{_VOLUMES} WHERE volumes.owner = ? AND name = ?", (owner, name)).fetchone()
    if row is None:
        raise NotFoundError(f"there is no volume {name}")
    return _volume(row)


def page(
    conn: sqlite3.Connection, owner: str | None, after: tuple[str, str], limit: int
) -> list[Volume]:
    """Volumes of the owner, or of all, in the order of owner and name, behind the pair `after`."""
    rows = conn.execute(
        f"{_VOLUMES} WHERE (volumes.owner, name) > (?, ?) AND coalesce(?, volumes.owner) ="
        " volumes.owner ORDER BY volumes.owner, name LIMIT ?",
        (*after, owner, limit),
    )
    return [_volume(row) for row in rows]


def users(conn: sqlite3.Connection, owner: str) -> list[User]:
    """The live sessions of the owner that use volumes, once for each."""
    return [
        User(session_id, key, VolumeUse(name, path, bool(read_only)))
        for session_id, key, name, path, read_only in conn.execute(_USES, (owner,))
    ]


def unfinished(conn: sqlite3.Connection) -> list[Volume]:
    """Volumes whose creation was interrupted."""
    return [_volume(row) for row in conn.execute(f"{_VOLUMES} WHERE used = 0")]


def add(
    conn: sqlite3.Connection,
    files_id: str,
    owner: str,
    name: str,
    size: int,
    uids: tuple[int, int],
    quota: Quota,
) -> Volume:
    """Records a volume whose files are to be made; `uids` are the first one and their number.

    Raises: ConflictError if there is one with that name; CapacityExhaustedError.
    """
    files = slots.add_volume(conn, files_id, owner, *uids, quota, size)
    try:
        conn.execute(
            "INSERT INTO volumes (owner, name, workspace_id) VALUES (?, ?, ?)",
            (owner, name, files.id),
        )
    except sqlite3.IntegrityError:
        raise ConflictError(f"there is a volume {name} already") from None
    return Volume(name, size, ready=False, files=files)


def made(conn: sqlite3.Connection, volume: Volume) -> None:
    """Records that its files are there."""
    slots.keep(conn, volume.files.id)


def remove(conn: sqlite3.Connection, volume: Volume) -> None:
    """Frees the name, and orders the removal of the files."""
    conn.execute("DELETE FROM volumes WHERE workspace_id = ?", (volume.files.id,))
    slots.order_purge(conn, volume.files.id)


def check_free(conn: sqlite3.Connection, volume: Volume) -> None:
    """Raises: ConflictError with the sessions that use it."""
    found = [user.session_id for user in users(conn, volume.owner) if user.use.name == volume.name]
    if found:
        raise ConflictError(
            f"volume {volume.name} is used by {', '.join(sorted(found)[:3])}: close "
            f"{'it' if len(found) == 1 else 'them'} first"
        )


def check_uses(conn: sqlite3.Connection, owner: str, key: str, uses: Sequence[VolumeUse]) -> None:
    """Whether the session with that key can have these volumes of its owner.

    Raises: NotFoundError; ConflictError if another session writes to one that this is to write to.
    """
    if not uses:
        return
    writers = {
        user.use.name: user.session_id
        for user in users(conn, owner)
        if user.session_key != key and not user.use.read_only
    }
    for use in uses:
        if not find(conn, owner, use.name).ready:
            raise ConflictError(f"volume {use.name} is being created: try again")
        if not use.read_only and use.name in writers:
            raise ConflictError(
                f"session {writers[use.name]} has volume {use.name} for writing, which one session "
                "can have at a time: close it, or mount the volume read-only"
            )


def _volume(row: sqlite3.Row | tuple[Any, ...]) -> Volume:
    name, size, used, files_id, owner, uid, slot, created_at, quota = row
    files = Workspace(files_id, owner, uid, slot, created_at, Quota(quota))
    return Volume(name, size, ready=bool(used), files=files)
