"""Approvals, and their rows. Each function runs inside the caller's transaction."""

import hashlib
import json
import sqlite3
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.events import Made, now
from orchestrator.ground.store.effect import Effect, executing

STATUSES = ("pending", "approved", "denied", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One line of input and a person's decision about it; times are RFC 3339 UTC.

    `approvers` is how many people must approve, `approved_by` are those who have.
    `incarnation` is the number of the session among those with its id; it is stored with the
    session.
    """

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
    approvers: int = 1
    approved_by: tuple[str, ...] = ()
    incarnation: int | None = None

    @property
    def args(self) -> dict[str, Any]:
        """The subject, as it is recorded: a long text is shortened."""
        return {
            "tool": self.tool,
            "command": self.text,
            "risk_tier": self.risk_tier,
            "files": self.files,
        }

    @property
    def made(self) -> Made:
        """The recorded members that identify it; the digest covers the complete text."""
        return Made(
            {
                "approval_id": self.id,
                "terminal_id": self.terminal_id,
                "command_sha256": hashlib.sha256(self.text.encode()).hexdigest(),
            }
        )

    @property
    def is_complete(self) -> bool:
        """Whether enough people have approved."""
        return len(self.approved_by) >= self.approvers

    @property
    def progress(self) -> dict[str, Any]:
        """What the record says of an approval that needs several people."""
        if self.approvers == 1:
            return {}
        return {"approvers": self.approvers, "approved_by": list(self.approved_by)}

    def decided(self, status: str, by: str, reason: str | None) -> "Approval":
        """The approval with that decision, made now."""
        return replace(self, status=status, decided_by=by, decided_at=now(), reason=reason)


_NAMES = tuple(each.name for each in fields(Approval))
_STORED = tuple(name for name in _NAMES if name != "incarnation")
_INCARNATION = "(SELECT incarnation FROM sessions WHERE key = session_key)"
_COLUMNS = ", ".join((*_STORED, _INCARNATION))


_FILTERS = {
    "owner": "owner = :owner",
    "session_key": "session_key = :session_key",
    "status": "status = :status",
    "before": "number < :before",
    "after_id": "number < (SELECT number FROM approvals WHERE id = :after_id)",
}


class ApprovalPage(NamedTuple):
    """Filters for approvals, newest first; filters that are None are off.

    `before` is the number before which the page begins, `after_id` the approval after which it
    does: one of them, or none.
    """

    owner: str | None
    session_key: str | None
    status: str | None
    before: int | None
    limit: int
    after_id: str | None = None


def inserting(approval: Approval) -> Effect:
    """An effect that stores a new approval."""
    values = asdict(approval)
    values |= {name: json.dumps(values[name]) for name in ("files", "approved_by")}
    names, marks = ", ".join(_STORED), ", ".join(f":{name}" for name in _STORED)
    statement = f"INSERT INTO approvals ({names}) VALUES ({marks})"  # noqa: S608 - names are ours
    return executing(statement, values)


def deciding(approval: Approval) -> Effect:
    """An effect that decides a pending approval. Raises ConflictError for any other."""

    def apply(connection: sqlite3.Connection) -> None:
        changed = connection.execute(
            "UPDATE approvals SET status = ?, decided_by = ?, decided_at = ?, reason = ?,"
            " approved_by = ? WHERE id = ? AND status = 'pending'",
            (
                approval.status,
                approval.decided_by,
                approval.decided_at,
                approval.reason,
                json.dumps(approval.approved_by),
                approval.id,
            ),
        )
        if changed.rowcount != 1:
            raise ConflictError(f"approval {approval.id} is already decided")

    return apply


def find(connection: sqlite3.Connection, approval_id: str) -> Approval | None:
    """The approval with that id."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE id = ?",  # noqa: S608
        (approval_id,),
    ).fetchone()
    return None if row is None else _approval(row)


def page(connection: sqlite3.Connection, wanted: ApprovalPage) -> tuple[list[Approval], int | None]:
    """Approvals, newest first, and the number before which the next page begins."""
    # Include only active conditions, or no index could be used.
    filters = wanted._asdict().items()
    conditions = [
        _FILTERS[name] for name, value in filters if name in _FILTERS and value is not None
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, number FROM approvals{_index(wanted)}{where}"  # noqa: S608
        " ORDER BY number DESC LIMIT :most",
        {**wanted._asdict(), "most": wanted.limit + 1},
    ).fetchall()
    following = rows[wanted.limit - 1][-1] if len(rows) > wanted.limit else None
    return [_approval(row) for row in rows[: wanted.limit]], following


def _index(wanted: ApprovalPage) -> str:
    """The index that returns them in order: a session's is the most selective."""
    if wanted.session_key is not None:
        return " INDEXED BY approvals_session"
    if None not in (wanted.owner, wanted.status):
        return " INDEXED BY approvals_owner_status"
    return ""


def pending(connection: sqlite3.Connection) -> list[Approval]:
    """Every undecided approval, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE status = 'pending' ORDER BY number"  # noqa: S608
    ).fetchall()
    return [_approval(row) for row in rows]


def _approval(row: tuple[Any, ...]) -> Approval:
    values = dict(zip(_NAMES, row, strict=False))
    found = {"files": json.loads(values["files"])}
    return Approval(**values | found | {"approved_by": tuple(json.loads(values["approved_by"]))})
