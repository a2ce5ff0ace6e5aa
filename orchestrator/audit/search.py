"""Finds events over all chains, newest first, without ever reading more than a part at once.

Session, rule, actor, operation and a decision to deny have indexes that lead to what is wanted;
so have times of which there are not more events, and owners whose sessions do not have more, than
one search looks at. Whatever else there is, a text above all, is looked for in what those leave,
part by part. Archived chains are not searched.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from orchestrator.audit.recorded import full_event
from orchestrator.store.database import Database
from paddock.audit.chain import Event

# Events that one search looks at; one that finds less says where to go on.
MOST_EXAMINED = 50_000
_OF_SESSION = (
    "SELECT key FROM sessions WHERE id = :session AND id = :session COLLATE BINARY"
    " AND (:incarnation IS NULL OR incarnation = :incarnation)"
)
_OWNED = "session_key IN (SELECT key FROM sessions WHERE owner = :{})"
_INCARNATION = "(SELECT incarnation FROM sessions WHERE key = session_key)"
# What every event takes of a chain's `audit_bytes`, at least.
_LEAST_EVENT_BYTES = 512
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
    """Events, and the id before which the search goes on; None: nothing older is left.

    `archived` is of how many sessions, among those that were wanted, the chains were not searched.
    """

    items: list[Event]
    next: int | None
    archived: int


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
    conditions = _conditions(wanted, partial(_is_small, connection))
    first, last = _range(connection, wanted)
    if before is not None:
        last = min(last, before - 1)
    oldest = first
    if wanted.session is not None:
        first = _floor(connection, wanted, first, last)
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
        f"SELECT id, body, prev_hash, hash, {_INCARNATION}"  # noqa: S608
        f" FROM events WHERE id IN ({candidates}){filters} ORDER BY id DESC LIMIT :limit",
        values,
    ).fetchall()
    items = list(_readable(rows))
    archived = _archived(connection, wanted)
    if len(rows) == limit:
        return Found(items, rows[-1][0], archived)
    if first > oldest:
        return Found(items, first, archived)
    examined, lowest = connection.execute(
        f"SELECT count(*), min(id) FROM ({candidates})",  # noqa: S608
        values,
    ).fetchone()
    return Found(items, lowest if examined == MOST_EXAMINED else None, archived)


def _floor(connection: sqlite3.Connection, wanted: Search, first: int, last: int) -> int:
    """The lowest id down to which one search looks at the chains of sessions of one id.

    Their events come from the index chain by chain, and would all be sorted otherwise.
    """
    values = {"session": wanted.session, "incarnation": wanted.incarnation}
    keys = connection.execute(_OF_SESSION, values).fetchall()
    most = max(1, MOST_EXAMINED // max(1, len(keys)))
    for (key,) in keys:
        lowest, count = connection.execute(
            "SELECT min(id), count(*) FROM (SELECT id FROM events INDEXED BY events_chain"
            " WHERE session_key = ? AND id >= ? AND id <= ? ORDER BY id DESC LIMIT ?)",
            (key, first, last, most),
        ).fetchone()
        if count == most:
            first = lowest
    return first


def _readable(rows: list[tuple[int, str, str, str, int | None]]) -> Iterator[Event]:
    """The events without those that somebody has broken, which verifying finds.

    Those of earlier versions get the incarnation of their chain.
    """
    for _, text, prev_hash, event_hash, incarnation in rows:
        with suppress(ValueError):
            yield {"incarnation": incarnation} | full_event(text, prev_hash, event_hash)


def _archived(connection: sqlite3.Connection, wanted: Search) -> int:
    """Of how many sessions the chains are archived that the search would have looked at."""
    (count,) = connection.execute(
        "SELECT count(*) FROM archives LEFT JOIN sessions ON sessions.key = session_key"
        " WHERE (:session IS NULL OR session_id = :session)"
        " AND (:incarnation IS NULL OR incarnation = :incarnation)"
        " AND (:owner IS NULL OR archives.owner = :owner)"
        " AND (:visible_to IS NULL OR archives.owner = :visible_to)"
        # What was on record after it was archived is none of its events.
        " AND (:since IS NULL OR archived_at >= :since)"
        " AND (:until IS NULL OR coalesce(sessions.created_at, '') <= :until)",
        {
            "session": wanted.session,
            "incarnation": wanted.incarnation,
            "owner": wanted.owner,
            "visible_to": wanted.visible_to,
            "since": wanted.since,
            "until": wanted.until,
        },
    ).fetchone()
    return int(count)


def _is_small(connection: sqlite3.Connection, owner: str) -> bool:
    """Whether all events of a key's sessions are not more than one search looks at."""
    (size,) = connection.execute(
        "SELECT coalesce(sum(audit_bytes), 0) FROM sessions WHERE owner = ?", (owner,)
    ).fetchone()
    return bool(size <= MOST_EXAMINED * _LEAST_EVENT_BYTES)


def _conditions(wanted: Search, is_small: Callable[[str], bool]) -> list[_Condition]:
    """Those that have an index first, the most selective before the others.

    `is_small` says whether a key's sessions have few events.
    """
    found = []
    if wanted.session is not None:
        found.append(
            _Condition(
                f"session_key IN ({_OF_SESSION})",
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
            index = "events_chain" if is_small(owner) else None
            found.append(_Condition(_OWNED.format(name), {name: owner}, index))
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
    """The lowest and the highest id of events of that time, read from the index of times.

    Of more events than one search looks at it is not known: each is held to the times then.
    """
    if wanted.since is None and wanted.until is None:
        return 1, _MOST_ID
    lowest, highest, count = connection.execute(
        "SELECT min(id), max(id), count(*) FROM (SELECT id FROM events INDEXED BY events_time"
        " WHERE time >= :since AND time <= :until LIMIT :most)",
        {
            "since": wanted.since or "",
            "until": wanted.until or "~",
            "most": MOST_EXAMINED + 1,
        },
    ).fetchone()
    if count > MOST_EXAMINED:
        return 1, _MOST_ID
    return (1, 0) if lowest is None else (lowest, highest)
