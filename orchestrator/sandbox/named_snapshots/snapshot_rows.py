"""Rows of named snapshots. Each function runs inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, NamedTuple

from orchestrator.cluster.names import NamedKind, TakenName
from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.sandbox.named_snapshots.snapshot_files import SavedSnapshot

Change = Callable[[dict[str, str]], dict[str, str]]


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """A copy of a workspace. `name` is None for that of a fork, which is nobody's.

    `size` is that of the workspace, `bytes` what the copy takes on the disk, `used_bytes` what its
    files need; before it is `ready`, these are estimates. `sha256` is the digest of what the record
    says of it. `metadata` are the client's own texts by name, as JSON. `layer_bytes` of `bytes` are
    a writable layer's; None: it has none.
    """

    id: str
    owner: str
    name: str | None
    session_id: str
    session_key: str
    created_at: str
    size: int
    bytes: int
    used_bytes: int
    method: str | None = None
    frozen_us: int = 0
    sha256: str | None = None
    metadata: str = "{}"
    layer_bytes: int | None = None
    ready: bool = False

    @property
    def taken(self) -> TakenName | None:
        """Its name in the cluster; None: it has no name."""
        if self.name is None:
            return None
        return TakenName(NamedKind.SNAPSHOT, self.owner, self.name, self.id)

    def completed(self, saved: SavedSnapshot, sha256: str) -> "NamedSnapshot":
        """The snapshot once its copy is there."""
        files, layer = saved
        return replace(
            self,
            size=files.size,
            bytes=files.bytes + (0 if layer is None else layer.bytes),
            used_bytes=files.used_bytes,
            method=files.method,
            frozen_us=round(saved.frozen_ms * 1000),
            sha256=sha256,
            layer_bytes=None if layer is None else layer.bytes,
            ready=True,
        )


class KeptSnapshots(NamedTuple):
    """How many snapshots a key has, and what they take on the disk."""

    snapshots: int
    bytes: int


_NAMES = tuple(field.name for field in fields(NamedSnapshot))
_SELECT = f"SELECT {', '.join(_NAMES)} FROM snapshots"  # noqa: S608


def add(conn: sqlite3.Connection, snapshot: NamedSnapshot) -> None:
    """Records a snapshot that is to be taken. Raises: ConflictError if its name is taken."""
    places = ", ".join("?" * len(_NAMES))
    try:
        conn.execute(
            f"INSERT INTO snapshots ({', '.join(_NAMES)}) VALUES ({places})",  # noqa: S608
            astuple(snapshot),
        )
    except sqlite3.IntegrityError:
        raise ConflictError(
            f"there is a snapshot {snapshot.name} already: remove it, or choose another name",
            field="name",
        ) from None


def complete(conn: sqlite3.Connection, snapshot: NamedSnapshot) -> None:
    """Records what is known once the copy is there."""
    values = {name: getattr(snapshot, name) for name in _NAMES}
    changed = ", ".join(f"{name} = :{name}" for name in _NAMES)
    conn.execute(f"UPDATE snapshots SET {changed} WHERE id = :id", values)  # noqa: S608


def change(conn: sqlite3.Connection, snapshot_id: str, change: Change) -> None:
    """Replaces the texts of a snapshot by what `change` makes of them. Raises: NotFoundError."""
    found = _rows(conn, "id = ?", snapshot_id)
    if not found:
        raise NotFoundError("the snapshot is gone: it was removed meanwhile")
    changed = json.dumps(change(json.loads(found[0].metadata)))
    conn.execute("UPDATE snapshots SET metadata = ? WHERE id = ?", (changed, snapshot_id))


def remove(conn: sqlite3.Connection, snapshot: NamedSnapshot) -> None:
    """Forgets a snapshot; its file is removed after that."""
    conn.execute("DELETE FROM snapshots WHERE id = ?", (snapshot.id,))


def find(conn: sqlite3.Connection, owner: str, ref: str) -> NamedSnapshot:
    """The owner's snapshot with that id or name. Raises: NotFoundError."""
    found = _rows(conn, "owner = ? AND name IS NOT NULL AND ? IN (id, name)", owner, ref)
    if not found:
        raise NotFoundError(f"there is no snapshot {ref[:128]}")
    return found[0]


def exists(conn: sqlite3.Connection, snapshot_id: str) -> bool:
    """Whether the snapshot with that id is there, also that of a fork."""
    return bool(_rows(conn, "id = ?", snapshot_id))


def page(
    conn: sqlite3.Connection,
    owner: str | None,
    session_id: str | None,
    after: tuple[str, str],
    limit: int,
) -> list[NamedSnapshot]:
    """Named snapshots of the owner, or of all, by owner and name, behind the pair `after`.

    `session_id` None: of any session.
    """
    return _rows(
        conn,
        "name IS NOT NULL AND (owner, name) > (?, ?) AND coalesce(?, owner) = owner"
        " AND coalesce(?, session_id) = session_id ORDER BY owner, name LIMIT ?",
        *(*after, owner, session_id, limit),
    )


def all_of(conn: sqlite3.Connection) -> list[NamedSnapshot]:
    """Every snapshot, also those that are not complete."""
    return _rows(conn, "TRUE")


def expired(conn: sqlite3.Connection, before: str) -> list[NamedSnapshot]:
    """Those that were taken before that time and are complete."""
    return _rows(conn, "ready = 1 AND name IS NOT NULL AND created_at < ?", before)


def oldest(conn: sqlite3.Connection) -> str | None:
    """When the oldest one was taken."""
    statement = "SELECT min(created_at) FROM snapshots WHERE ready = 1 AND name IS NOT NULL"
    (found,) = conn.execute(statement).fetchone()
    return None if found is None else str(found)


def kept(conn: sqlite3.Connection, owner: str) -> KeptSnapshots:
    """What the owner has."""
    statement = "SELECT count(*), coalesce(sum(bytes), 0) FROM snapshots WHERE owner = ?"
    return KeptSnapshots(*conn.execute(statement, (owner,)).fetchone())


def _rows(conn: sqlite3.Connection, condition: str, *values: object) -> list[NamedSnapshot]:
    rows = conn.execute(f"{_SELECT} WHERE {condition}", values)
    return [_snapshot(*row) for row in rows]


def _snapshot(*row: Any) -> NamedSnapshot:
    *values, ready = row
    return replace(NamedSnapshot(*values), ready=bool(ready))
