"""Counts what SQLite does: each row that it looks at takes its machine some instructions."""

import sqlite3
from typing import Any

import pytest


def counted_steps(counting: pytest.MonkeyPatch) -> list[int]:
    """The number of instructions of all connections that are opened from now on, in a list."""
    steps, connect = [0], sqlite3.connect

    def step() -> int:
        steps[0] += 1
        return 0

    def connected(*given: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **named)
        connection.set_progress_handler(step, 1)
        return connection

    counting.setattr(sqlite3, "connect", connected)
    return steps
