"""Turns and notes in the database: rows that commit together with their audit events."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from orchestrator.ground.store.effect import Effect, executing
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.turn import TurnRecord
from orchestrator.state.budget import Budget
from paddock.contract.words import Kind

# Characters of the results on one page.
_MOST_PAGE = 4 * 1024 * 1024
_COLUMNS = "number, started_at, actor, ended_at, permission_level, workspace_root, result"


def starting(session_key: str, turn: TurnRecord) -> Effect:
    """Stores a turn that is about to run."""
    return executing(
        "INSERT INTO turns (session_key, number, started_at, actor, permission_level,"
        " workspace_root) VALUES (?, ?, ?, ?, ?, ?)",
        (
            *(session_key, turn.number, turn.started_at, turn.actor),
            *(turn.permission_level, turn.workspace_root),
        ),
    )


def ending(session_key: str, turn: TurnRecord, notes: Notes | None) -> tuple[Effect, int]:
    """Stores how a turn ended, and the session's new notes; None: they stay as they are.

    Also returns how many bytes the turn takes in the database.
    """
    result = json.dumps(
        {
            "outcome": turn.outcome,
            "tokens_used": turn.tokens_used,
            "operations": turn.operations,
            "printed": turn.printed,
            "proposals": turn.proposals,
            "budget_remaining": turn.budget_remaining,
        }
    )

    def effect(connection: sqlite3.Connection) -> None:
        connection.execute(
            "UPDATE turns SET ended_at = ?, result = ? WHERE session_key = ? AND number = ?",
            (turn.ended_at, result, session_key, turn.number),
        )
        if notes is not None:
            connection.execute(
                "INSERT OR REPLACE INTO turn_notes (session_key, notes) VALUES (?, ?)",
                (session_key, json.dumps(notes.stored())),
            )

    return effect, len(result)


def importing(session_key: str, turns: Sequence[TurnRecord], notes: Notes) -> Effect:
    """Stores turns and notes of a snapshot."""

    def effect(connection: sqlite3.Connection) -> None:
        for turn in turns:
            starting(session_key, turn)(connection)
            ending(session_key, turn, None)[0](connection)
        if turns:
            ending(session_key, turns[-1], notes)[0](connection)

    return effect


def notes_of(connection: sqlite3.Connection, session_key: str) -> Notes:
    """What the session's programs remember."""
    row = connection.execute(
        "SELECT notes FROM turn_notes WHERE session_key = ?", (session_key,)
    ).fetchone()
    return Notes() if row is None else Notes.restored(json.loads(row[0]))


class Before(NamedTuple):
    """The turns before one: the latest one's number, 0 for none, and what all of them used."""

    number: int
    operations: int
    tokens: int

    def tokens_since(self, budget: Budget) -> int:
        """The tokens that the session has used since then; its host has reported some of them."""
        return max(0, budget.used(Kind.TOKENS) - self.tokens)


def before(connection: sqlite3.Connection, session_key: str) -> Before:
    """The turns before the session's next one, or before one that has not ended."""
    query = (
        "SELECT coalesce(max(number), 0), coalesce(sum(json_extract(result, '$.operations')), 0),"
        " coalesce(sum(json_extract(result, '$.tokens_used')), 0)"
        " FROM turns WHERE session_key = ?"
    )
    return Before(*connection.execute(query, (session_key,)).fetchone())


def one(connection: sqlite3.Connection, session_key: str, number: int) -> TurnRecord | None:
    """The turn with that number, if there is one."""
    found, _ = page(connection, session_key, number - 1, 1)
    return found[0] if found and found[0].number == number else None


def page(
    connection: sqlite3.Connection, session_key: str, after: int, limit: int
) -> tuple[list[TurnRecord], bool]:
    """Turns with higher numbers, in order, and whether there may be more.

    There are fewer than `limit` if they are long.
    """
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM turns WHERE session_key = ? AND number > ?"  # noqa: S608 - ours
        " ORDER BY number LIMIT ?",
        (session_key, after, limit),
    )
    found: list[TurnRecord] = []
    size = 0
    for row in rows:
        if found and size + len(row[-1] or "") > _MOST_PAGE:
            return found, True
        size += len(row[-1] or "")
        found.append(_turn(row))
    return found, len(found) == limit


def unended(connection: sqlite3.Connection) -> list[tuple[str, TurnRecord]]:
    """Turns without a recorded end, with the keys of their sessions."""
    rows = connection.execute(
        f"SELECT session_key, {_COLUMNS} FROM turns WHERE ended_at IS NULL"  # noqa: S608 - ours
    )
    return [(row[0], _turn(row[1:])) for row in rows]


def _turn(row: tuple[int, str, str, str | None, str | None, str | None, str | None]) -> TurnRecord:
    number, started_at, actor, ended_at, level, root, result = row
    turn = TurnRecord(
        *(number, started_at, actor, ended_at), permission_level=level, workspace_root=root
    )
    if result is None:
        return turn
    members = json.loads(result)
    return replace(turn, **members | {"proposals": tuple(members["proposals"])})
