"""What must be in the search index after a kill; each complaint is one line."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from orchestrator.record.audit.writer import last_id
from orchestrator.record.search_index.index_file import WORDS
from tests.support.until import until

_MEMBER = "iif(json_valid(body), json_extract(body, '$.{}'), NULL)"
# What the index says of each event, and what the ledger says of those up to its position. Chains
# that are archived are no longer in the ledger as a whole.
_INDEXED = f"""
    SELECT id, {", ".join(f"(SELECT word FROM words WHERE number = {kind})" for kind in WORDS)}
    FROM entries
    WHERE NOT EXISTS (
        SELECT 1 FROM archives JOIN words ON word = session_key WHERE number = chain
    )
"""
_RECORDED = f"""
    SELECT events.id, session_key, sessions.id, owner, operation, decision,
           {_MEMBER.format("actor")}, {_MEMBER.format("rule")}
    FROM events LEFT JOIN sessions ON sessions.key = session_key
    WHERE events.id <= (SELECT position FROM state)
    AND session_key NOT IN (SELECT session_key FROM archives)
"""
_ARCHIVED = f"""
    SELECT entries.id FROM entries
    JOIN words ON number = chain
    JOIN events ON events.operation = 'audit.archived'
        AND {_MEMBER.format("args.session_key")} = word AND entries.id < events.id
    WHERE events.id <= (SELECT position FROM state)
    AND chain NOT IN (SELECT chain FROM archived)
"""
_OUTSIDE = """
    SELECT entries.id FROM entries JOIN events USING (id)
    CROSS JOIN (SELECT DISTINCT size FROM spans) AS sizes
    LEFT JOIN spans ON spans.size = sizes.size AND spans.number = id / sizes.size
    WHERE time NOT BETWEEN coalesce(earliest, '~') AND coalesce(latest, '')
"""
_MOST_SHOWN = 3


async def examine_index(state_dir: Path) -> list[str]:
    """Whether the index has caught up with what the ledger had, and is whole."""
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        end = last_id(connection)
    try:
        await until(lambda: position(state_dir) >= end)
    except TimeoutError:
        return [f"the search index stays at event {position(state_dir)}, the ledger is at {end}"]
    return await asyncio.to_thread(lambda: list(differences(state_dir)))


def position(state_dir: Path) -> int:
    """The last event that is indexed; 0 if there is no index yet."""
    try:
        with closing(_open(state_dir)) as connection:
            return int(connection.execute("SELECT position FROM state").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def differences(state_dir: Path) -> Iterator[str]:
    """Whether the index has each event up to its position with its words, and nothing else.

    A control plane may use it meanwhile: the ledger is read after the index, and only grows.
    """
    with closing(_open(state_dir)) as connection:
        connection.execute("BEGIN")
        indexed = set(connection.execute(_INDEXED))
        counted = dict(connection.execute("SELECT number, entries FROM words"))
        entries = connection.execute(f"SELECT {', '.join(WORDS)} FROM entries").fetchall()
        recorded = set(connection.execute(_RECORDED))
        archived = connection.execute(_ARCHIVED).fetchall()
        outside = connection.execute(_OUTSIDE).fetchall()
    for what, rows in (
        ("misses", recorded - indexed),
        ("invents", indexed - recorded),
        ("still has, of archived chains,", archived),
        ("has outside of their spans of time", outside),
    ):
        if rows:
            shown = sorted(rows, key=lambda row: int(row[0]))[:_MOST_SHOWN]
            yield f"the search index {what} {len(rows)} events, such as {shown}"
    numbers = Counter(number for row in entries for number in row if number is not None)
    if wrong := [number for number, count in counted.items() if numbers[number] != count]:
        yield f"the search index counts {len(wrong)} words wrongly"


def _open(state_dir: Path) -> sqlite3.Connection:
    uri = f"file:{state_dir}/{{}}?mode=ro"
    connection = sqlite3.connect(
        uri.format("search.db"), uri=True, timeout=30, isolation_level=None
    )
    connection.execute("ATTACH ? AS ledger", (uri.format("paddock.db"),))
    return connection
