"""Workspaces and their slots: who owns which, and the directories that hold them.

A workspace outlives its sessions: its id belongs to its first owner until it is purged.
The functions that take a connection run inside the caller's transaction.
"""

import os
import secrets
import sqlite3
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import CapacityExhaustedError, ConflictError
from orchestrator.workspace.paths import validate_id, visible_path
from orchestrator.workspace.quota import Quota

_COLUMNS = "id, owner, uid, slot, created_at, quota"
_LIVE = (
    "SELECT 1 FROM sessions WHERE sessions.id = workspaces.id AND status IN ('active', 'paused')"
)
_LAST_END = "SELECT max(terminated_at) FROM sessions WHERE sessions.id = workspaces.id"


@dataclass(frozen=True, slots=True)
class Workspace:
    """One row of the table `workspaces`: `slot` is 16 hex digits, `uid` its own.

    `quota` is the driver that it was made with, and that it keeps.
    """

    id: str
    owner: str
    uid: int
    slot: str
    created_at: str
    quota: Quota


class Holdings(NamedTuple):
    """An owner's workspaces, those that are being purged included: how many, and of what size."""

    workspaces: int
    size: int


def find(conn: sqlite3.Connection, workspace_id: str) -> Workspace | None:
    """The workspace of exactly that id."""
    found = _find_any_case(conn, workspace_id)
    return found if found is not None and found.id == workspace_id else None


def claim(
    conn: sqlite3.Connection,
    workspace_id: str,
    owner: str,
    uid_base: int,
    uid_count: int,
    quota: Quota,
) -> Workspace:
    """The owner's workspace of that id, recorded now when it is new.

    Raises: ValidationError for a bad id; ConflictError when the id, or one that differs
    in case only, is taken; CapacityExhaustedError when every uid is in use.
    """
    validate_id(workspace_id)
    found = _find_any_case(conn, workspace_id)
    if found is not None:
        if found.owner != owner:
            raise ConflictError("the id is taken")
        if found.id != workspace_id:
            raise ConflictError(f"the id differs from workspace {found.id} in case only")
        if any(purged.id == found.id for purged in ordered_purges(conn)):
            raise ConflictError("the workspace of this id is being purged: try again")
        return found
    workspace = Workspace(
        id=workspace_id,
        owner=owner,
        uid=_free_uid(conn, uid_base, uid_count),
        slot=secrets.token_hex(8),
        created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        quota=quota,
    )
    conn.execute(
        f"INSERT INTO workspaces ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
        astuple(workspace),
    )
    return workspace


def set_size(
    conn: sqlite3.Connection, workspace_id: str, size: int, *, only_larger: bool = False
) -> bool:
    """Notes to how many bytes the workspace is held; whether that is a change."""
    larger = " AND size < :size" if only_larger else ""
    changed = conn.execute(
        f"UPDATE workspaces SET size = :size WHERE id = :id AND size <> :size{larger}",  # noqa: S608
        {"id": workspace_id, "size": size},
    )
    return changed.rowcount > 0


def holdings(conn: sqlite3.Connection, owner: str) -> Holdings:
    """What the owner has."""
    return Holdings(
        *conn.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM workspaces WHERE owner = ?", (owner,)
        ).fetchone()
    )


def oldest_kept(conn: sqlite3.Connection, owner: str, but: str) -> str | None:
    """The oldest of the owner's workspaces that no session uses; not the one `but`."""
    row = conn.execute(
        "SELECT id FROM workspaces WHERE owner = ? AND id <> ? AND purging = 0"  # noqa: S608
        f" AND NOT EXISTS ({_LIVE}) ORDER BY created_at LIMIT 1",
        (owner, but),
    ).fetchone()
    return None if row is None else str(row[0])


def in_use(conn: sqlite3.Connection, workspace_id: str) -> bool:
    """Whether a live session has it."""
    statement = "SELECT 1 FROM sessions WHERE id = ? AND status IN ('active', 'paused')"
    return conn.execute(statement, (workspace_id,)).fetchone() is not None


def keep(conn: sqlite3.Connection, workspace_id: str) -> None:
    """Somebody was told of a session that has it: from now on only an order removes it."""
    conn.execute("UPDATE workspaces SET used = 1 WHERE id = ?", (workspace_id,))


def order_purge_unused(conn: sqlite3.Connection, workspace_id: str) -> None:
    """Has it removed where nobody was ever told of a session that has it."""
    conn.execute("UPDATE workspaces SET purging = 1 WHERE id = ? AND NOT used", (workspace_id,))


def order_purge(conn: sqlite3.Connection, workspace_id: str) -> None:
    """From now on nobody can claim it; its files are to be removed, then it is released."""
    conn.execute("UPDATE workspaces SET purging = 1 WHERE id = ?", (workspace_id,))


