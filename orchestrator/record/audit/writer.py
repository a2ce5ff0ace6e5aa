"""Writes a batch of events to their chains, in the thread of the ledger's writer."""

import sqlite3
from collections import Counter, OrderedDict
from secrets import token_hex
from typing import Any, NamedTuple

from orchestrator.ground.events import written
from orchestrator.ground.store.effect import Effect
from orchestrator.record.audit.recorded_event import SELECT_RECORDED, Recorded
from paddock.audit.chain import GENESIS_HASH, SALT, Event, chain_hash, hashed_text

_INSERT = """
    INSERT INTO events (id, session_key, session_id, seq, time, operation, decision, turn,
                        command_id, agent_boot_id, agent_seq, body, prev_hash, hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# These mean that the file, not the statement, is at fault. The extended code is in the high bits.
_STORAGE_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)
_MAX_HEADS = 10_000
# Nobody can try out so many.
_SALT_BYTES = 16
# The size of an event besides its text: hashes, columns, index entries.
ROW_BYTES = 512
# A session's row holds the size of its chain.
_COUNT_BYTES = "UPDATE sessions SET audit_bytes = audit_bytes + ? WHERE key = ?"
# The counts for statistics.
_COUNT = """
    INSERT INTO event_counts (session_key, operation, decision, events, tokens)
    VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET events = events + excluded.events, tokens = tokens + excluded.tokens
