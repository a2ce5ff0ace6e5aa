"""The rows of spawns whose end is not on record. All run inside the caller's transaction."""

import json
import sqlite3
from typing import Any

from orchestrator.ground.errors import RecordedBeforeError
from orchestrator.ground.store.effect import Effect, executing
from orchestrator.state.family import OpenSpawn, Origin
from paddock.contract.words import Kind

# The ended children with all of their descendants; what a live child uses is in its own budget.
_ENDED = (
    "WITH RECURSIVE family (key) AS ("
    "SELECT key FROM sessions WHERE parent_key = ? AND status NOT IN ('active', 'paused')"
    " UNION ALL SELECT sessions.key FROM sessions JOIN family ON sessions.parent_key = family.key"
    " WHERE status NOT IN ('active', 'paused'))"
)


def opening(spawn: OpenSpawn) -> Effect:
    """An effect that keeps a spawn until its end is on record."""
    origin = spawn.origin
    return executing(
        "INSERT INTO spawns (id, parent_key, origin, child_id) VALUES (?, ?, ?, ?)",
        (origin.spawn_id, origin.parent_key, json.dumps(origin.stored()), spawn.child_id),
    )


def closing(spawn_id: str) -> Effect:
    """An effect that forgets a spawn whose end is recorded. Raises: RecordedBeforeError."""

    def apply(connection: sqlite3.Connection) -> None:
        if not connection.execute("DELETE FROM spawns WHERE id = ?", (spawn_id,)).rowcount:
            raise RecordedBeforeError

    return apply


def unended(connection: sqlite3.Connection) -> list[OpenSpawn]:
    """The spawns whose end is not on record."""
    rows = connection.execute("SELECT origin, child_id FROM spawns").fetchall()
    return [
        OpenSpawn(origin, child_id)
        for text, child_id in rows
        if (origin := Origin.restored(json.loads(text))) is not None
    ]


def spent(connection: sqlite3.Connection, parent_key: str) -> dict[Kind, int]:
    """What the session's ended children have used, in internal units."""
    rows: list[tuple[Any, int]] = connection.execute(
        f"{_ENDED} SELECT used.key, sum(used.value) FROM family JOIN sessions USING (key),"  # noqa: S608
        " json_each(sessions.budget, '$.consumed') AS used GROUP BY used.key",
        (parent_key,),
    ).fetchall()
    found = {Kind(kind): int(amount) for kind, amount in rows}
    (recorded,) = connection.execute(
        f"{_ENDED} SELECT coalesce(sum(audit_bytes), 0) FROM family JOIN sessions USING (key)",  # noqa: S608
        (parent_key,),
    ).fetchone()
    if recorded:
        found[Kind.AUDIT_BYTES] = int(recorded)
    return found
