"""Reads the rows of sessions. Each function runs inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.slots import Workspace
from orchestrator.rules.egress.session_rules import OwnRules
from orchestrator.rules.egress.usage import EgressUsage
from orchestrator.rules.policy.levels import Level, SessionLimits, restore_level
from orchestrator.rules.policy.session_policy import SAFE_ANALYSIS, SessionPolicy
from orchestrator.state.budget import Budget
from orchestrator.state.family import Family, Origin
from orchestrator.state.lifecycle import Suspension, Termination
from orchestrator.state.pack import Pack
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from orchestrator.state.terms import Terms
from paddock.contract.words import Kind, Rationale, Status

_COLUMNS = (
    "sessions.key, sessions.id, sessions.owner, status, level, terms,"
    " budget, audit_bytes, egress, egress_used, reissues, episodes,"
    " suspension, handle_sha256, acknowledged,"
    " secret_names, seal_key, incarnation, cluster, place, shipped_to, fenced,"
    " sessions.created_at, consume, policy,"
    " origin, coalesce(workspace_id, sessions.id) AS workspace_id,"
    " termination, sandbox,"
    " coalesce(uid, 0) AS uid, coalesce(slot, '') AS slot,"
    " coalesce(workspaces.created_at, '') AS workspace_created,"
    " coalesce(workspaces.quota, 'none') AS workspace_quota,"
    # A suspension is no use of the session.
    " (SELECT time FROM events WHERE session_key = sessions.key"
    " AND operation <> 'session.suspended' ORDER BY seq DESC LIMIT 1) AS last_event"
)
_SESSIONS = (
    "sessions LEFT JOIN workspaces ON workspaces.id = coalesce(sessions.workspace_id, sessions.id)"
)
# Large: only for sessions that may still be used.
_PACK = "(SELECT pack FROM packs WHERE session_key = sessions.key) AS pack"


class SessionRow:
    """A stored session: `session`, its sandbox, and whether its client knows of it."""

    def __init__(
        self,
        row: sqlite3.Row,
        root_dir: Callable[[str], str],
        limits: Callable[[Level, dict[str, int | float]], SessionLimits],
    ) -> None:
        level = restore_level(json.loads(row["level"]))
        terms = Terms.restored(json.loads(row["terms"]))
        origin = Origin.restored(None if row["origin"] is None else json.loads(row["origin"]))
        workspace = Workspace(
            row["workspace_id"],
            row["owner"],
            row["uid"],
            row["slot"],
            row["workspace_created"],
            Quota(row["workspace_quota"]),
        )
        self.sandbox: str | None = row["sandbox"]
        self.suspension = None if row["suspension"] is None else Suspension(row["suspension"])
        self.acknowledged = bool(row["acknowledged"])
        self.session = Session(
            key=row["key"],
            id=row["id"],
            owner=row["owner"],
            status=Status(row["status"]),
            level=level,
            terms=terms,
            limits=limits(level, terms.limits),
            budget=_budget(row, level),
            handle_sha256=row["handle_sha256"] or "",
            workspace=workspace,
            root_dir=root_dir(row["workspace_id"]),
            created_at=row["created_at"],
            last_activity_at=row["last_event"] or row["created_at"],
            incarnation=row["incarnation"],
            cluster=row["cluster"],
            place=row["place"],
            ships=row["shipped_to"] is not None,
            fenced=bool(row["fenced"]),
            policy=_policy(row["policy"]),
            episodes=row["episodes"],
            reissues=row["reissues"],
            own_rules=OwnRules.restored(json.loads(row["egress"])),
            egress_usage=EgressUsage.restored(json.loads(row["egress_used"])),
            secrets=SessionSecrets(
                StoredSecrets(tuple(json.loads(row["secret_names"])), row["seal_key"])
            ),
            pack=_pack(row),
            family=Family(origin),
            termination=_termination(row["termination"]),
        )


def _pack(row: sqlite3.Row) -> Pack | None:
    """The session's pack; nothing but its name and mode if it is not kept."""
    if row["pack"] is not None:
        return Pack.restored(json.loads(row["pack"]))
    return None if row["consume"] is None else Pack(**json.loads(row["consume"]))


def _policy(text: str | None) -> SessionPolicy:
    """The stored policy; a session from before there were policies has the default."""
    return SAFE_ANALYSIS if text is None else SessionPolicy.restored(json.loads(text))


def _termination(text: str | None) -> Termination | None:
    if text is None:
        return None
    values = json.loads(text)
    return Termination(**{**values, "rationale_code": Rationale(values["rationale_code"])})


