"""Writes the rows of sessions. Each function runs inside the caller's transaction."""

import json
import sqlite3
from dataclasses import asdict

from orchestrator.ground.errors import RecordedBeforeError, SandboxUnavailableError
from orchestrator.ground.events import now
from orchestrator.ground.store.effect import Effect, both, executing
from orchestrator.host.workspace import slots
from orchestrator.rules.egress.session_rules import OwnRules
from orchestrator.rules.policy.levels import Level
from orchestrator.state import pack_rows
from orchestrator.state.lifecycle import LIVE, Suspension, Termination
from orchestrator.state.moving import move_rows
from orchestrator.state.secret_rows import removing_all
from orchestrator.state.session import Session
from orchestrator.state.terms import Terms
from paddock.contract.words import Rationale, Status


def insert(connection: sqlite3.Connection, session: Session) -> None:
    """Writes a session that is being created and that its client does not know yet."""
    origin = session.family.origin
    connection.execute(
        "INSERT INTO sessions (key, id, owner, status, permission_level, level, terms,"
        " budget, egress, reissues, episodes, handle_sha256, secret_names, seal_key,"
        " incarnation, acknowledged, created_at, consume, policy, origin, parent_key, workspace_id,"
        " cluster, place, shipped_to)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session.key,
            session.id,
            session.owner,
            session.status,
            session.level.name,
            json.dumps(session.level.stored()),
            session.terms.column(),
            json.dumps(session.budget.stored()),
            json.dumps(session.own_rules.stored()),
            session.reissues,
            session.episodes,
            session.handle_sha256,
            json.dumps(session.secrets.stored.names),
            session.secrets.stored.key,
            session.incarnation,
            session.created_at,
            None if session.pack is None else json.dumps(session.pack.recorded()),
            json.dumps(session.policy.stored()),
            None if origin is None else json.dumps(origin.stored()),
            None if origin is None else origin.parent_key,
            session.workspace.id if session.family.shares else None,
            session.cluster,
            session.place,
            0 if session.ships else None,
        ),
    )
    if session.pack is not None:
        pack_rows.insert(connection, session.key, session.id, session.pack)
    connection.execute(
        "INSERT INTO incarnations (id, latest) VALUES (?, ?)"
        " ON CONFLICT (id) DO UPDATE SET latest = excluded.latest",
        (session.id, session.incarnation),
    )


def updating(session: Session, **columns: object) -> Effect:
    """An effect that sets columns of the session's row."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    statement = f"UPDATE sessions SET {assignments} WHERE key = ?"  # noqa: S608 - names are ours

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute(statement, (*columns.values(), session.key))

    return apply


def with_place(session: Session) -> Effect:
    """An effect that stores its place, and whether its chain is copied from now on."""
    session.ships = session.must_ship(session.level)
    ship = {"shipped_to": 0} if session.ships else {}
    return updating(session, cluster=session.cluster, place=session.place, **ship)


def with_level(session: Session, level: Level, **columns: object) -> Effect:
    """An effect that pins the session to that level, and sets other columns of its row."""
    stored = json.dumps(level.stored())
    egress = json.dumps(session.own_rules.at_another_level().stored())
    pin = updating(session, permission_level=level.name, level=stored, egress=egress, **columns)
    if not session.must_ship(level):
        return pin
    ship = "UPDATE sessions SET shipped_to = coalesce(shipped_to, 0) WHERE key = ?"
    return both(pin, executing(ship, (session.key,)))


def suspending(session: Session) -> Effect:
    """An effect that suspends the session: it has no sandbox."""
    return updating(session, suspension=Suspension.SUSPENDED, sandbox=None, container_id=None)


def restored(session: Session) -> Effect:
    """An effect that gives the session its present sandbox. Raises: SandboxUnavailableError."""
    sandbox = session.sandbox
    if sandbox is None:
        raise SandboxUnavailableError("the session has no sandbox")
    return updating(
        session, suspension=None, sandbox=sandbox.name, container_id=sandbox.container_id
    )


def with_rules(session: Session, rules: OwnRules) -> Effect:
    """An effect that gives the session these rules of its way out."""
    return updating(session, egress=json.dumps(rules.stored()))


def with_episode(session: Session, episode_id: str | None, episodes: int) -> Effect:
    """An effect that names the session's episode, one of so many."""
    return executing(
        "UPDATE sessions SET terms = json_set(terms, '$.episode_id', ?), episodes = ?"
        " WHERE key = ?",
        (episode_id, episodes, session.key),
    )


def with_timeouts(session: Session, terms: Terms) -> Effect:
    """An effect that gives the session the time-outs of these terms."""
    return executing(
        "UPDATE sessions SET terms = json_set(terms, '$.idle_timeout', ?, '$.wall_timeout', ?)"
        " WHERE key = ?",
        (terms.idle_timeout, terms.wall_timeout, session.key),
    )


def with_end(session: Session, status: Status, termination: Termination) -> Effect:
    """An effect that ends the session and forgets its handle and the values of its variables.

    The workspace of a session that was spawned for one run is to be purged then. Raises
    RecordedBeforeError if the session has ended.
    """
    end = updating(
        session,
        status=status,
        handle_sha256=None,
        seal_key=b"",
        terminated_at=termination.terminated_at,
        termination=json.dumps(asdict(termination)),
    )

    def apply(connection: sqlite3.Connection) -> None:
        (before,) = connection.execute(
            "SELECT status FROM sessions WHERE key = ?", (session.key,)
        ).fetchone()
        if before not in LIVE:
            raise RecordedBeforeError
        end(connection)
        _forget_env(connection, session.key)
        if termination.rationale_code is not Rationale.CONTEXT_MISS:
            pack_rows.forget(connection, session.key)
        removing_all(session.key)(connection)
        move_rows.forgetting_kept(connection, session.key)
        origin = session.family.origin
        if origin is not None and origin.runs and not session.family.shares:
            slots.order_purge(connection, session.id)

    return apply


def counting(session_key: str, size: int) -> Effect:
    """An effect that counts what is kept of the session besides its events."""
    return executing(
        "UPDATE sessions SET audit_bytes = audit_bytes + ? WHERE key = ?", (size, session_key)
    )


def with_budget(session: Session) -> Effect:
    """An effect that stores the session's consumption."""
    return updating(session, budget=json.dumps(session.budget.stored()))


def with_usage(session: Session) -> Effect:
    """An effect that stores the session's consumption, and what it has used of its way out."""
    used = json.dumps(session.egress_usage.stored())
    return updating(session, budget=json.dumps(session.budget.stored()), egress_used=used)


def forgetting(session_key: str) -> Effect:
    """An effect that ends a session that its client never knew.

    The owner of its chain stays: the record can be found by its incarnation, and archived.
    """

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute(
            "UPDATE sessions SET status = ?, terminated_at = ?, handle_sha256 = NULL,"
            " seal_key = x'' WHERE key = ?",
            (Status.ABORTED, now(), session_key),
        )
        _forget_env(connection, session_key)
        pack_rows.forget(connection, session_key)
        removing_all(session_key)(connection)

    return apply


def _forget_env(connection: sqlite3.Connection, session_key: str) -> None:
    """Forgets the values of a session's variables, which are kept while it lives."""
    connection.execute(
        "UPDATE sessions SET terms = json_set(terms, '$.env', json('{}')) WHERE key = ?",
        (session_key,),
    )
