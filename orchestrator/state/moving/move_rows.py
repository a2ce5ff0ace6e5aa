"""The rows of sessions that move: written with their events, and read at the start."""

import sqlite3
from enum import StrEnum
from typing import NamedTuple

from orchestrator.ground.store.effect import Effect, executing

# What a session that never became active has brought along.
_BROUGHT = ("turns", "turn_notes", "timeline", "run_queue")


class MoveState(StrEnum):
    """How far a move is, as this node knows for certain."""

    LEAVING = "leaving"
    LEFT = "left"
    ARRIVING = "arriving"
    KEPT = "kept"


class MoveRow(NamedTuple):
    """`node` is the other one; `sealed` are the secrets that no sandbox has, None without any."""

    session_key: str
    state: MoveState
    node: str
    sealed: bytes | None


def putting(row: MoveRow) -> Effect:
    """Stores the row in place of an earlier one."""
    return executing("INSERT OR REPLACE INTO moves VALUES (?, ?, ?, ?)", row)


def left(session_key: str) -> Effect:
    """The session is another node's, with its secrets."""
    return executing(
        "UPDATE moves SET state = ?, sealed = NULL WHERE session_key = ?",
        (MoveState.LEFT, session_key),
    )


def kept(session_key: str) -> Effect:
    """The session is this node's for certain; secrets without a sandbox stay where they are."""

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM moves WHERE session_key = ? AND sealed IS NULL", (session_key,)
        )
        connection.execute(
            "UPDATE moves SET state = ? WHERE session_key = ?", (MoveState.KEPT, session_key)
        )

    return apply


def removing(session_key: str) -> Effect:
    """Nothing of the move is left."""
    return executing("DELETE FROM moves WHERE session_key = ?", (session_key,))


def withdrawing(session_key: str) -> Effect:
    """Removes what a session that never became active has brought along."""

    def apply(connection: sqlite3.Connection) -> None:
        for table in _BROUGHT:
            connection.execute(
                f"DELETE FROM {table} WHERE session_key = ?",  # noqa: S608 - names are ours
                (session_key,),
            )
        removing(session_key)(connection)

    return apply


def forgetting_kept(connection: sqlite3.Connection, session_key: str) -> None:
    """A sandbox has the secrets, or nothing needs them any more."""
    connection.execute(
        "DELETE FROM moves WHERE session_key = ? AND state = ?", (session_key, MoveState.KEPT)
    )


def stored(connection: sqlite3.Connection) -> list[MoveRow]:
    """All of them."""
    rows = connection.execute("SELECT session_key, state, node, sealed FROM moves")
    return [MoveRow(key, MoveState(state), node, sealed) for key, state, node, sealed in rows]
