"""Finds events over all chains, newest first, without ever reading more than a part at once."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.audit.events import Event, full_event
from orchestrator.store.database import Database

# Events that one search looks at; one that finds less says where to go on.
MOST_EXAMINED = 50_000
_OWNED = "session_key IN (SELECT key FROM sessions WHERE owner = :{})"
_MOST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is wanted; what is None does not matter.

    `session` is an id, `owner` the name of a key, `visible_to` the one whose sessions the
    caller may see. `text` is looked for in the whole event, without regard to the case of
    ASCII letters. Times are RFC 3339 in UTC with microseconds, both included.
    """

    session: str | None = None
    incarnation: int | None = None
    owner: str | None = None
    visible_to: str | None = None
    operation: str | None = None
    decision: str | None = None
    rule: str | None = None
    actor: str | None = None
    text: str | None = None
    since: str | None = None
    until: str | None = None


class Found(NamedTuple):
    """Events, and the id before which the search goes on; None: nothing older is left."""

    items: list[Event]
    next: int | None


class _Condition(NamedTuple):
    sql: str
    values: dict[str, Any]
    led_by: str | None = None


async def search(
    database: Database, wanted: Search, before: int | None = None, limit: int = 100
) -> Found:
    """Events with a lower `id` than `before`, newest first. Raises: StoreError."""
    return await database.browse(lambda connection: _search(connection, wanted, before, limit))


def _search(
    connection: sqlite3.Connection, wanted: Search, before: int | None, limit: int
) -> Found:
    conditions = _conditions(wanted)
    first, last = _range(connection, wanted)
    if before is not None:
        last = min(last, before - 1)
    # The most selective that has an index leads; the others are looked at one by one.
    leading = next((one for one in conditions if one.led_by is not None), None)
    values: dict[str, Any] = {"first": first, "last": last, "most": MOST_EXAMINED, "limit": limit}
    for condition in conditions:
        values |= condition.values
    source = "events" if leading is None else f"events INDEXED BY {leading.led_by}"
    led = "" if leading is None else f" AND {leading.sql}"
    candidates = (
        f"SELECT id FROM {source} WHERE id >= :first AND id <= :last{led}"  # noqa: S608
        " ORDER BY id DESC LIMIT :most"
    )
    filters = "".join(f" AND {one.sql}" for one in conditions if one is not leading)
    rows = connection.execute(
        f"SELECT id, body, prev_hash, hash FROM events WHERE id IN ({candidates}){filters}"  # noqa: S608
        " ORDER BY id DESC LIMIT :limit",
        values,
    ).fetchall()
    items = list(_readable(rows))
    if len(rows) == limit:
        return Found(items, rows[-1][0])
    examined, lowest = connection.execute(
        f"SELECT count(*), min(id) FROM ({candidates})",  # noqa: S608
        values,
    ).fetchone()
    return Found(items, lowest if examined == MOST_EXAMINED else None)


def _readable(rows: list[tuple[int, str, str, str]]) -> Iterator[Event]:
    """The events without those that somebody has broken, which verifying finds."""
    for _, *row in rows:
        with suppress(ValueError):
            yield full_event(*row)


def _conditions(wanted: Search) -> list[_Condition]:
    """Those that have an index first, the most selective before the others."""
    found = []
    if wanted.session is not None:
        found.append(
            _Condition(
                "session_key IN (SELECT key FROM sessions WHERE id = :session"
                " AND id = :session COLLATE BINARY"
                " AND (:incarnation IS NULL OR incarnation = :incarnation))",
                {"session": wanted.session, "incarnation": wanted.incarnation},
                "events_chain",
            )
        )
    for name, value in (("rule", wanted.rule), ("actor", wanted.actor)):
        if value is not None:
            column = f"iif(json_valid(body), json_extract(body, '$.{name}'), NULL)"
            found.append(_Condition(f"{column} = :{name}", {name: value}, f"events_{name}"))
    if wanted.operation is not None:
        sql = "operation = :operation"
        found.append(_Condition(sql, {"operation": wanted.operation}, "events_operations"))
    if wanted.decision is not None:
        sql, index = "decision = :decision", None
        if wanted.decision in ("deny", "pending"):  # the index is of those two, in these words
            sql, index = f"{sql} AND decision IN ('deny', 'pending')", "events_decision"
        found.append(_Condition(sql, {"decision": wanted.decision}, index))
    for name, owner in (("owner", wanted.owner), ("visible_to", wanted.visible_to)):
        if owner is not None:
            found.append(_Condition(_OWNED.format(name), {name: owner}))
    if wanted.text is not None:
        found.append(_Condition("body LIKE :text ESCAPE '\\'", {"text": _pattern(wanted.text)}))
    for name, sql, moment in (
        ("since", "time >= :since", wanted.since),
        ("until", "time <= :until", wanted.until),
    ):
        if moment is not None:
            found.append(_Condition(sql, {name: moment}))
    return found


def _pattern(text: str) -> str:
    """What is to be LIKE an event's canonical text where that has the text somewhere."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    for special in "\\%_":
        written = written.replace(special, "\\" + special)
    return f"%{written}%"


def _range(connection: sqlite3.Connection, wanted: Search) -> tuple[int, int]:
    """The lowest and the highest id of events of that time; read from the index of times."""
    if wanted.since is None and wanted.until is None:
        return 1, _MOST_ID
    lowest, highest = connection.execute(
        "SELECT min(id), max(id) FROM events INDEXED BY events_time"
        " WHERE time >= :since AND time <= :until",
        {"since": wanted.since or "", "until": wanted.until or "~"},
    ).fetchone()
    return (1, 0) if lowest is None else (lowest, highest)