"""


class Head(NamedTuple):
    """The last event of a chain."""

    seq: int
    hash: str


class Item(NamedTuple):
    """One event to write, with the effect to commit together with it."""

    session_key: str
    members: Event
    effect: Effect | None
    stop: bool = False


class Heads:
    """The known ends of chains: chains in use need no look-up."""

    def __init__(self) -> None:
        self.last_id: int | None = None
        self._heads: OrderedDict[str, Head] = OrderedDict()

    def get(self, session_key: str) -> Head | None:
        """The head of the chain, if known."""
        return self._heads.get(session_key)

    def advance(self, last_id: int, heads: dict[str, Head]) -> None:
        """Stores committed heads and forgets the least recently used."""
        self.last_id = last_id
        for session_key, head in heads.items():
            self._heads[session_key] = head
            self._heads.move_to_end(session_key)
        while len(self._heads) > _MAX_HEADS:
            self._heads.popitem(last=False)

    def forget(self) -> None:
        """Forgets all heads, because a commit may or may not have happened."""
        self.last_id = None
        self._heads.clear()


class Batch:
    """Events of one transaction. Its heads count only after the commit."""

    def __init__(self, connection: sqlite3.Connection, heads: Heads, *, alone: bool) -> None:
        """`alone`: there is only one event, so the transaction can begin anew without it."""
        self._connection = connection
        self._alone = alone
        self._known = heads
        self.heads: dict[str, Head] = {}
        self._bytes: Counter[str] = Counter()
        # By session_key, operation and decision.
        self._events: Counter[tuple[str, str, str]] = Counter()
        self._tokens: Counter[tuple[str, str, str]] = Counter()
        self.last_id = last_id(connection) if heads.last_id is None else heads.last_id

    def append(self, item: Item) -> Recorded | Exception:
        """The recorded event (or the one recorded before), or why it could not be recorded.

        Raises: sqlite3.Error if the file can't be written, so no event can be.
        """
        before = self.last_id
        try:
            recorded = self._appended(item)
        except Exception as error:
            # After the end of the transaction, nothing more may be written in this batch.
            if not self._connection.in_transaction or _is_storage_error(error):
                raise
            return error
        self._bytes[item.session_key] += recorded.bytes
        if self.last_id != before:  # it was not recorded before
            kind = item.session_key, item.members["operation"], item.members["decision"] or ""
            self._events[kind] += 1
            self._tokens[kind] += item.members["tokens_used"] or 0
        return recorded

    def count(self) -> None:
        """Stores the growth of the chains, as the last step of a transaction."""
        sizes = [(size, key) for key, size in self._bytes.items() if size]
        self._connection.executemany(_COUNT_BYTES, sizes)
        counts = [(*kind, count, self._tokens[kind]) for kind, count in self._events.items()]
        self._connection.executemany(_COUNT, counts)

    def _appended(self, item: Item) -> Recorded:
        return self._insert(item) if item.effect is None else self._with_effect(item, item.effect)

    def _with_effect(self, item: Item, effect: Effect) -> Recorded:
        before = self.last_id, self.heads.get(item.session_key)
        if not self._alone:
            self._connection.execute("SAVEPOINT item")
        try:
            recorded = self._insert(item)
            # The effect of a repeated event was committed with it the first time.
            if self.last_id != before[0]:
                effect(self._connection)
        except BaseException:
            if self._connection.in_transaction:
                self._undo()
            self._restore(item.session_key, *before)
            raise
        if not self._alone:
            self._connection.execute("RELEASE item")
        return recorded

    def _undo(self) -> None:
        """Takes back what was written for the last event."""
        if self._alone:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
        else:
            self._connection.execute("ROLLBACK TO item")
            self._connection.execute("RELEASE item")

    def _insert(self, item: Item) -> Recorded:
        head = self._head(item.session_key)
        event_id, seq = self.last_id + 1, head.seq + 1
        salt = token_hex(_SALT_BYTES)
        body, text = written({"id": event_id, "seq": seq, SALT: salt, **item.members})
        event_hash = chain_hash(head.hash, hashed_text(body))
        try:
            self._connection.execute(
                _INSERT, (*_columns(item.session_key, body), text, head.hash, event_hash)
            )
        except sqlite3.IntegrityError:
            # An agent repeats events that were not acknowledged.
            recorded = _recorded_before(self._connection, item)
            if recorded is None:
                raise
            return recorded
        self.last_id = event_id
        self.heads[item.session_key] = Head(seq, event_hash)
        return Recorded(
            session_key=item.session_key,
            id=event_id,
            seq=seq,
            time=body["time"],
            operation=body["operation"],
            text=text,
            prev_hash=head.hash,
            hash=event_hash,
            bytes=len(text.encode()) + ROW_BYTES,
            body=body,
        )

    def _head(self, session_key: str) -> Head:
        return (
            self.heads.get(session_key)
            or self._known.get(session_key)
            or chain_head(self._connection, session_key)
        )

    def _restore(self, session_key: str, event_id: int, head: Head | None) -> None:
        self.last_id = event_id
        if head is None:
            self.heads.pop(session_key, None)
        else:
            self.heads[session_key] = head


def chain_head(connection: sqlite3.Connection, session_key: str) -> Head:
    """The end of a chain; seq 0 and 64 zeros before its first event."""
    row = connection.execute(
        "SELECT seq, hash FROM events WHERE session_key = ? ORDER BY seq DESC LIMIT 1",
        (session_key,),
    ).fetchone()
    return Head(*row) if row else Head(0, GENESIS_HASH)


def last_id(connection: sqlite3.Connection) -> int:
    """The highest id of all events, 0 if there are none."""
    (value,) = connection.execute("SELECT max(id) FROM events").fetchone()
    return value or 0


def event_columns(body: Event) -> tuple[Any, ...]:
    """The event's members that the table repeats, in the order of its columns."""
    agent = body["agent"] or {"boot_id": None, "seq": None}
    return (
        body["id"],
        body["session_id"],
        body["seq"],
        body["time"],
        body["operation"],
        body["decision"],
        body["turn"],
        body.get("args", {}).get("command_id"),
        agent["boot_id"],
        agent["seq"],
    )


def _columns(session_key: str, body: Event) -> tuple[Any, ...]:
    event_id, *rest = event_columns(body)
    return event_id, session_key, *rest


def _recorded_before(connection: sqlite3.Connection, item: Item) -> Recorded | None:
    agent = item.members["agent"]
    if agent is None:
        return None
    row = connection.execute(
        f"{SELECT_RECORDED} WHERE session_key = ? AND agent_boot_id = ? AND agent_seq = ?",
        (item.session_key, agent["boot_id"], agent["seq"]),
    ).fetchone()
    return None if row is None else Recorded(*row)


def _is_storage_error(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _STORAGE_ERRORS
