"""Messages that wait for their delivery, or were given up, in the database.

Each function runs inside the caller's transaction. Of one session, only the first message that
waits has a due time, so they are sent one after the other.
"""

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

# Rows per deletion, so that other writers wait for no more.
_PORTION = 100
# Deliveries of one hook that are kept after they were given up.
MOST_UNDELIVERED = 1000

DeliveryStatus = Literal["waiting", "undelivered"]


class NewDelivery(NamedTuple):
    """A new message."""

    id: str
    session_key: str
    session_id: str
    type: str
    body: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message to a hook. `due_at` is in seconds since 1970; the other times are as in records.

    `tries` counts the tries that were begun. `due_at` None: it waits for an earlier message, or was
    given up.
    """

    number: int
    id: str
    hook_id: str
    session_key: str
    session_id: str
    type: str
    body: str
    tries: int
    due_at: float | None
    tried_at: str | None
    error: str | None
    undelivered_at: str | None

    @property
    def status(self) -> DeliveryStatus:
        """Whether it is still tried."""
        return "waiting" if self.undelivered_at is None else "undelivered"


class FailedTry(NamedTuple):
    """A try that failed, why, and when."""

    delivery: Delivery
    error: str
    at: str


class DeliveryCounts(NamedTuple):
    """Messages of a hook that wait, and that were given up."""

    waiting: int
    undelivered: int


NONE = DeliveryCounts(0, 0)
_COLUMNS = (
    "number, id, hook_id, session_key, session_id, type, body, tries, due_at, tried_at, error,"
    " undelivered_at"
)
# They are counted after every change, so the indexes alone must do.
_COUNTS = (
    "SELECT count(*) FROM hook_deliveries INDEXED BY hook_deliveries_waiting"
    " WHERE hook_id = ? AND undelivered_at IS NULL",
    "SELECT count(*) FROM hook_deliveries INDEXED BY hook_deliveries_undelivered"
    " WHERE hook_id = ? AND undelivered_at IS NOT NULL",
)
_BEGIN_NEXT = """
    UPDATE hook_deliveries SET due_at = :now
    WHERE number = (
        SELECT min(number) FROM hook_deliveries INDEXED BY hook_deliveries_waiting
        WHERE hook_id = :hook AND session_key = :key AND undelivered_at IS NULL
    ) AND NOT EXISTS (
        SELECT 1 FROM hook_deliveries INDEXED BY hook_deliveries_waiting
        WHERE hook_id = :hook AND session_key = :key AND undelivered_at IS NULL
            AND due_at IS NOT NULL
    )
"""


def counts(connection: sqlite3.Connection, hook_id: str) -> DeliveryCounts:
    """How many messages of a hook wait, and how many were given up."""
    (waiting,), (undelivered,) = (
        connection.execute(statement, (hook_id,)).fetchone() for statement in _COUNTS
    )
    return DeliveryCounts(waiting, undelivered)


def enqueue(
    connection: sqlite3.Connection,
    hook_id: str,
    position: int,
    messages: Iterable[NewDelivery],
    now: float,
) -> DeliveryCounts:
    """Stores messages, and that the record has been looked at up to there."""
    for message in messages:
        connection.execute(
            "INSERT OR IGNORE INTO hook_deliveries"
            " (id, session_key, session_id, type, body, hook_id) VALUES (?, ?, ?, ?, ?, ?)",
            (*message, hook_id),
        )
        _begin_next(connection, hook_id, message.session_key, now)
    connection.execute(
        "UPDATE hook_positions SET position = ? WHERE hook_id = ?", (position, hook_id)
    )
    return counts(connection, hook_id)


def limit_due(connection: sqlite3.Connection, hook_id: str, latest: float) -> DeliveryCounts:
    """Moves due times that are later to that time, because the clock may have been set back."""
    connection.execute(
        "UPDATE hook_deliveries SET due_at = :latest WHERE hook_id = :hook AND due_at > :latest",
        {"hook": hook_id, "latest": latest},
    )
    return counts(connection, hook_id)


def next_due(
    connection: sqlite3.Connection, hook_id: str, without: Collection[str]
) -> float | None:
    """The earliest due time of messages, except those of the sessions `without`."""
    found = connection.execute(
        "SELECT due_at, session_key FROM hook_deliveries"
        " WHERE hook_id = ? AND due_at IS NOT NULL ORDER BY due_at LIMIT ?",
        (hook_id, len(without) + 1),
    ).fetchall()
    return next((due_at for due_at, key in found if key not in without), None)


def claim(
    connection: sqlite3.Connection,
    hook_id: str,
    without: Collection[str],
    most: int,
    now: float,
    again_at: float,
) -> list[Delivery]:
    """Begins to try what is due, except messages of the sessions `without`.

    Each is due again at `again_at`, in case nobody learns how the try went.
    """
    found = _deliveries(
        connection,
        "WHERE hook_id = ? AND due_at IS NOT NULL AND due_at <= ? ORDER BY due_at, number LIMIT ?",
        (hook_id, now, most + len(without)),
    )
    claimed = [each for each in found if each.session_key not in without][:most]
    connection.executemany(
        "UPDATE hook_deliveries SET tries = tries + 1, due_at = ? WHERE number = ?",
        [(again_at, each.number) for each in claimed],
    )
    return claimed


def deliver(connection: sqlite3.Connection, delivery: Delivery, now: float) -> DeliveryCounts:
    """Forgets a delivery that was made; the session's next one is due now."""
    connection.execute("DELETE FROM hook_deliveries WHERE number = ?", (delivery.number,))
    _begin_next(connection, delivery.hook_id, delivery.session_key, now)
    return counts(connection, delivery.hook_id)


