"""The times of events by spans of their ids: a search by time passes over spans of other times."""

import sqlite3

# Events of a span. Spans of the larger size are looked at first, so that a look at ten million
# events takes a hundred rows of each.
SIZES = (100_000, 1000)

SPANS_SCHEMA = """
-- The times of the events size * number and the following.
CREATE TABLE spans (
    size     INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    earliest TEXT NOT NULL,
    latest   TEXT NOT NULL,
    PRIMARY KEY (size, number)
) WITHOUT ROWID;
"""
# Of the events that are being indexed.
ENTER_SPANS = tuple(
    f"""
    INSERT INTO spans SELECT {size}, id / {size}, min(time), max(time) FROM fresh WHERE true
    GROUP BY 2 ON CONFLICT (size, number) DO UPDATE
    SET earliest = min(earliest, excluded.earliest), latest = max(latest, excluded.latest)
    """  # noqa: S608 - ours
    for size in SIZES
)
_LAST = (
    "SELECT number FROM spans WHERE size = ? AND number <= ? AND earliest <= ?"
    " ORDER BY number DESC LIMIT 1"
)
_FIRST = (
    "SELECT number FROM spans WHERE size = ? AND number >= ? AND latest >= ?"
    " ORDER BY number LIMIT 1"
)


def ids_of_time(
    connection: sqlite3.Connection, since: str | None, until: str | None, first: int, last: int
) -> tuple[int, int]:
    """The indexed ids between these, without spans at either end that are of other times."""
    for size in SIZES:
        if until is not None:
            row = connection.execute(_LAST, (size, last // size, until)).fetchone()
            last = min(last, 0 if row is None else row[0] * size + size - 1)
        if since is not None:
            row = connection.execute(_FIRST, (size, first // size, since)).fetchone()
            first = max(first, last + 1 if row is None else row[0] * size)
    return first, last