def load(
    connection: sqlite3.Connection, ended_after: str, sandboxes: Iterable[str]
) -> list[sqlite3.Row]:
    """Rows of live sessions, and of those that ended after that time, oldest end first.

    Also rows of the sessions to which these `sandboxes` (names) belong, whenever those ended. Ended
    sessions that their clients never knew are left out.
    """
    found = _select(
        connection,
        # By indexes, so that what has ended before is not looked at.
        "sessions.key IN ("
        "SELECT key FROM sessions INDEXED BY sessions_live_id WHERE status IN ('active', 'paused')"
        " UNION ALL SELECT key FROM sessions INDEXED BY sessions_ended"
        " WHERE terminated_at IS NOT NULL AND terminated_at > ? AND acknowledged = 1"
        ") ORDER BY terminated_at",
        (ended_after,),
    )
    # All sessions are searched for the others, which exist after a kill only.
    others = set(sandboxes) - {row["sandbox"] for row in found}
    if not others:
        return found
    older = _select(
        connection,
        "terminated_at <= ? AND acknowledged = 1"
        " AND sandbox IN (SELECT value FROM json_each(?)) ORDER BY terminated_at",
        (ended_after, json.dumps(sorted(others))),
    )
    return older + found


def load_with_pack(connection: sqlite3.Connection, session_key: str | None) -> sqlite3.Row | None:
    """The row of one session, with its whole pack if it is kept."""
    found = _select(connection, "sessions.key = ?", (session_key,))
    return found[0] if found else None


def open_terminals(connection: sqlite3.Connection, session_key: str) -> set[str]:
    """Ids of the session's terminals without a recorded end."""
    rows = connection.execute(
        "SELECT id FROM terminals WHERE session_key = ? AND ended_at IS NULL", (session_key,)
    )
    return {str(terminal_id) for (terminal_id,) in rows}


def _budget(row: sqlite3.Row, level: Level) -> Budget:
    """The stored budget; the ledger counts what was recorded."""
    started_at = datetime.fromisoformat(row["created_at"])
    budget = Budget.restored(started_at, json.loads(row["budget"]))
    budget.limits.setdefault(Kind.AUDIT_BYTES, level.audit_bytes)
    budget.reach(Kind.AUDIT_BYTES, row["audit_bytes"])
    return budget


def next_incarnation(connection: sqlite3.Connection, session_id: str) -> int:
    """The number of the next session with that id."""
    row = connection.execute(
        "SELECT latest FROM incarnations WHERE id = ?", (session_id,)
    ).fetchone()
    return 1 if row is None else int(row[0]) + 1


def find_key(
    connection: sqlite3.Connection,
    session_id: str,
    owner: str | None,
    incarnation: int | None = None,
) -> str | None:
    """The key of a session with that id (and owner), by default the latest incarnation.

    Its audit outlives its record. A session that no client knew is found by its number only.
    """
    row = connection.execute(
        "SELECT key FROM sessions WHERE id = :id AND id = :id COLLATE BINARY"
        " AND (:owner IS NULL OR owner = :owner)"
        " AND (incarnation = :number OR :number IS NULL AND acknowledged = 1)"
        " ORDER BY incarnation DESC LIMIT 1",
        {"id": session_id, "owner": owner, "number": incarnation},
    ).fetchone()
    return None if row is None else str(row[0])


def owner_of(connection: sqlite3.Connection, key: str) -> str | None:
    """The owner of the session with that key."""
    row = connection.execute("SELECT owner FROM sessions WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def ids(connection: sqlite3.Connection, keys: Sequence[str]) -> dict[str, str]:
    """The ids of the sessions with these keys, by key, as far as there are such sessions."""
    rows = connection.execute(
        "SELECT key, id FROM sessions WHERE key IN (SELECT value FROM json_each(?))",
        (json.dumps(keys),),
    )
    return dict(rows.fetchall())


def load_keys(connection: sqlite3.Connection, keys: Sequence[str]) -> list[sqlite3.Row]:
    """The rows of the sessions with these keys, without their packs."""
    return _select(
        connection,
        "sessions.key IN (SELECT value FROM json_each(?))",
        (json.dumps(keys),),
        pack="NULL AS pack",
    )


def _select(
    connection: sqlite3.Connection, condition: str, values: tuple[object, ...], pack: str = _PACK
) -> list[sqlite3.Row]:
    """The rows of sessions for which the condition holds; an order may follow it."""
    # A copy of the connection's row factory would outlive this read, but cursors have their own.
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    statement = f"SELECT {_COLUMNS}, {pack} FROM {_SESSIONS} WHERE {condition}"  # noqa: S608 - ours
    return cursor.execute(statement, values).fetchall()
