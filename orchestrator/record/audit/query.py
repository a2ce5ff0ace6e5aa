"""Reads from the audit ledger: pages, counts and complete chains."""

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from orchestrator.ground.events import OPERATIONS
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.recorded_event import RECORDED, Recorded, full_event
from orchestrator.record.audit.writer import chain_head
from paddock.audit.chain import Event, canonical

# Rows per read: memory use stays flat, and other readers are served in between.
PAGE = 500
_EVENT = "SELECT body, prev_hash, hash FROM events"
# Events examined per page, if the page must search.
MOST_EXAMINED = 10_000
COMMAND_START, COMMAND_EXIT = "command.start", "command.exit"
# As the index of all other events says it: SQLite uses it for conditions in these words.
RARE = "operation NOT IN ('command.start', 'command.exit')"
# The id of the event after which a page begins; 0 for none.
_ID = """
    coalesce((
        SELECT id FROM events WHERE session_key = :key AND seq <= :after ORDER BY seq DESC LIMIT 1
    ), 0)
"""
_INCARNATION = "SELECT incarnation FROM sessions WHERE key = ?"
_COUNTS = "SELECT operation, decision, events, tokens FROM event_counts WHERE session_key = ?"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EventPage(Generic[T]):
    """Events, and the position after which the next page begins; None: nothing is left now.

    There may be fewer than requested, or none, although more are left.
    """

    items: list[T]
    next: int | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events are wanted: all, those of one chain, or those of one owner's sessions.

    `operations`: only these ones. Raises: ValueError for a chain and an owner, and for an
    operation that is never recorded.
    """

    session_key: str | None = None
    owner: str | None = None
    operations: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.session_key is not None and self.owner is not None:
            raise ValueError("a chain has one owner")
        unknown = (self.operations or frozenset()) - OPERATIONS
        if unknown:
            raise ValueError(f"no such operations: {', '.join(sorted(unknown))}")

    @property
    def filters(self) -> bool:
        """Whether there can be events between two that are wanted."""
        return self.owner is not None or self.operations is not None

    def position(self, event: Recorded) -> int:
        """Its position among the examined events: its `seq` in one chain, else its `id`."""
        return event.id if self.session_key is None else event.seq


class ChainStats(NamedTuple):
    """Counts over a chain; events without a decision are not counted in `decisions`."""

    total_operations: int
    operation_counts: dict[str, int]
    decisions: dict[str, int]
    total_tokens: int


async def page(
    database: Database,
    session_key: str,
    *,
    after_seq: int = 0,
    limit: int = 100,
    turn: int | None = None,
    operation: str | None = None,
    decision: str | None = None,
) -> EventPage[Event]:
    """Events of one chain with a higher `seq`, in order; filters that are None are off."""
    filters = {"turn": turn, "operation": operation, "decision": decision}
    wanted = {column: value for column, value in filters.items() if value is not None}
    rows, others = _rows(wanted)
    values = {"key": session_key, "after": after_seq, **wanted}

    def read(connection: sqlite3.Connection) -> EventPage[Event]:
        found = _page(_Search("seq", rows, others, values), limit, connection)
        return EventPage([recorded.event for recorded in found.items], found.next)

    return await database.browse(read)


async def recorded(
    database: Database, wanted: Selection, after: int = 0, limit: int = 100
) -> EventPage[Recorded]:
    """The wanted events behind a position, in order, as they were recorded."""
    others = ""
    values: dict[str, Any] = {"after": after, "key": wanted.session_key, "owner": wanted.owner}
    if wanted.session_key is None:
        position, rows = "id", "WHERE id > :after ORDER BY id"
    else:
        position, rows = "seq", "WHERE session_key = :key AND seq > :after ORDER BY seq"
    if wanted.owner is not None:
        others += " AND (SELECT owner FROM sessions WHERE key = session_key) = :owner"
    if wanted.operations is not None:
        operations = {f"operation_{n}": each for n, each in enumerate(sorted(wanted.operations))}
        others += f" AND operation IN ({', '.join(f':{each}' for each in operations)})"
        values |= operations
    return await database.browse(partial(_page, _Search(position, rows, others, values), limit))


async def events(database: Database, session_key: str, **wanted: Any) -> list[Event]:
    """The events of a page, for chains in which one page contains all matches."""
    return (await page(database, session_key, **wanted)).items


def owners(connection: sqlite3.Connection, session_keys: Collection[str]) -> dict[str, str]:
    """The keys whose sessions these are."""
    found: dict[str, str] = {}
    for session_key in session_keys:
        row = connection.execute(
            "SELECT owner FROM sessions WHERE key = ?", (session_key,)
        ).fetchone()
        if row is not None:
            found[session_key] = row[0]
    return found


def of_operation(operation: str) -> str:
    """Selects the rows of `:key` with that `:operation`; empty if no index has them.

    Most events of a chain are starts and ends of commands. Ends are found by their commands.
    """
    if operation == COMMAND_START:
        where = "events_started WHERE operation = 'command.start'"
    elif operation == COMMAND_EXIT:
        return ""
    else:
        where = f"events_rare WHERE {RARE} AND operation = :operation"
    return f"INDEXED BY {where} AND session_key = :key"


def _rows(wanted: Mapping[str, Any]) -> tuple[str, str]:
    """The rows of a chain to examine, in order, and the remaining conditions.

    Rare events are found by their index.
    """
    indexed = of_operation(wanted["operation"]) if "operation" in wanted else ""
    leading = "operation" if indexed else None
    if "turn" in wanted:
        leading = "turn"
        indexed = "INDEXED BY events_turn WHERE session_key = :key AND turn = :turn"
    if indexed:
        # In one chain, ids have the order of `seq`, and these indexes have the order of ids.
        rows = f"{indexed} AND id > {_ID} ORDER BY id"
    elif wanted.get("decision") == "deny":
        leading = "decision"
        rows = "INDEXED BY events_denied WHERE session_key = :key AND decision = 'deny'"
        rows += " AND seq > :after ORDER BY seq"
    else:
        rows = "WHERE session_key = :key AND seq > :after ORDER BY seq"
    return rows, "".join(f" AND {column} = :{column}" for column in wanted if column != leading)


class _Search(NamedTuple):
    """Rows in the order of `position` (`seq` or `id`), and what must hold for them besides."""

    position: str
    rows: str
    others: str
    values: Mapping[str, Any]


def _page(search: _Search, limit: int, connection: sqlite3.Connection) -> EventPage[Recorded]:
    """Examines only a limited part."""
    position, rows, others, values = search
    most = MOST_EXAMINED if others else limit
    candidates = f"SELECT id FROM events {rows} LIMIT :most"  # noqa: S608
    values = {**values, "most": most, "limit": limit}
    # One by one and in their order, until the page is full: the others are not looked at.
    found = connection.execute(
        f"SELECT {RECORDED} FROM ({candidates}) AS candidate CROSS JOIN events USING (id)"  # noqa: S608
        f" WHERE true{others} LIMIT :limit",
        values,
    ).fetchall()
    items = [Recorded(*row) for row in found]
    if len(items) == limit:
        return EventPage(items, getattr(items[-1], position))
    if not others:
        return EventPage(items, None)
    examined, last = connection.execute(
        f"SELECT count(*), max({position}) FROM events WHERE id IN ({candidates})",  # noqa: S608
        values,
    ).fetchone()
    return EventPage(items, last if examined == most else None)


async def incarnation(database: Database, session_key: str) -> int | None:
    """The chain's incarnation of its session id, which events of earlier versions lack."""

    def read(connection: sqlite3.Connection) -> int | None:
        row = connection.execute(_INCARNATION, (session_key,)).fetchone()
        return None if row is None else int(row[0])

    return await database.browse(read)


