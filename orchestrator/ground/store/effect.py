"""What a transaction does to rows, and effects that are committed together."""

import functools
import sqlite3
from collections.abc import Callable

Effect = Callable[[sqlite3.Connection], None]


def both(first: Effect, second: Effect) -> Effect:
    """An effect that runs one, then the other."""

    def apply(connection: sqlite3.Connection) -> None:
        first(connection)
        second(connection)

    return apply


def together(*effects: Effect | None) -> Effect | None:
    """An effect that runs all of these that are not None; None if there are none."""
    found = [each for each in effects if each is not None]
    return functools.reduce(both, found) if found else None
