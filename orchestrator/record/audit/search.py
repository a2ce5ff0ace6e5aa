"""Searches all chains for events, newest first, reading a limited part per call.

Session, owner, rule, actor, operation and a decision to deny have indexes. That of times is used if
it leads to no more events than one search examines. Other conditions, above all a text, are checked
on the remaining events, part by part. Archived chains are not searched.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.ground.store.database import Database
from orchestrator.record.audit.recorded_event import full_event
from paddock.audit.chain import Event

# Events examined per search; a search that finds fewer returns where to continue.
MOST_EXAMINED = 50_000
_OF_SESSION = (
    "SELECT key FROM sessions WHERE id = :session AND id = :session COLLATE BINARY"
    " AND (:incarnation IS NULL OR incarnation = :incarnation)"
)
_OWNED = "SELECT key FROM sessions WHERE owner = :{}"
_INCARNATION = "(SELECT incarnation FROM sessions WHERE key = session_key)"
# The newest events of several chains. The index has them chain by chain; the queue of the recursion
# (its ORDER BY) merges them, so that no more are read than are taken.
_MERGED = (
    "WITH RECURSIVE newest (key, id) AS ("
    "SELECT key, (SELECT max(id) FROM events INDEXED BY events_chain"
    " WHERE session_key = key AND id >= :first AND id <= :last) FROM ({})"
    " UNION ALL SELECT key, (SELECT max(events.id) FROM events INDEXED BY events_chain"
    " WHERE session_key = newest.key AND events.id >= :first AND events.id < newest.id)"
    " FROM newest WHERE id IS NOT NULL ORDER BY 2 DESC LIMIT :most"
    ") SELECT id FROM newest WHERE id IS NOT NULL"
)
_MOST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Search conditions; those that are None do not apply.

    `session` is an id, `owner` the name of a key, `visible_to` the key whose sessions the caller
    may see. `text` is searched in the whole event, ignoring the case of ASCII letters. Times are
    RFC 3339 in UTC with microseconds, both inclusive.
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
    """Events, and the id before which the search continues; None: nothing older is left.

    `archived` is the number of matching sessions whose archived chains were not searched.
    """

    items: list[Event]
    next: int | None
    archived: int


class _Condition(NamedTuple):
    """`led_by` is its index, `chains` selects the keys of its sessions."""

    sql: str
    values: dict[str, Any]
    led_by: str | None = None
    chains: str | None = None

    @classmethod
    def of(cls, chains: str, values: dict[str, Any]) -> "_Condition":
        """That an event is in one of those chains."""
        return cls(f"session_key IN ({chains})", values, chains=chains)

    @property
    def leads(self) -> bool:
        return self.led_by is not None or self.chains is not None


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
    # The most selective condition with an index leads; the others are checked one by one.
    leading = next((one for one in conditions if one.leads), None)
    values: dict[str, Any] = {"first": first, "last": last, "most": MOST_EXAMINED, "limit": limit}
    for condition in conditions:
        values |= condition.values
    candidates = _candidates(leading)
    filters = " AND ".join(one.sql for one in conditions if one is not leading)
    # The candidates come one by one, newest first, until a page is found: a cross join keeps their
    # order, and an ORDER BY of its own would have all of them read and sorted.
    rows = connection.execute(
        f"SELECT id, body, prev_hash, hash, {_INCARNATION}"  # noqa: S608
        f" FROM ({candidates}) CROSS JOIN events USING (id)"
        f" WHERE {filters or 'true'} LIMIT :limit",
        values,
    ).fetchall()
    items = list(_readable(rows))
    archived = _archived(connection, wanted)
    if len(rows) == limit:
        return Found(items, rows[-1][0], archived)
    examined, lowest = connection.execute(
        f"SELECT count(*), min(id) FROM ({candidates})",  # noqa: S608
        values,
    ).fetchone()
    return Found(items, lowest if examined == MOST_EXAMINED else None, archived)


def _candidates(leading: _Condition | None) -> str:
    """Selects the ids of the events to examine, newest first."""
    if leading is not None and leading.chains is not None:
        return _MERGED.format(leading.chains)
    source = "events" if leading is None else f"events INDEXED BY {leading.led_by}"
    led = "" if leading is None else f" AND {leading.sql}"
    return (
        f"SELECT id FROM {source} WHERE id >= :first AND id <= :last{led}"  # noqa: S608
        " ORDER BY id DESC LIMIT :most"
    )


def _readable(rows: list[tuple[int, str, str, str, int | None]]) -> Iterator[Event]:
    """The events without corrupted ones, which verification finds.

    Those of earlier versions get the incarnation of their chain.
    """
    for _, text, prev_hash, event_hash, incarnation in rows:
        with suppress(ValueError):
            yield {"incarnation": incarnation} | full_event(text, prev_hash, event_hash)


def _archived(connection: sqlite3.Connection, wanted: Search) -> int:
    """The number of sessions with archived chains that the search would have examined."""
    (count,) = connection.execute(
        "SELECT count(*) FROM archives LEFT JOIN sessions ON sessions.key = session_key"
        " WHERE (:session IS NULL OR session_id = :session)"
        " AND (:incarnation IS NULL OR incarnation = :incarnation)"
        " AND (:owner IS NULL OR archives.owner = :owner)"
        " AND (:visible_to IS NULL OR archives.owner = :visible_to)"
        # Events recorded after the archiving are not among its events.
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


def _conditions(wanted: Search) -> list[_Condition]:
    """The conditions: those with an index come first, the most selective ahead of the others."""
    found = []
    if wanted.session is not None:
        values = {"session": wanted.session, "incarnation": wanted.incarnation}
        found.append(_Condition.of(_OF_SESSION, values))
    for name, value in (("rule", wanted.rule), ("actor", wanted.actor)):
        if value is not None:
            column = f"iif(json_valid(body), json_extract(body, '$.{name}'), NULL)"
            found.append(_Condition(f"{column} = :{name}", {name: value}, f"events_{name}"))
    if wanted.operation is not None:
        sql = "operation = :operation"
        found.append(_Condition(sql, {"operation": wanted.operation}, "events_operations"))
    if wanted.decision is not None:
        sql, index = "decision = :decision", None
        if wanted.decision in ("deny", "pending"):  # the index is for these two, in these words
            sql, index = f"{sql} AND decision IN ('deny', 'pending')", "events_decision"
        found.append(_Condition(sql, {"decision": wanted.decision}, index))
    for name, owner in (("owner", wanted.owner), ("visible_to", wanted.visible_to)):
        if owner is not None:
            found.append(_Condition.of(_OWNED.format(name), {name: owner}))
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
    """A LIKE pattern for an event's canonical text that contains the text."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    for special in "\\%_":
        written = written.replace(special, "\\" + special)
    return f"%{written}%"


def _range(connection: sqlite3.Connection, wanted: Search) -> tuple[int, int]:
    """The lowest and the highest id of events in that time, from the index of times.

    It is unknown if there are more events than one search examines; then each event's time is
    checked.
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
