"""Records of terminals, and their rows, which commit together with their audit events."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

from orchestrator.ground.store.effect import Effect
from orchestrator.work.terminals.evidence_files import Digests
from orchestrator.work.terminals.spec import TerminalSpec
from orchestrator.work.terminals.terminal import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalRecord:
    """A terminal, during its life and afterwards; times are RFC 3339 UTC.

    `kind` is `tool` or `shell`; a shell has no manifest, and counts nothing.

    `prompt` is the last one without trailing white space, and `session_state` the state that it
    shows. Members about the end are None until then.
    """

    id: str
    tool: str
    manifest_sha256: str | None
    startup_command: str
    status: Status = Status.SPAWNING
    session_state: str | None = None
    prompt: str | None = None
    interaction_count: int = 0
    max_interactions: int
    opened_at: str
    ended_at: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    evidence: Digests | None = None
    kind: str = "tool"

    @classmethod
    def opened(cls, terminal_id: str, spec: TerminalSpec, opened_at: str) -> Self:
        """The terminal at its start."""
        return cls(
            id=terminal_id,
            tool=spec.tool,
            manifest_sha256=spec.manifest_sha256,
            startup_command=spec.startup_command,
            max_interactions=spec.max_interactions,
            opened_at=opened_at,
            kind="shell" if spec.is_shell else "tool",
        )

    def stored(self) -> dict[str, Any]:
        """The stored form, as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        evidence = None if self.evidence is None else self.evidence._asdict()
        return {**values, "status": str(self.status), "evidence": evidence}

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """A stored terminal."""
        evidence = values["evidence"]
        own = {"status": Status(values["status"]), "evidence": evidence and Digests(**evidence)}
        return cls(**{**values, **own})


class TerminalRow(NamedTuple):
    """A stored terminal, and its session."""

    session_key: str
    record: TerminalRecord


def opening(session_key: str, record: TerminalRecord) -> Effect:
    """Stores a terminal that is about to be opened."""

    def effect(connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO terminals (id, session_key, opened_at, record) VALUES (?, ?, ?, ?)",
            (record.id, session_key, record.opened_at, json.dumps(record.stored())),
        )

    return effect


def ending(record: TerminalRecord) -> Effect:
    """Stores how a terminal has ended."""

    def effect(connection: sqlite3.Connection) -> None:
        connection.execute(
            "UPDATE terminals SET ended_at = ?, record = ? WHERE id = ?",
            (record.ended_at, json.dumps(record.stored()), record.id),
        )

    return effect


def of_session(connection: sqlite3.Connection, session_key: str) -> list[TerminalRow]:
    """A session's terminals, oldest first."""
    return _rows(connection, "session_key = ? ORDER BY opened_at, id", session_key)


def one(connection: sqlite3.Connection, session_key: str, terminal_id: str) -> TerminalRow | None:
    """A terminal of a session."""
    rows = _rows(connection, "session_key = ? AND id = ?", session_key, terminal_id)
    return rows[0] if rows else None


def not_ended(connection: sqlite3.Connection) -> list[TerminalRow]:
    """Terminals without a recorded end."""
    return _rows(connection, "ended_at IS NULL ORDER BY id")


def _rows(connection: sqlite3.Connection, condition: str, *values: str) -> list[TerminalRow]:
    query = f"SELECT session_key, record FROM terminals WHERE {condition}"  # noqa: S608
    found = connection.execute(query, values)
    return [TerminalRow(row[0], TerminalRecord.restored(json.loads(row[1]))) for row in found]