async def latest_denials(database: Database, session_key: str, limit: int) -> list[Event]:
    """The latest events of one chain with a decision to deny, newest first."""
    return await _select(
        database,
        f"{_EVENT} WHERE session_key = ? AND decision = 'deny' ORDER BY seq DESC LIMIT ?",
        (session_key, limit),
    )


async def latest_of(database: Database, session_key: str, operation: str) -> Event | None:
    """The latest event of one chain with that operation."""
    rows = of_operation(operation) or "WHERE session_key = :key AND operation = :operation"
    found = await _select(
        database,
        f"{_EVENT} {rows} ORDER BY id DESC LIMIT 1",
        {"key": session_key, "operation": operation},
    )
    return found[0] if found else None


async def counts(database: Database, session_key: str) -> dict[tuple[str, str], int]:
    """The numbers of a chain's events by operation and decision (empty: none)."""
    rows = await database.read(
        lambda connection: connection.execute(_COUNTS, (session_key,)).fetchall()
    )
    return {(operation, decision): events for operation, decision, events, _ in rows}


async def stats(database: Database, session_key: str) -> ChainStats:
    """Counts over a chain."""

    rows = await database.browse(
        lambda connection: connection.execute(_COUNTS, (session_key,)).fetchall()
    )
    operations, decisions = Counter[str](), Counter[str]()
    for operation, decision, count, _ in rows:
        operations[operation] += count
        if decision:
            decisions[decision] += count
    tokens = sum(tokens for *_, tokens in rows)
    return ChainStats(operations.total(), dict(operations), dict(decisions), tokens)


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
        # All at once: a broken event must not leave an open statement, which would keep the old
        # view.
        return [full_event(*row) for row in connection.execute(statement, values).fetchall()]

    return await database.browse(read)
