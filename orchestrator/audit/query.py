"""Reads from the audit ledger: pages, counts, and whole chains."""

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from orchestrator.audit.events import full_event
from orchestrator.audit.writer import chain_head
from orchestrator.store.database import Database
from paddock.audit.chain import Event, canonical

# Rows per read: memory stays flat, and other readers get their turn.
PAGE = 500
_EVENT = "SELECT body, prev_hash, hash FROM events"
# By what is asked for: the most selective first.
_INDEXES = {"turn": "events_turn", "operation": "events_operation"}
# Of the event after which a page begins; 0: of none.
_ID = """
    coalesce((
        SELECT id FROM events WHERE session_key = :key AND seq <= :after ORDER BY seq DESC LIMIT 1
    ), 0)
"""
_INCARNATION = "SELECT incarnation FROM sessions WHERE key = ?"
_COUNTS = "SELECT operation, decision, events, tokens FROM event_counts WHERE session_key = ?"

_LATEST_COMMANDS = """
    WITH started AS (
        SELECT seq, command_id FROM events
        WHERE session_key = :key AND operation = 'command.start' AND decision IS NOT 'deny'
    ), wanted AS (
        SELECT command_id FROM started
        WHERE seq IN (SELECT seq FROM started ORDER BY seq DESC LIMIT :most)
            OR NOT EXISTS (
                SELECT 1 FROM events
                WHERE session_key = :key AND command_id = started.command_id
                    AND operation = 'command.exit'
            )
    )
    SELECT body, prev_hash, hash FROM events
    WHERE session_key = :key AND operation IN ('command.start', 'command.exit')
        AND command_id IN (SELECT command_id FROM wanted)
    ORDER BY seq
"""


async def events(
    database: Database,
    session_key: str,
    *,
    after_seq: int = 0,
    limit: int = 100,
    turn: int | None = None,
    operation: str | None = None,
    decision: str | None = None,
) -> list[Event]:
    """Events of one chain with a higher `seq`, in order; filters that are None are off."""
    filters = {"turn": turn, "operation": operation, "decision": decision}
    wanted = {column: value for column, value in filters.items() if value is not None}
    return await _select(
        database,
        _page_statement(tuple(wanted)),
        {"key": session_key, "after": after_seq, "limit": limit, **wanted},
    )


def _page_statement(wanted: tuple[str, ...]) -> str:
    """A page of a chain: what is rare in it is found by its index, not by looking through all."""
    where = "".join(f" AND {column} = :{column}" for column in wanted)
    index = next((name for column, name in _INDEXES.items() if column in wanted), None)
    if index is None:
        rows = f"WHERE session_key = :key AND seq > :after{where} ORDER BY seq"
    else:
        # In one chain ids are in the order of its numbers, and these indexes in that of ids.
        rows = f"INDEXED BY {index} WHERE session_key = :key{where} AND id > {_ID} ORDER BY id"
    return f"{_EVENT} {rows} LIMIT :limit"


async def incarnation(database: Database, session_key: str) -> int | None:
    """Which session of its id the chain is of: events of earlier versions do not say it."""

    def read(connection: sqlite3.Connection) -> int | None:
        row = connection.execute(_INCARNATION, (session_key,)).fetchone()
        return None if row is None else int(row[0])

    return await database.browse(read)


async def all_events(
    database: Database, after_id: int = 0, limit: int = 100, owner: str | None = None
) -> list[Event]:
    """Events of all chains with a higher `id`, in order.

    With an owner: of that owner's sessions only.
    """
    owned = "" if owner is None else " AND session_key IN (SELECT key FROM sessions WHERE owner=?)"
    return await _select(
        database,
        f"{_EVENT} WHERE id > ?{owned} ORDER BY id LIMIT ?",
        (after_id, *([] if owner is None else [owner]), limit),
    )


async def latest_denials(database: Database, session_key: str, limit: int) -> list[Event]:
    """The latest events of one chain whose decision was to deny, newest first."""
    return await _select(
        database,
        f"{_EVENT} WHERE session_key = ? AND decision = 'deny' ORDER BY seq DESC LIMIT ?",
        (session_key, limit),
    )


async def latest_commands(database: Database, session_key: str, limit: int) -> list[Event]:
    """The starts of the latest allowed commands, all unfinished ones included, and their ends.

    In the order of the chain.
    """
    return await _select(database, _LATEST_COMMANDS, {"key": session_key, "most": limit})


async def stats(database: Database, session_key: str) -> dict[str, Any]:
    """Counts over a chain.

    Returns `{total_operations, operation_counts {operation: n}, decisions {decision: n},
    total_tokens}`; events without a decision are in no decision's count.
    """

    rows = await database.browse(
        lambda connection: connection.execute(_COUNTS, (session_key,)).fetchall()
    )
    operations, decisions = Counter[str](), Counter[str]()
    for operation, decision, count, _ in rows:
        operations[operation] += count
        if decision:
            decisions[decision] += count
    return {
        "total_operations": operations.total(),
        "operation_counts": dict(operations),
        "decisions": dict(decisions),
        "total_tokens": sum(tokens for *_, tokens in rows),
    }


async def export(database: Database, session_key: str) -> AsyncIterator[str]:
    """The chain as it is now, one JSON text and a newline per event.

    Each line is the event with its hashes in canonical form, as `verify_chain` reads it.
    """
    end = (await database.browse(lambda connection: chain_head(connection, session_key))).seq
    seq = 0
    while seq < end:
        page = await events(database, session_key, after_seq=seq, limit=min(PAGE, end - seq))
        if not page:
            return
        for event in page:
            yield canonical(event) + "\n"
        seq = page[-1]["seq"]


async def _select(
    database: Database, statement: str, values: tuple[Any, ...] | dict[str, Any]
) -> list[Event]:
    def read(connection: sqlite3.Connection) -> list[Event]:
        # All at once: a broken event must leave no statement at work, which keeps the old view.
        return [full_event(*row) for row in connection.execute(statement, values).fetchall()]

    return await database.browse(read)
