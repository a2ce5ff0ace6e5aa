"""Verifies the chains in the database, including columns."""

import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Any

from orchestrator.ground.errors import ValidationError
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.writer import chain_head, event_columns
from paddock.audit.chain import Anchor, BrokenError, Chain, Event, Verdict, parse

# So many hold up other readers for less than ten milliseconds.
_PAGE = 100
_ROWS = """
    SELECT body, prev_hash, hash, id, session_id, seq, time, operation, decision, turn,
           command_id, agent_boot_id, agent_seq
    FROM events WHERE session_key = ? AND seq > ? ORDER BY seq LIMIT ?
"""


async def verify(
    database: Database, session_key: str, seq: int | None = None, hash: str | None = None
) -> Verdict:
    """Recomputes a chain from the database, including columns, up to its present end.

    `seq` and `hash` are an anchor: both or neither. Raises: ValidationError.
    """
    chain = Chain(_anchor(seq, hash))
    end = (await database.browse(lambda connection: chain_head(connection, session_key))).seq
    after = 0
    while after < end and not chain.broken:
        follow = partial(_follow_page, chain=chain, session_key=session_key, after=after)
        last = await database.browse(follow)
        if last == after:
            break
        after = last
    return chain.verdict()


def verify_all(connection: sqlite3.Connection) -> Iterator[tuple[str, Verdict]]:
    """Recomputes every chain of the database, one by one, with its key. It blocks."""
    keys = connection.execute("SELECT DISTINCT session_key FROM events ORDER BY session_key")
    for (key,) in keys.fetchall():
        chain, after = Chain(), -1
        while not chain.broken:
            last = _follow_page(connection, chain, key, max(after, 0))
            if last <= after:
                break
            after = last
        yield key, chain.verdict()


def _anchor(seq: int | None, event_hash: str | None) -> Anchor | None:
    if seq is None and event_hash is None:
        return None
    if seq is None or event_hash is None:
        missing = "seq" if seq is None else "hash"
        raise ValidationError(f"{missing} is missing: seq and hash need each other", field=missing)
    if seq < 1:
        raise ValidationError("seq must be at least 1", field="seq")
    return Anchor(seq, event_hash)


def _follow_page(connection: sqlite3.Connection, chain: Chain, session_key: str, after: int) -> int:
    """Follows a page of rows up to the first bad one; returns the last one's `seq`."""
    last = after
    for row in connection.execute(_ROWS, (session_key, after, _PAGE)).fetchall():
        last = row[5]
        try:
            chain.follow(_stored(row), row[0])
        except BrokenError as error:
            chain.refuse(str(error))
        if chain.broken:
            break
    return last


def _stored(row: tuple[Any, ...]) -> Event:
    """The event of a row, whose columns must agree with its text."""
    text, prev_hash, event_hash, *columns = row
    body = parse(text)
    try:
        agree = event_columns(body) == tuple(columns)
    except (LookupError, TypeError, AttributeError) as error:
        raise BrokenError(f"lacks a member: {error}") from None
    if not agree:
        raise BrokenError("a column does not match the event")
    return body | {"prev_hash": prev_hash, "hash": event_hash}
