"""Connections whose end is not on record: after a kill, the next start records these ends."""

import sqlite3
from collections.abc import Mapping

from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, both, executing
from orchestrator.record.audit.recorder import Recorder
from orchestrator.state import session_rows
from orchestrator.state.session import Session


def opened(session: Session, connection_id: str) -> Effect:
    """An effect that keeps a connection until `closed`."""
    return executing(
        "INSERT INTO egress_connections (id, session_key) VALUES (?, ?)",
        (connection_id, session.key),
    )


def closed(session: Session, connection_id: str) -> Effect:
    """An effect that forgets a connection, and stores what the session has used by now."""
    return both(_forgetting(connection_id), session_rows.with_usage(session))


async def record_lost(
    database: Database, recorder: Recorder, sessions: Mapping[str, Session]
) -> None:
    """Records the ends of connections that an earlier control plane left, of sessions by their key.

    Raises: StoreError, AuditUnavailableError.
    """
    for connection_id, session_key in (await database.read(_left)).items():
        forget = _forgetting(connection_id)
        if session_key not in sessions:
            await database.write(forget)
            continue
        draft = EventDraft(
            "egress.close",
            actor="system",
            made=Made(args={"connection_id": connection_id}),
            error="the control plane ended: how many bytes passed is not known",
            stop=True,
        )
        await recorder.record(sessions[session_key], draft, forget)


def _forgetting(connection_id: str) -> Effect:
    return executing("DELETE FROM egress_connections WHERE id = ?", (connection_id,))


def _left(connection: sqlite3.Connection) -> dict[str, str]:
    """The keys of sessions, by the ids of their connections."""
    return dict(connection.execute("SELECT id, session_key FROM egress_connections ORDER BY id"))
