"""Searches all chains for events, newest first, reading a limited part per call.

Session, owner, rule, actor, operation and decision are words of the index. The rarest of them
leads: its entries are examined by slices, and the connection is given back in between. The events
behind the index's position are examined in the ledger. In either case the ledger decides: an event
is found only if its own row has all that was asked for. Archived chains are not searched.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

from orchestrator.record.audit.recorded_event import full_event, veiled
from orchestrator.record.search_index.search_index import SearchIndex
from orchestrator.record.search_index.spans import ids_of_time
from paddock.audit.chain import Event
from paddock.contract.audit import MOST_ARCHIVED

# Events examined per search; a search that finds fewer returns where to continue.
MOST_EXAMINED = 50_000
# Events examined at once: about a millisecond.
SLICE = 1000

_OF_SESSION = (
    "SELECT key FROM sessions WHERE id = :session AND id = :session COLLATE BINARY"
    " AND (:incarnation IS NULL OR incarnation = :incarnation)"
)
# Looked up for each event: a list of the owner's sessions would be made for each slice.
_OWNED = "(SELECT owner FROM sessions WHERE key = session_key) = :{}"
_OWNER = "(SELECT owner FROM sessions WHERE key = session_key)"
_INCARNATION = "(SELECT incarnation FROM sessions WHERE key = session_key)"
_CHAIN = f"SELECT id FROM events WHERE session_key = ({_OF_SESSION}) ORDER BY seq"  # noqa: S608
_MOST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Search conditions; those that are None do not apply.

    `session` is an id, `owner` the name of a key, `visible_to` the key whose sessions the caller
    may see. `text` is searched in the whole event, ignoring the case of ASCII letters. Times are
    RFC 3339 in UTC with microseconds, both inclusive. `whole_for` is no condition: events of other
    owners' sessions are found without what these contain; None: all are whole.
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
    whole_for: str | None = None


class Found(NamedTuple):
    """Events, and the id before which the search continues; None: nothing older is left.

    `archived` is the number of matching sessions whose archived chains were not searched.
    """

    items: list[Event]
    next: int | None
    archived: int


class _Condition(NamedTuple):
    """`sql` is about the ledger's row; `kind` and `word` are how the index knows it."""

    sql: str
    values: dict[str, Any]
    kind: str | None = None
    word: str | None = None


class _Bounds(NamedTuple):
    """How many events of a slice may be found, and how many examined."""

    most: int
    slice: int


# Its id, text and hashes, its chain's incarnation, and the owner of its session.
_Row = tuple[int, str, str, str, int | None, str | None]


class _Slice(NamedTuple):
    """Rows that were found, how many were examined, and the id up to which to go on (None: end)."""

    rows: list[_Row]
    examined: int
    last: int | None


class _Candidates(NamedTuple):
    """Selects events to examine, newest first: ids from `first` to `last`, at most a slice.

    `rest` are conditions on the entries that it has.
    """

    sql: str
    values: dict[str, Any]
    rest: tuple[str, ...] = ()


async def search(
    index: SearchIndex, wanted: Search, before: int | None = None, limit: int = 100
) -> Found:
    """Events with a lower `id` than `before`, newest first. Raises: StoreError."""
    await index.reach()
    last: int | None = _MOST_ID if before is None else before - 1
    rows: list[_Row] = []
    examined = 0
    while last is not None and len(rows) < limit and examined < MOST_EXAMINED:
        bounds = _Bounds(limit - len(rows), min(SLICE, MOST_EXAMINED - examined))
        part = await index.browse(partial(_slice, wanted, last, bounds))
        rows += part.rows
        examined += part.examined
        last = part.last
    archived = await index.browse(lambda connection: _archived(connection, wanted))
    return Found(
        list(_readable(rows, wanted.whole_for)), None if last is None else last + 1, archived
    )


def _slice(wanted: Search, last: int, bounds: _Bounds, connection: sqlite3.Connection) -> _Slice:
    """Examines the next events: those that are not indexed yet, then those that are."""
    conditions = _conditions(wanted)
    first, last = _of_incarnation(connection, wanted, last)
    (position,) = connection.execute("SELECT position FROM state").fetchone()
    if last > position:
        found = _examine(connection, _scan(max(first, position + 1), last), conditions, bounds)
        if found.examined:
            return found if found.last is not None else found._replace(last=position)
    last = min(last, position)
    first, last = ids_of_time(connection, wanted.since, wanted.until, first, last)
    return _examine(connection, _indexed(connection, conditions, first, last), conditions, bounds)


