"""Requests about what an owner has, and the rows of the erasures among them.

What returns an `Effect` runs in the transaction of its event.
"""

import sqlite3
from enum import StrEnum
from typing import NamedTuple

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.store.effect import Effect, executing

_MOST_NAMED = 5


class OwnerWork(StrEnum):
    """What is asked for."""

    ERASE = "erase"
    EXPORT = "export"


class OwnerOrder(NamedTuple):
    """One request; `number` is the cluster's, and 0 where it was asked for at this node."""

    kind: OwnerWork
    number: int
    owner: str
    asked_by: str
    reason: str = ""


def beginning(order: OwnerOrder) -> Effect:
    """An effect that begins an erasure. Raises (from the transaction): ConflictError."""

    def effect(connection: sqlite3.Connection) -> None:
        check_ended(connection, order.owner)
        connection.execute(
            "INSERT INTO erasure_orders (owner, request, asked_by, reason) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (order.owner, order.number, order.asked_by, order.reason),
        )

    return effect


def ending(order: OwnerOrder) -> Effect:
    """An effect that ends it."""
    statement = "DELETE FROM erasure_orders WHERE owner = ? AND request = ?"
    return executing(statement, (order.owner, order.number))


def begun(connection: sqlite3.Connection) -> list[OwnerOrder]:
    """The erasures that have begun and have not ended."""
    rows = connection.execute(
        "SELECT request, owner, asked_by, reason FROM erasure_orders ORDER BY request, owner"
    )
    return [OwnerOrder(OwnerWork.ERASE, *row) for row in rows]


def check_ended(connection: sqlite3.Connection, owner: str) -> None:
    """Raises: ConflictError that names sessions of the owner that have not ended."""
    found = connection.execute(
        "SELECT id FROM sessions WHERE owner = ? AND status IN ('active', 'paused') LIMIT ?",
        (owner, _MOST_NAMED + 1),
    ).fetchall()
    refuse_live(owner, [name for (name,) in found])


def refuse_live(owner: str, live: list[str]) -> None:
    """Raises: ConflictError that names sessions of the owner, if there are some."""
    if live:
        names = ", ".join(live[:_MOST_NAMED])
        more = ", …" if len(live) > _MOST_NAMED else ""
        raise ConflictError(f"sessions of {owner} have not ended: close them first: {names}{more}")