def postpone(connection: sqlite3.Connection, failed: FailedTry, due_at: float) -> DeliveryCounts:
    """Stores that a try failed, and when the next one is due."""
    connection.execute(
        "UPDATE hook_deliveries SET error = ?, tried_at = ?, due_at = ? WHERE number = ?",
        (failed.error, failed.at, due_at, failed.delivery.number),
    )
    return counts(connection, failed.delivery.hook_id)


def give_up(
    connection: sqlite3.Connection, failed: FailedTry, now: float, kept_since: str
) -> DeliveryCounts:
    """Keeps a delivery as undelivered; the session's next one is due.

    Deliveries that were given up before `kept_since` are forgotten, and the oldest above the limit.
    """
    connection.execute(
        "UPDATE hook_deliveries SET error = ?, tried_at = ?, due_at = NULL, undelivered_at = ?"
        " WHERE number = ?",
        (failed.error, failed.at, failed.at, failed.delivery.number),
    )
    delivery = failed.delivery
    _begin_next(connection, delivery.hook_id, delivery.session_key, now)
    connection.execute(
        "DELETE FROM hook_deliveries WHERE number IN (SELECT number FROM hook_deliveries"
        " WHERE hook_id = ? AND undelivered_at < ? LIMIT ?)",
        (delivery.hook_id, kept_since, _PORTION),
    )
    connection.execute(
        "DELETE FROM hook_deliveries WHERE number IN (SELECT number FROM hook_deliveries"
        " WHERE hook_id = ? AND undelivered_at IS NOT NULL ORDER BY number DESC LIMIT ? OFFSET ?)",
        (delivery.hook_id, _PORTION, MOST_UNDELIVERED),
    )
    return counts(connection, delivery.hook_id)


def try_again(
    connection: sqlite3.Connection, hook_id: str, delivery_id: str, now: float, kept_since: str
) -> tuple[Delivery, DeliveryCounts] | None:
    """Makes an undelivered message wait again, as if it were new; None if there is none."""
    found = connection.execute(
        "UPDATE hook_deliveries SET undelivered_at = NULL, tries = 0"
        " WHERE hook_id = ? AND id = ? AND undelivered_at >= ? RETURNING session_key",
        (hook_id, delivery_id, kept_since),
    ).fetchall()
    if not found:
        return None
    _begin_next(connection, hook_id, found[0][0], now)
    return find(connection, hook_id, delivery_id), counts(connection, hook_id)


def find(connection: sqlite3.Connection, hook_id: str, delivery_id: str) -> Delivery:
    """The delivery with that id, which exists."""
    (found,) = _deliveries(connection, "WHERE hook_id = ? AND id = ?", (hook_id, delivery_id))
    return found


def page(
    connection: sqlite3.Connection,
    hook_id: str,
    status: DeliveryStatus | None,
    after: int,
    limit: int,
    kept_since: str,
) -> list[Delivery]:
    """Deliveries of a hook in the order of the record; `status` None: all."""
    wanted = {
        "waiting": "undelivered_at IS NULL",
        "undelivered": "undelivered_at >= :since",
        None: "(undelivered_at IS NULL OR undelivered_at >= :since)",
    }[status]
    return _deliveries(
        connection,
        f"WHERE hook_id = :hook AND number > :after AND {wanted} ORDER BY number LIMIT :limit",
        {"hook": hook_id, "after": after, "since": kept_since, "limit": limit},
    )


def clear(connection: sqlite3.Connection, hook_id: str) -> bool:
    """Removes some rows of a hook that is gone; returns whether there may be others."""
    connection.execute("DELETE FROM hook_positions WHERE hook_id = ?", (hook_id,))
    removed = connection.execute(
        "DELETE FROM hook_deliveries WHERE number IN"
        " (SELECT number FROM hook_deliveries WHERE hook_id = ? LIMIT ?)",
        (hook_id, _PORTION),
    ).rowcount
    return removed == _PORTION


def _begin_next(connection: sqlite3.Connection, hook_id: str, session_key: str, now: float) -> None:
    """Makes the session's first waiting message due, unless one of its messages is due already."""
    connection.execute(_BEGIN_NEXT, {"hook": hook_id, "key": session_key, "now": now})


def _deliveries(connection: sqlite3.Connection, where: str, values: Any) -> list[Delivery]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM hook_deliveries {where}",  # noqa: S608
        values,
    )
    return [Delivery(*row) for row in rows.fetchall()]