def ordered_purges(conn: sqlite3.Connection) -> list[Workspace]:
    """Workspaces whose purge was ordered and is not finished."""
    return _workspaces(conn, "purging = 1")


def kept(conn: sqlite3.Connection) -> list[Workspace]:
    """Every workspace that is not to be purged, those of live sessions first."""
    return _workspaces(conn, f"purging = 0 ORDER BY NOT EXISTS ({_LIVE})")


def order_expired_purges(conn: sqlite3.Connection, ended_before: str) -> int:
    """Has those removed whose last session ended before that time; how many there are."""
    return conn.execute(
        f"UPDATE workspaces SET purging = 1 WHERE purging = 0 AND NOT EXISTS ({_LIVE})"  # noqa: S608
        f" AND ({_LAST_END}) < ?",
        (ended_before,),
    ).rowcount


def next_expiry(conn: sqlite3.Connection) -> str | None:
    """When the session ended that was the first to end of those workspaces' last ones."""
    row = conn.execute(
        f"SELECT min(({_LAST_END})) FROM workspaces WHERE purging = 0 AND NOT EXISTS ({_LIVE})"  # noqa: S608
    ).fetchone()
    return None if row[0] is None else str(row[0])


def release(conn: sqlite3.Connection, workspace_id: str) -> None:
    """Forgets the workspace, after its files are gone: id and uid are free again."""
    conn.execute("DELETE FROM workspaces WHERE id = ?", (workspace_id,))


def make_slot(slot: Path) -> None:
    """Makes a slot's directory, for root only; one that is there stays. Raises: OSError."""
    for directory in (slot.parent, slot):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)


def make_data(data: Path, uid: int) -> Path:
    """Makes the directory of a workspace's files, for `uid` alone, and returns it.

    What is there stays. Nothing is followed: the directory is the session's to change.
    Raises: OSError.
    """
    with suppress(FileExistsError):
        data.mkdir(mode=0o700)
    directory_fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(directory_fd).st_uid != uid:
            os.fchown(directory_fd, uid, uid)
    finally:
        os.close(directory_fd)
    return data


def show(root: Path, workspace_id: str, data: Path, slots: Path) -> Path:
    """Links `<root>/<id>` to the workspace's data and returns the link.

    `slots` is the directory of all slots. Raises: ConflictError when something that isn't a
    link into it has that name.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = visible_path(root, workspace_id)
    target = os.path.relpath(data.resolve(), root.resolve())
    try:
        link.symlink_to(target)
    except FileExistsError:
        if not _is_slot_link(link, slots):
            raise ConflictError(
                f"{link.name} in the workspaces directory is not Paddock's: move it away"
            ) from None
        if os.readlink(link) != target:
            # No id begins with a dot, so the name can't be a workspace's.
            draft = root / f".{secrets.token_hex(8)}"
            draft.symlink_to(target)
            draft.replace(link)
    return link


def hide(root: Path, workspace_id: str, slots: Path) -> None:
    """Removes the link that `show` made; anything else of that name stays."""
    link = visible_path(root, workspace_id)
    if _is_slot_link(link, slots):
        link.unlink(missing_ok=True)


def _is_slot_link(link: Path, slots: Path) -> bool:
    """Whether it is a link into the directory of slots."""
    try:
        target = link.parent.resolve() / os.readlink(link)
    except OSError:
        return False
    return Path(os.path.normpath(target)).is_relative_to(slots.resolve())


def _find_any_case(conn: sqlite3.Connection, workspace_id: str) -> Workspace | None:
    found = _workspaces(conn, "id = ? COLLATE NOCASE", workspace_id)
    return found[0] if found else None


def _workspaces(conn: sqlite3.Connection, condition: str, *values: str) -> list[Workspace]:
    rows = conn.execute(f"SELECT {_COLUMNS} FROM workspaces WHERE {condition}", values)  # noqa: S608
    return [
        Workspace(workspace_id, owner, uid, slot, created_at, Quota(quota))
        for workspace_id, owner, uid, slot, created_at, quota in rows
    ]


def _free_uid(conn: sqlite3.Connection, base: int, count: int) -> int:
    """The lowest uid of the range that no workspace has."""
    row = conn.execute(
        "SELECT min(candidate) FROM"
        " (SELECT :base AS candidate UNION ALL SELECT uid + 1 FROM workspaces)"
        " WHERE candidate BETWEEN :base AND :last"
        " AND candidate NOT IN (SELECT uid FROM workspaces)",
        {"base": base, "last": base + count - 1},
    ).fetchone()
    if row[0] is None:
        raise CapacityExhaustedError("every workspace uid is in use: purge a workspace")
    return int(row[0])