def _examine(
    connection: sqlite3.Connection,
    candidates: _Candidates,
    conditions: Sequence[_Condition],
    bounds: _Bounds,
) -> _Slice:
    values = {**candidates.values, **bounds._asdict()}
    for condition in conditions:
        values |= condition.values
    filters = " AND ".join((*candidates.rest, *(one.sql for one in conditions)))
    # The candidates come one by one, newest first, until a page is found: a cross join keeps their
    # order, and an ORDER BY of its own would have all of them read and sorted.
    rows = connection.execute(
        f"SELECT events.id, body, prev_hash, hash, {_INCARNATION}, {_OWNER}"  # noqa: S608
        f" FROM ({candidates.sql}) AS entry CROSS JOIN events USING (id)"
        f" WHERE {filters or 'true'} LIMIT :most",
        values,
    ).fetchall()
    if len(rows) == bounds.most:
        return _Slice(rows, bounds.most, rows[-1][0] - 1)
    examined, lowest = connection.execute(
        f"SELECT count(*), min(id) FROM ({candidates.sql})",  # noqa: S608
        values,
    ).fetchone()
    return _Slice(rows, examined, lowest - 1 if examined == bounds.slice else None)


def _scan(first: int, last: int) -> _Candidates:
    """All events of the ledger."""
    sql = (
        "SELECT id FROM ledger.events WHERE id >= :first AND id <= :last"
        " ORDER BY id DESC LIMIT :slice"
    )
    return _Candidates(sql, {"first": first, "last": last})


def _indexed(
    connection: sqlite3.Connection, conditions: Sequence[_Condition], first: int, last: int
) -> _Candidates:
    """The entries that have the rarest word; all events if the index has no such condition."""
    words = []
    for condition in conditions:
        if condition.kind is not None:
            row = connection.execute(
                "SELECT entries, number FROM words WHERE kind = ? AND word = ?",
                (condition.kind, condition.word),
            ).fetchone()
            words.append((*(row or (0, -1)), condition.kind))
    if not words:
        return _scan(first, last)
    words.sort()
    _, _, leading = words[0]
    sql = (
        f"SELECT * FROM entries INDEXED BY by_{leading}"  # noqa: S608
        f" WHERE {leading} = :word_0 AND id >= :first AND id <= :last"
        " ORDER BY id DESC LIMIT :slice"
    )
    values: dict[str, Any] = {f"word_{n}": number for n, (_, number, _) in enumerate(words)}
    rest = (f"entry.{kind} = :word_{n}" for n, (_, _, kind) in enumerate(words) if n)
    return _Candidates(sql, {**values, "first": first, "last": last}, tuple(rest))


def _of_incarnation(connection: sqlite3.Connection, wanted: Search, last: int) -> tuple[int, int]:
    """The ids up to `last` between the first and the last event of that incarnation."""
    if wanted.session is None or wanted.incarnation is None:
        return 1, last
    values = {"session": wanted.session, "incarnation": wanted.incarnation}
    first = connection.execute(f"{_CHAIN} LIMIT 1", values).fetchone()
    newest = connection.execute(f"{_CHAIN} DESC LIMIT 1", values).fetchone()
    return (1, 0) if first is None else (first[0], min(newest[0], last))


def _readable(rows: list[_Row], whole_for: str | None) -> Iterator[Event]:
    """The events without corrupted ones, which verification finds.

    Those of earlier versions get the incarnation of their chain.
    """
    for _, text, prev_hash, event_hash, incarnation, owner in rows:
        with suppress(ValueError):
            event = {"incarnation": incarnation} | full_event(text, prev_hash, event_hash)
            of_session = event["session_id"] is not None
            others = whole_for is not None and of_session and owner != whole_for
            yield veiled(event) if others else event


def _archived(connection: sqlite3.Connection, wanted: Search) -> int:
    """The number of sessions with archived chains that the search would have examined.

    It counts a limited number, because there may be any number of them.
    """
    conditions = [
        sql
        for value, sql in (
            (wanted.session, "session_id = :session"),
            (wanted.incarnation, "incarnation = :incarnation"),
            (wanted.owner, "archives.owner = :owner"),
            (wanted.visible_to, "archives.owner = :visible_to"),
            # Events recorded after the archiving are not among its events.
            (wanted.since, "archived_at >= :since"),
            (wanted.until, "coalesce(sessions.created_at, '') <= :until"),
        )
        if value is not None
    ]
    (count,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM archives"  # noqa: S608
        " LEFT JOIN sessions ON sessions.key = session_key"
        f" WHERE {' AND '.join(conditions) or 'true'} LIMIT :most)",
        asdict(wanted) | {"most": MOST_ARCHIVED},
    ).fetchone()
    return int(count)


def _conditions(wanted: Search) -> list[_Condition]:
    found = []
    if wanted.session is not None:
        values = {"session": wanted.session, "incarnation": wanted.incarnation}
        sql = f"session_key IN ({_OF_SESSION})"
        found.append(_Condition(sql, values, "session", wanted.session))
    for name, owner in (("owner", wanted.owner), ("visible_to", wanted.visible_to)):
        if owner is not None:
            sql = _OWNED.format(name)
            found.append(_Condition(sql, {name: owner}, "owner", owner))
    for name, value in (("rule", wanted.rule), ("actor", wanted.actor)):
        if value is not None:
            sql = f"iif(json_valid(body), json_extract(body, '$.{name}'), NULL) = :{name}"
            found.append(_Condition(sql, {name: value}, name, value))
    for name, value in (("operation", wanted.operation), ("decision", wanted.decision)):
        if value is not None:
            found.append(_Condition(f"events.{name} = :{name}", {name: value}, name, value))
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
