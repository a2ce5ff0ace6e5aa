"""Steps of an erasure are bounded by bytes and by number."""

import sqlite3

import pytest

from orchestrator.operate.privacy.erased_rows import erase_events
from paddock.audit.chain import DIGEST, canonical


@pytest.mark.parametrize(("size", "most"), [(200_000, 1), (30_000, 3), (10, 100)])
def test_a_step_changes_so_much(size: int, most: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE events (id PRIMARY KEY, session_key, seq, command_id, body)")
    connection.execute("CREATE INDEX events_of_session ON events (session_key, seq)")
    for seq in range(1, 151):
        event = {"operation": "command.exit", "args": {"is": "x" * size}, "salt": "5a17"}
        values = (seq, "key", seq, "command", canonical(event))
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", values)
    after: int | None = 0
    steps = []
    while after is not None:
        portion = erase_events(connection, "key", after)
        steps.append(portion.erased)
        after = portion.last
    assert (max(steps), sum(steps)) == (most, 150)
    for (body,) in connection.execute("SELECT body FROM events"):
        assert DIGEST in body
        assert "xxxxx" not in body
