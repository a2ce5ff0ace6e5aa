"""Approvals as they are stored. Each function runs inside a transaction of the caller's."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from orchestrator.errors import ConflictError

STATUSES = ("pending", "approved", "denied", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One line of input, and what a person said to it; times are RFC 3339 UTC."""

    id: str
    session_key: str
    session_id: str
    owner: str
    terminal_id: str
    tool: str
    text: str
    risk_tier: str
    status: str
    requested_by: str
    requested_at: str
    decided_by: str | None = None
    decided_at: str | None = None
    reason: str | None = None
    files: dict[str, str] = field(default_factory=dict)

    def public(self) -> dict[str, Any]:
        """The approval as a plain object; the text is the `command` that was sent."""
        values = asdict(self)
        del values["session_key"]
        values["command"] = values.pop("text")
        return values


_NAMES = tuple(each.name for each in fields(Approval))
_COLUMNS = ", ".join(_NAMES)


def inserting(approval: Approval) -> Callable[[sqlite3.Connection], None]:
    """An effect that stores a new approval."""
    values = asdict(approval) | {"files": json.dumps(approval.files)}
    marks = ", ".join(f":{name}" for name in _NAMES)
    statement = f"INSERT INTO approvals ({_COLUMNS}) VALUES ({marks})"  # noqa: S608 - names are ours

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute(statement, values)

    return apply


def deciding(approval: Approval) -> Callable[[sqlite3.Connection], None]:
    """An effect that decides a pending approval. It raises ConflictError for any other."""

    def apply(connection: sqlite3.Connection) -> None:
        changed = connection.execute(
            "UPDATE approvals SET status = ?, decided_by = ?, decided_at = ?, reason = ?"
            " WHERE id = ? AND status = 'pending'",
            (
                approval.status,
                approval.decided_by,
                approval.decided_at,
                approval.reason,
                approval.id,
            ),
        )
        if changed.rowcount != 1:
            raise ConflictError(f"approval {approval.id} is decided already")

    return apply


def find(connection: sqlite3.Connection, approval_id: str) -> Approval | None:
    """The approval of that id."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE id = ?",  # noqa: S608
        (approval_id,),
    ).fetchone()
    return None if row is None else _approval(row)


def page(
    connection: sqlite3.Connection,
    *,
    owner: str | None,
    status: str | None,
    before: int | None,
    limit: int,
) -> tuple[list[Approval], int | None]:
    """Approvals, newest first, and the number before which the next page begins."""
    # Only conditions that are there, or no index could be used.
    conditions = [
        condition
        for condition, value in (
            ("owner = :owner", owner),
            ("status = :status", status),
            ("number < :before", before),
        )
        if value is not None
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, number FROM approvals{where}"  # noqa: S608
        " ORDER BY number DESC LIMIT :limit",
        {"owner": owner, "status": status, "before": before, "limit": limit + 1},
    ).fetchall()
    shown = rows[:limit]
    return [_approval(row) for row in shown], shown[-1][-1] if len(rows) > limit else None


def pending(connection: sqlite3.Connection) -> list[Approval]:
    """Every approval that nobody has decided, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE status = 'pending' ORDER BY number"  # noqa: S608
    ).fetchall()
    return [_approval(row) for row in rows]


def incarnations(connection: sqlite3.Connection) -> dict[str, int]:
    """Of the sessions whose approvals nobody has decided, by key."""
    return dict(
        connection.execute(
            "SELECT key, incarnation FROM sessions"
            " WHERE key IN (SELECT session_key FROM approvals WHERE status = 'pending')"
        ).fetchall()
    )


def _approval(row: tuple[Any, ...]) -> Approval:
    values = dict(zip(_NAMES, row, strict=False))
    return Approval(**values | {"files": json.loads(values["files"])})
