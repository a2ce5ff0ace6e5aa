"""Verifies audit chains: from an exported file, or in the database itself."""

import json
import sqlite3
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from orchestrator.audit.events import GENESIS_HASH, Event, canonical, chain_hash
from orchestrator.audit.writer import event_columns
from orchestrator.errors import ValidationError
from orchestrator.store.database import Database

_PAGE = 500
_HASHES = ("prev_hash", "hash")
_ROWS = """
    SELECT body, prev_hash, hash, id, session_id, seq, time, operation, decision, turn,
           command_id, agent_boot_id, agent_seq
    FROM events WHERE session_key = ? AND seq > ? ORDER BY seq LIMIT ?
"""


class Anchor(NamedTuple):
    """A place in the chain that was noted elsewhere: it tells when the end was cut off."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a chain is whole.

    `index` (from 0) and `reason` are of the first event that is not as it was recorded;
    `seq` and `hash` of the last one before it, which is the head when all are.
    """

    ok: bool
    index: int | None
    reason: str | None
    seq: int
    hash: str


class _BrokenError(Exception):
    """The event at hand is not the one that was recorded."""


class Chain:
    """Follows a chain event by event, and stops at the first that is wrong."""

    def __init__(self, anchor: Anchor | None = None, wanted: Container[int] = ()) -> None:
        """`wanted`: of which events `seen` gets the hashes, by seq."""
        self._anchor = anchor
        self._wanted = wanted
        self.seen: dict[int, str] = {}
        self._last_id = 0
        self._seq = 0
        self._hash = GENESIS_HASH
        self._reason: str | None = None

    @property
    def broken(self) -> bool:
        """Whether a wrong event has been seen."""
        return self._reason is not None

    def follow(self, event: str | Mapping[str, Any]) -> None:
        """Takes the next event: a line of an export, or an event as an object."""
        if self.broken:
            return
        try:
            self._check(_parse(event) if isinstance(event, str) else dict(event))
        except _BrokenError as error:
            self._reason = str(error)

    def refuse(self, reason: str) -> None:
        """Says that the next event is wrong for a reason that only the caller can see."""
        self._reason = self._reason or reason

    def verdict(self) -> Verdict:
        """The verdict, when there are no more events."""
        anchor = self._anchor
        if not self.broken and anchor is not None and anchor.seq > self._seq:
            self._reason = f"the chain ends before seq {anchor.seq}"
        index = self._seq if self.broken else None
        return Verdict(not self.broken, index, self._reason, self._seq, self._hash)

    def _check(self, event: Event) -> None:
        body = {name: value for name, value in event.items() if name not in _HASHES}
        prev_hash, event_hash = (event.get(name) for name in _HASHES)
        if event.get("seq") != self._seq + 1:
            raise _BrokenError(f"seq is not {self._seq + 1}")
        if prev_hash != self._hash:
            raise _BrokenError("prev_hash is not the hash of the event before")
        try:
            expected = chain_hash(self._hash, canonical(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise _BrokenError(f"has no canonical text: {error}") from None
        if event_hash != expected:
            raise _BrokenError("hash does not match the event")
        event_id = event.get("id")
        if not isinstance(event_id, int) or event_id <= self._last_id:
            raise _BrokenError("id is not higher than that of the event before")
        anchor = self._anchor
        if anchor is not None and anchor.seq == event["seq"] and anchor.hash != event_hash:
            raise _BrokenError("hash is not the one that was noted")
        self._last_id, self._seq, self._hash = event_id, self._seq + 1, expected
        if self._seq in self._wanted:
            self.seen[self._seq] = expected


def verify_chain(
    events: Iterable[str | Mapping[str, Any]], anchor: tuple[int, str] | None = None
) -> Verdict:
    """Recomputes a whole chain from its lines or events, first to last.

    Lines must be as exported, to the byte. Without an anchor, a chain whose end was cut
    off is not told from one that never had it.
    """
    chain = Chain(None if anchor is None else Anchor(*anchor))
    for event in events:
        chain.follow(event)
        if chain.broken:
            break
    return chain.verdict()


async def verify(
    database: Database, session_key: str, seq: int | None = None, hash: str | None = None
) -> Verdict:
    """Recomputes a chain from what the database holds, columns included.

    `seq` and `hash` are an anchor: both or neither. Raises: ValidationError.
    """
    chain = Chain(_anchor(seq, hash))
    after = 0
    while True:
        follow = partial(_follow_page, chain=chain, session_key=session_key, after=after)
        last = await database.browse(follow)
        if chain.broken or last == after:
            return chain.verdict()
        after = last


def _anchor(seq: int | None, event_hash: str | None) -> Anchor | None:
    if seq is None and event_hash is None:
        return None
    if seq is None or event_hash is None:
        missing = "seq" if seq is None else "hash"
        raise ValidationError(f"{missing} is missing: seq and hash go together", field=missing)
    if seq < 1:
        raise ValidationError("seq must be at least 1", field="seq")
    return Anchor(seq, event_hash)


def _follow_page(connection: sqlite3.Connection, chain: Chain, session_key: str, after: int) -> int:
    """Follows a page of rows, up to the first that is wrong; returns the last one's `seq`."""
    last = after
    for row in connection.execute(_ROWS, (session_key, after, _PAGE)).fetchall():
        last = row[5]
        try:
            chain.follow(_stored(row))
        except _BrokenError as error:
            chain.refuse(str(error))
        if chain.broken:
            break
    return last


def _stored(row: tuple[Any, ...]) -> Event:
    """The event of a row, whose columns must agree with its text."""
    text, prev_hash, event_hash, *columns = row
    body = _parse(text)
    try:
        agree = event_columns(body) == tuple(columns)
    except (LookupError, TypeError, AttributeError) as error:
        raise _BrokenError(f"lacks a member: {error}") from None
    if not agree:
        raise _BrokenError("a column does not match the event")
    return body | {"prev_hash": prev_hash, "hash": event_hash}


def _parse(text: str) -> Event:
    """The object of a canonical text: any other spelling of it is refused."""
    try:
        event = json.loads(text)
        if isinstance(event, dict) and canonical(event) == text.removesuffix("\n"):
            return event
    except (ValueError, RecursionError) as error:
        raise _BrokenError(f"is not JSON: {error}") from None
    raise _BrokenError("is not in canonical form")
