"""The queue of a hook: any steps leave one due message for each session, in the record's order."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.store import database_file
from orchestrator.operate.hooks import delivery_rows as rows
from orchestrator.operate.hooks.delivery_rows import FailedTry, NewDelivery

HOOK, LONG_AGO, AT = "hook-1", "2026-01-01", "2026-03-04"
SCHEMA = (database_file.MIGRATIONS / "0037_hooks.sql").read_text()


@contextmanager
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(SCHEMA)
        yield connection


def put(connection: sqlite3.Connection, name: str, session: str, hook: str = HOOK) -> None:
    message = NewDelivery(f"{hook}-{name}", session, session, "session.closed", "{}")
    rows.enqueue(connection, hook, 1, [message], 0.0)


def claimed(connection: sqlite3.Connection, most: int = 9, **more: Any) -> list[rows.Delivery]:
    values = {"without": (), "now": 10.0, "again_at": 99.0, **more}
    return rows.claim(connection, HOOK, most=most, **values)


def names(found: list[rows.Delivery]) -> list[str]:
    return [each.id.removeprefix(f"{HOOK}-") for each in found]


def listed(connection: sqlite3.Connection, since: str = LONG_AGO) -> list[str]:
    return names(rows.page(connection, HOOK, "undelivered", 0, 100, since))


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "deliver", "postpone", "give_up", "again"]), st.integers(0, 2)
    ),
    max_size=60,
)


@given(_STEPS)
def test_any_steps_keep_the_order_of_each_session(steps: list[tuple[str, int]]) -> None:
    with empty() as connection:
        delivered: dict[str, list[int]] = defaultdict(list)
        again: set[int] = set()
        for number, (step, which) in enumerate(steps):
            session = f"s{which}"
            if step == "put":
                put(connection, f"{number:03}", session)
            elif step == "again":
                kept = rows.page(connection, HOOK, "undelivered", 0, 100, LONG_AGO)
                for each in kept[:1]:
                    assert rows.try_again(connection, HOOK, each.id, 5.0, LONG_AGO)
                    again.add(each.number)
            else:
                others = [f"s{other}" for other in range(3) if other != which]
                for each in claimed(connection, without=others, now=1000.0):
                    if step == "deliver":
                        rows.deliver(connection, each, 5.0)
                        if each.number not in again:
                            delivered[session].append(each.number)
                    elif step == "postpone":
                        rows.postpone(connection, FailedTry(each, "e", AT), 50.0)
                    else:
                        rows.give_up(connection, FailedTry(each, "e", AT), 5.0, LONG_AGO)
            _check_one_due(connection)
        assert all(numbers == sorted(numbers) for numbers in delivered.values())


def _check_one_due(connection: sqlite3.Connection) -> None:
    """Each session with a message that waits has exactly one that is due, and no other has any."""
    waiting = rows.page(connection, HOOK, "waiting", 0, 1000, LONG_AGO)
    due = [each.session_key for each in waiting if each.due_at is not None]
    assert sorted(due) == sorted({each.session_key for each in waiting})
    undelivered = rows.page(connection, HOOK, "undelivered", 0, 1000, LONG_AGO)
    assert all(each.due_at is None for each in undelivered)
    assert rows.counts(connection, HOOK) == (len(waiting), len(undelivered))


def test_what_is_claimed_is_due_again_if_nobody_learns_how_it_went() -> None:
    with empty() as connection:
        put(connection, "a", "s1")
        put(connection, "b", "s1")
        put(connection, "c", "s2")
        assert rows.next_due(connection, HOOK, ()) == 0.0
        assert names(claimed(connection)) == ["a", "c"]
        assert claimed(connection) == []
        assert rows.next_due(connection, HOOK, ()) == 99.0
        assert rows.next_due(connection, HOOK, ("s1", "s2")) is None
        again = claimed(connection, now=99.0)
        assert [(each.id, each.tries) for each in again] == [("hook-1-a", 1), ("hook-1-c", 1)]


def test_sessions_of_which_one_is_being_sent_are_left_alone() -> None:
    with empty() as connection:
        for session in ("s1", "s2", "s3"):
            put(connection, session, session)
        assert names(claimed(connection, without=("s1",), most=1)) == ["s2"]


def test_one_that_is_sent_again_precedes_later_ones_that_wait() -> None:
    with empty() as connection:
        for name in "abc":
            put(connection, name, "s1")
        (first,) = claimed(connection)
        rows.give_up(connection, FailedTry(first, "e", AT), 5.0, LONG_AGO)
        (second,) = claimed(connection)
        assert rows.try_again(connection, HOOK, first.id, 5.0, LONG_AGO)
        rows.deliver(connection, second, 5.0)
        (again,) = claimed(connection)
        assert (again.id, again.tries) == (first.id, 0)


def test_undelivered_ones_are_bounded_in_number_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_UNDELIVERED", 2)
    with empty() as connection:
        for number, day in enumerate(["2026-02-01", "2026-03-01", "2026-03-02", "2026-03-03"]):
            put(connection, f"{number}", "s1")
            (each,) = claimed(connection)
            rows.give_up(connection, FailedTry(each, "e", day), 5.0, "2026-02-15")
        assert listed(connection) == ["2", "3"]
        assert listed(connection, since="2026-03-03") == ["3"]
        old = f"{HOOK}-2"
        assert rows.try_again(connection, HOOK, old, 5.0, "2026-03-03") is None
        put(connection, "4", "s1")
        (each,) = claimed(connection)
        rows.give_up(connection, FailedTry(each, "e", "2026-03-04"), 5.0, "2026-03-04")
        assert listed(connection) == ["4"]


def test_a_clock_that_was_set_back_delays_nothing_for_long() -> None:
    with empty() as connection:
        put(connection, "a", "s1")
        claimed(connection, again_at=10.0**9)
        rows.limit_due(connection, HOOK, 500.0)
        assert rows.next_due(connection, HOOK, ()) == 500.0


def test_a_hook_is_cleared_in_portions_and_others_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "_PORTION", 2)
    with empty() as connection:
        for number in range(5):
            put(connection, f"{number}", "s1")
            put(connection, f"{number}", "s1", "hook-2")
        assert [rows.clear(connection, HOOK) for _ in range(3)] == [True, True, False]
        assert rows.counts(connection, HOOK) == (0, 0)
        assert rows.counts(connection, "hook-2") == (5, 0)
