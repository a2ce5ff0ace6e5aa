"""Workspaces and their slots: their owners, and the directories that hold them.

A workspace outlives its sessions: its id belongs to its first owner until it is purged. Functions
that take a connection run inside the caller's transaction.
"""

import os
import secrets
import sqlite3
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.errors import CapacityExhaustedError, ConflictError
from orchestrator.ground.events import now, time_text
from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace.paths import validate_id, visible_path
from orchestrator.host.workspace.quota import Quota

_COLUMNS = "id, owner, uid, slot, created_at, quota"
# The ids of volumes begin with it, and those of sessions can't.
_VOLUME = "volume:"
_LIVE = (
    "SELECT 1 FROM sessions WHERE sessions.id = workspaces.id AND status IN ('active', 'paused')"
)
_LAST_END = "SELECT max(terminated_at) FROM sessions WHERE sessions.id = workspaces.id"
_KEPT_SINCE = f"coalesce(kept_since, ({_LAST_END}))"


@dataclass(frozen=True, slots=True)
class Workspace:
    """One row of the table `workspaces`. `slot` is 16 hex digits; `uid` is unique to it.

    `quota` is the driver that it was created with and that it keeps. The files of a volume are
    kept in the same way.
    """

    id: str
    owner: str
    uid: int
    slot: str
    created_at: str
    quota: Quota

    @property
    def is_volume(self) -> bool:
        """Whether it is a volume, and no session's own."""
        return self.id.startswith(_VOLUME)


class Holdings(NamedTuple):
    """The number and total size of an owner's workspaces, volumes and what is being purged."""

    workspaces: int
    size: int


def find(conn: sqlite3.Connection, workspace_id: str) -> Workspace | None:
    """The workspace with exactly that id; not a volume."""
    found = None if workspace_id.startswith(_VOLUME) else _find_any_case(conn, workspace_id)
    return found if found is not None and found.id == workspace_id else None


def claim(
    conn: sqlite3.Connection,
    workspace_id: str,
    owner: str,
    uid_base: int,
    uid_count: int,
    quota: Quota,
) -> Workspace:
    """The owner's workspace with that id; records it if it is new.

    Raises: ValidationError for a bad id; ConflictError if the id, or an id that differs only in
    case, is taken; CapacityExhaustedError if every uid is in use.
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
    return _add(conn, workspace_id, owner, uid_base, uid_count, quota)


def new_volume_id() -> str:
    """The id of a volume's files."""
    return f"{_VOLUME}{secrets.token_hex(8)}"


def add_volume(
    conn: sqlite3.Connection,
    volume_id: str,
    owner: str,
    uid_base: int,
    uid_count: int,
    quota: Quota,
    size: int,
) -> Workspace:
    """Records the files of a new volume. Raises: CapacityExhaustedError if every uid is in use."""
    volume = _add(conn, volume_id, owner, uid_base, uid_count, quota)
    set_size(conn, volume_id, size)
    return volume


def _add(
    conn: sqlite3.Connection,
    workspace_id: str,
    owner: str,
    uid_base: int,
    uid_count: int,
    quota: Quota,
) -> Workspace:
    workspace = Workspace(
        id=workspace_id,
        owner=owner,
        uid=_free_uid(conn, uid_base, uid_count),
        slot=secrets.token_hex(8),
        created_at=now(),
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
    """Records the workspace's size limit in bytes; returns whether it changed."""
    larger = " AND size < :size" if only_larger else ""
    changed = conn.execute(
        f"UPDATE workspaces SET size = :size WHERE id = :id AND size <> :size{larger}",  # noqa: S608
        {"id": workspace_id, "size": size},
    )
    return changed.rowcount > 0


def uids(conn: sqlite3.Connection) -> list[int]:
    """The uids of all workspaces."""
    return [uid for (uid,) in conn.execute("SELECT uid FROM workspaces")]


def holdings(conn: sqlite3.Connection, owner: str) -> Holdings:
    """The owner's holdings."""
    return Holdings(
        *conn.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM workspaces WHERE owner = ?", (owner,)
        ).fetchone()
    )


def oldest_kept(conn: sqlite3.Connection, owner: str, but: str) -> str | None:
    """The owner's oldest workspace that no session uses, except the one with the id `but`."""
    row = conn.execute(
        "SELECT id FROM workspaces WHERE owner = ? AND id <> ? AND purging = 0"  # noqa: S608
        f" AND id NOT LIKE '{_VOLUME}%' AND NOT EXISTS ({_LIVE}) ORDER BY created_at LIMIT 1",
        (owner, but),
    ).fetchone()
    return None if row is None else str(row[0])


