"""Reads from the audit ledger: pages, counts, and whole chains."""

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from orchestrator.audit.events import full_event
from orchestrator.audit.writer import chain_head
from orchestrator.store.database import Database
from paddock.audit.chain import Event, canonical

# Rows per read: memory stays flat, and other readers get their turn.
PAGE = 500
_EVENT = "SELECT body, prev_hash, hash FROM events"
# What one page looks at, where it has to look for what is wanted.
MOST_EXAMINED = 10_000
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


class EventPage(NamedTuple):
    """Events, and where the next page begins (after it); None: nothing is left now.

    There may be fewer than were asked for, or none, although more are left.
    """

    items: list[Event]
    next: int | None


async def page(
    database: Database,
    session_key: str,
    *,
    after_seq: int = 0,
    limit: int = 100,
    turn: int | None = None,
    operation: str | None = None,
    decision: str | None = None,
) -> EventPage:
    """Events of one chain with a higher `seq`, in order; filters that are None are off."""
    filters = {"turn": turn, "operation": operation, "decision": decision}
    wanted = {column: value for column, value in filters.items() if value is not None}
    rows, others = _rows(wanted)
    values = {"key": session_key, "after": after_seq, **wanted}
    return await database.browse(partial(_page, rows, others, "seq", values, limit))


async def events(database: Database, session_key: str, **wanted: Any) -> list[Event]:
    """The events of a page, for chains of which one page has all that is looked for."""
    return (await page(database, session_key, **wanted)).items


def _rows(wanted: Mapping[str, Any]) -> tuple[str, str]:
    """Which rows of a chain are looked at, in order, and what must hold for them besides.

    What is rare is found by its index.
    """
    leading = next((column for column in _INDEXES if column in wanted), None)
    if leading is not None:
        # In one chain ids are in the order of its numbers, and these indexes in that of ids.
        rows = f"INDEXED BY {_INDEXES[leading]} WHERE session_key = :key"
        rows += f" AND {leading} = :{leading} AND id > {_ID} ORDER BY id"
    elif wanted.get("decision") == "deny":
        leading = "decision"
        rows = "INDEXED BY events_denied WHERE session_key = :key AND decision = 'deny'"
        rows += " AND seq > :after ORDER BY seq"
    else:
        rows = "WHERE session_key = :key AND seq > :after ORDER BY seq"
    return rows, "".join(f" AND {column} = :{column}" for column in wanted if column != leading)


def _page(
    rows: str,
    others: str,
    position: str,
    values: Mapping[str, Any],
    limit: int,
    connection: sqlite3.Connection,
) -> EventPage:
    """`position`, `seq` or `id`, is what `next` tells. No more than a part is ever looked at."""
    most = MOST_EXAMINED if others else limit
    candidates = f"SELECT id FROM events {rows} LIMIT :most"  # noqa: S608
    values = {**values, "most": most, "limit": limit}
    found = connection.execute(
        f"{_EVENT} WHERE id IN ({candidates}){others} ORDER BY id LIMIT :limit", values
    ).fetchall()
    items = [full_event(*row) for row in found]
    if len(items) == limit:
        return EventPage(items, items[-1][position])
    if not others:
        return EventPage(items, None)
    examined, last = connection.execute(
        f"SELECT count(*), max({position}) FROM events WHERE id IN ({candidates})",  # noqa: S608
        values,
    ).fetchone()
    return EventPage(items, last if examined == most else None)


async def incarnation(database: Database, session_key: str) -> int | None:
    """Which session of its id the chain is of: events of earlier versions do not say it."""

    def read(connection: sqlite3.Connection) -> int | None:
        row = connection.execute(_INCARNATION, (session_key,)).fetchone()
        return None if row is None else int(row[0])

    return await database.browse(read)


async def all_page(
    database: Database, after_id: int = 0, limit: int = 100, owner: str | None = None
) -> EventPage:
    """Events of all chains with a higher `id`, in order.

    With an owner: of that owner's sessions only.
    """
    owned = (
        "" if owner is None else " AND session_key IN (SELECT key FROM sessions WHERE owner=:owner)"
    )
    values = {"after": after_id, "owner": owner}
    rows = "WHERE id > :after ORDER BY id"
    return await database.browse(partial(_page, rows, owned, "id", values, limit))


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
