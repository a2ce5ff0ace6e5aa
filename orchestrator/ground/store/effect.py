"""What a transaction does to rows, and effects that are committed together."""

import functools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Effect = Callable[[sqlite3.Connection], None]


def executing(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Effect:
    """An effect that executes one statement with these values."""

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute(statement, values)

    return apply


def both(first: Effect, second: Effect) -> Effect:
    """An effect that runs one, then the other."""

    def apply(connection: sqlite3.Connection) -> None:
        first(connection)
        second(connection)

    return apply


def all_of(first: Effect, *others: Effect | None) -> Effect:
    """An effect that runs the first, and those of the others that are not None."""
    return functools.reduce(both, (each for each in others if each is not None), first)


def together(*effects: Effect | None) -> Effect | None:
    """An effect that runs all of these that are not None; None if there are none."""
    found = [each for each in effects if each is not None]
    return functools.reduce(both, found) if found else None