def in_use(conn: sqlite3.Connection, workspace_id: str) -> bool:
    """Whether a live session uses it."""
    statement = "SELECT 1 FROM sessions WHERE id = ? AND status IN ('active', 'paused')"
    return conn.execute(statement, (workspace_id,)).fetchone() is not None


def keep(conn: sqlite3.Connection, workspace_id: str) -> None:
    """Marks it as used by a session that a client knows: from now on only an order removes it."""
    conn.execute("UPDATE workspaces SET used = 1, kept_since = NULL WHERE id = ?", (workspace_id,))


def order_purge_unused(conn: sqlite3.Connection, workspace_id: str) -> None:
    """Orders its removal if no client ever got to know a session that uses it."""
    conn.execute("UPDATE workspaces SET purging = 1 WHERE id = ? AND NOT used", (workspace_id,))


def order_purge(conn: sqlite3.Connection, workspace_id: str) -> None:
    """Orders a purge: from now on nobody can claim it. It is released after its files are gone."""
    conn.execute("UPDATE workspaces SET purging = 1 WHERE id = ?", (workspace_id,))


def ordered_purges(conn: sqlite3.Connection) -> list[Workspace]:
    """Workspaces with an ordered but unfinished purge."""
    return _workspaces(conn, "purging = 1")


def kept(conn: sqlite3.Connection) -> list[Workspace]:
    """Every workspace without an ordered purge; those of live sessions come first."""
    return _workspaces(conn, f"purging = 0 ORDER BY NOT EXISTS ({_LIVE})")


def order_expired_purges(conn: sqlite3.Connection, ended_before: str) -> int:
    """Orders purges of workspaces whose last session ended before that time; returns how many."""
    return conn.execute(
        f"UPDATE workspaces SET purging = 1 WHERE purging = 0 AND NOT EXISTS ({_LIVE})"  # noqa: S608
        f" AND {_KEPT_SINCE} < ?",
        (ended_before,),
    ).rowcount


def next_expiry(conn: sqlite3.Connection) -> str | None:
    """The earliest end of a last session among the unused workspaces, which expires first."""
    row = conn.execute(
        f"SELECT min({_KEPT_SINCE}) FROM workspaces WHERE purging = 0 AND NOT EXISTS ({_LIVE})"  # noqa: S608
    ).fetchone()
    return None if row[0] is None else str(row[0])


def clock_changed(conn: sqlite3.Connection, forward: timedelta, now: datetime) -> None:
    """Keeps what is left of unused workspaces' time, after the clock was set forward to `now`.

    Nothing is kept from later than now, whatever the clock showed before.
    """
    rows = conn.execute(
        f"SELECT id, {_KEPT_SINCE} FROM workspaces WHERE purging = 0 AND NOT EXISTS ({_LIVE})"  # noqa: S608
    ).fetchall()
    moved = [
        (time_text(min(datetime.fromisoformat(since).astimezone(UTC) + forward, now)), workspace)
        for workspace, since in rows
        if since is not None
    ]
    conn.executemany("UPDATE workspaces SET kept_since = ? WHERE id = ?", moved)


def release(conn: sqlite3.Connection, workspace_id: str) -> None:
    """Forgets the workspace after its files are gone, which frees its id and uid."""
    conn.execute("DELETE FROM workspaces WHERE id = ?", (workspace_id,))


def make_slot(slot: Path) -> None:
    """Makes a slot's directory for root only; keeps an existing one. Raises: OSError."""
    for directory in (slot.parent, slot):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)


def make_data(data: Path, uid: int) -> Path:
    """Makes the directory of a workspace's files for `uid` only, and returns it.

    Keeps what exists. Follows no links, because the session can change the directory. Raises:
    OSError.
    """
    with suppress(FileExistsError):
        data.mkdir(mode=0o700)
    with opened(data) as directory:
        if os.fstat(directory).st_uid != uid:
            os.fchown(directory, uid, uid)
    return data


def show(root: Path, workspace_id: str, data: Path, slots: Path) -> Path:
    """Links `<root>/<id>` to the workspace's data and returns the link.

    `slots` is the directory of all slots. Raises: ConflictError if anything other than a link into
    `slots` has that name.
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
            # No id begins with a dot, so this name can't be a workspace's.
            draft = root / f".{secrets.token_hex(8)}"
            draft.symlink_to(target)
            draft.replace(link)
    return link


def hide(root: Path, workspace_id: str, slots: Path) -> None:
    """Removes the link that `show` made; leaves anything else with that name."""
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
    """The lowest unused uid of the range."""
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
