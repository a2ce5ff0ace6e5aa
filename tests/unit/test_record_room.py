"""Whether there is room for records: what keys have, and a disk that does not say what is free."""

import errno
import sqlite3
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.record.audit import archive_rows
from orchestrator.record.audit.record_room import DISK_REASON, RecordRoom
from orchestrator.rules.access.keys import KeyRing
from orchestrator.state import session_rows


def test_a_disk_that_fails_leaves_the_last_known_room() -> None:
    """An event whose size is counted is on record already, so the count never fails."""
    found: list[int | OSError] = [100, OSError(errno.EIO, "no")]

    def free() -> int:
        value = found.pop(0)
        if isinstance(value, OSError):
            raise value
        return value

    room = RecordRoom(KeyRing({}), KeyLimits(), 10, free, iter(range(100)).__next__)
    assert room.stops("ann") is None
    assert room.stops("ann") is None
    assert found == []


def test_a_disk_that_was_never_known_has_no_room() -> None:
    def free() -> int:
        raise OSError(errno.EIO, "no")

    room = RecordRoom(KeyRing({}), KeyLimits(), 10, free)
    assert room.stops("ann") == DISK_REASON
    with pytest.raises(CapacityExhaustedError):
        room.check("ann")


# What happens to sessions of two keys: events, an end, an end that nobody knew of, an archiving.
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "event", "end", "archive", "charge")),
        st.sampled_from(("ci", "ops")),
        st.integers(0, 3),
        st.integers(1, 9000),
    ),
    max_size=60,
)
_SLOW_SUM = """
    SELECT owner, sum(audit_bytes) FROM (
        SELECT owner, audit_bytes FROM sessions UNION ALL SELECT owner, audit_bytes FROM key_usage
    ) GROUP BY owner HAVING sum(audit_bytes) > 0
"""


def _step(connection: sqlite3.Connection, step: tuple[str, str, int, int]) -> None:
    kind, owner, number, size = step
    key = f"{owner}-{number}"
    match kind:
        case "create":
            connection.execute(
                "INSERT INTO sessions (key, id, owner, status, permission_level, level, created_at)"
                " VALUES (?, ?, ?, 'active', 'low', '{}', '') ON CONFLICT DO NOTHING",
                (key, key, owner),
            )
        case "event":
            connection.execute(
                "UPDATE sessions SET audit_bytes = audit_bytes + ? WHERE key = ?", (size, key)
            )
        case "end":
            session_rows.forgetting(key)(connection)
        case "archive":
            while not archive_rows.empty(connection, key):
                pass
        case "charge":
            connection.execute(
                "INSERT INTO key_usage (owner, audit_bytes) VALUES (?, ?) ON CONFLICT (owner)"
                " DO UPDATE SET audit_bytes = audit_bytes + excluded.audit_bytes",
                (owner, size),
            )


@given(steps=_STEPS)
async def test_what_keys_have_on_record_is_the_sum_after_any_steps(
    steps: list[tuple[str, str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = await Database.open(Path(directory) / "paddock.db")
        try:
            for step in steps:
                await database.write(partial(_step, step=step))
            room = RecordRoom(KeyRing({}), KeyLimits(), 0, lambda: 0)
            await room.load(database)
            expected = await database.read(lambda conn: dict(conn.execute(_SLOW_SUM).fetchall()))
            assert {owner: room.used(owner) for owner in ("ci", "ops")} == {
                "ci": 0,
                "ops": 0,
            } | expected
        finally:
            await database.close()
