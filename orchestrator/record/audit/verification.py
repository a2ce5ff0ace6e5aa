"""Verifies the chains in the database, including columns."""

import sqlite3
from collections.abc import Iterator
from typing import Any

from orchestrator.ground.errors import ValidationError
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.writer import chain_head, event_columns
from paddock.audit.chain import Anchor, BrokenError, Chain, Event, Verdict, parse

# So many hold up other readers for less than ten milliseconds.
PAGE = 100
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
    noted = anchor(seq, hash)
    end = (await database.browse(lambda connection: chain_head(connection, session_key))).seq
    chain = FollowedChain(session_key, end, noted)
    while await database.browse(chain.follow):
        pass
    return chain.verdict()


class FollowedChain:
    """A chain that is followed from the database, page by page, up to the `end` that it had."""

    def __init__(self, session_key: str, end: int, noted: Anchor | None) -> None:
        self._chain = Chain(noted)
        self._session_key = session_key
        self._end = end
        self._after = 0

    def follow(self, connection: sqlite3.Connection) -> bool:
        """Follows a page; returns whether there is another. Raises: sqlite3.Error."""
        if self._after >= self._end or self._chain.broken:
            return False
        last = _follow_page(connection, self._chain, self._session_key, self._after)
        if last == self._after:
            return False
        self._after = last
        return last < self._end and not self._chain.broken

    def verdict(self) -> Verdict:
        """The verdict, after the last page."""
        return self._chain.verdict()


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


def anchor(seq: int | None, event_hash: str | None) -> Anchor | None:
    """The noted position; None without one. Raises: ValidationError."""
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
    for row in connection.execute(_ROWS, (session_key, after, PAGE)).fetchall():
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
