"""Followers get every event once and in order, however slow some are, and cost few reads."""

import asyncio
import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from orchestrator.ground.events import SYSTEM_KEY
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.record.audit import followers as module
from orchestrator.record.audit import query
from orchestrator.record.audit.followers import CatchUp, Follower, Followers
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.query import Selection
from orchestrator.record.audit.recorded_event import Recorded
from paddock.audit.chain import canonical
from tests.support.limits import WAIT_SECONDS
from tests.unit.ledger_support import draft, fill

OWNERS = {"k1": "one", "k2": "two"}


class Browsed:
    """The number of look-ups in the database."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def followers(ledger: Ledger, database: Database) -> Followers:
    return Followers(ledger, database, OWNERS.get)


@pytest.fixture
def browsed(database: Database, monkeypatch: pytest.MonkeyPatch) -> Browsed:
    browsed, browse = Browsed(), database.browse

    async def counting(function: Any) -> Any:
        browsed.count += 1
        return await browse(function)

    monkeypatch.setattr(database, "browse", counting)
    return browsed


async def events(follower: Follower, until: int) -> list[Recorded]:
    """The follower's events up to the given `seq`."""
    found: list[Recorded] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while not found or found[-1].seq < until:
            found += await follower.next()
    return found


async def numbers(follower: Follower, until: int) -> list[int]:
    """The `seq` of each of the follower's events up to the given one."""
    return [event.seq for event in await events(follower, until)]


@contextmanager
def all_of(followers: Followers, count: int, key: str, after: int) -> Iterator[list[Follower]]:
    with ExitStack() as stack:
        yield [stack.enter_context(followers.follow(Selection(key), after)) for _ in range(count)]


async def test_a_commit_is_written_once_and_shared_by_all_followers(
    ledger: Ledger, followers: Followers, browsed: Browsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0

    def counting(value: Any) -> str:
        nonlocal written
        text = canonical(value)
        written += len(text)
        return text

    await fill(ledger, 1)
    with all_of(followers, 50, "k1", 0) as following:
        first = (numbers(follower, 1) for follower in following)
        assert await asyncio.gather(*first) == [[1]] * 50
        monkeypatch.setattr("orchestrator.ground.events.canonical", counting)
        browsed.count = 0
        rest = [asyncio.create_task(events(follower, 101)) for follower in following]
        await fill(ledger, 100)
        one, *others = await asyncio.gather(*rest)
        assert [event.seq for event in one] == list(range(2, 102))
        assert all(a is b for other in others for a, b in zip(one, other, strict=True))
    assert all(event.line is event.line and event.event is event.event for event in one)
    # No text is created except those of the events, with `id` and `seq` inserted.
    assert written <= sum(len(event.text) for event in one)
    assert browsed.count == 0


async def test_what_came_before_is_read_and_nothing_twice(
    ledger: Ledger, followers: Followers
) -> None:
    await fill(ledger, 250)
    with followers.follow(Selection("k1"), 0) as one, followers.follow(Selection("k1"), 249) as two:
        adding = asyncio.create_task(fill(ledger, 250))
        assert await numbers(one, 500) == list(range(1, 501))
        assert await numbers(two, 500) == list(range(250, 501))
        await adding


async def test_events_are_those_of_the_ledger(
    ledger: Ledger, followers: Followers, database: Database
) -> None:
    with followers.follow(Selection("k1"), 0) as follower:
        await fill(ledger, 1)
        read = await follower.next()
        await fill(ledger, 1)
        told = await follower.next()
    recorded = await query.events(database, "k1")
    assert [json.loads(event.line) for event in (*read, *told)] == recorded
    assert [event.event for event in (*read, *told)] == recorded
    assert all(event.line.isascii() and "\n" not in event.line for event in (*read, *told))
    assert [(e.id, e.seq, e.operation) for e in told] == [(2, 2, "command.start")]


async def test_who_is_slow_holds_little_and_misses_nothing(
    ledger: Ledger, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 10)
    with (
        followers.follow(Selection("k1"), 0) as slow,
        followers.follow(Selection("k1"), 0) as quick,
    ):
        await fill(ledger, 1)
        assert await numbers(slow, 1) == await numbers(quick, 1) == [1]
        quickly = asyncio.create_task(numbers(quick, 200))
        await fill(ledger, 199)
        assert len(slow._waiting) <= 10
        assert await quickly == list(range(2, 201))
        assert await numbers(slow, 200) == list(range(2, 201))


async def test_large_events_wait_in_few(
    ledger: Ledger, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING_BYTES", 20_000)
    with followers.follow(Selection("k1"), 0) as slow:
        await fill(ledger, 1)
        await slow.next()
        for _ in range(20):
            await ledger.append(draft(args={"text": "x" * 7000}))
            assert slow._waiting_bytes <= 20_000
        assert await numbers(slow, 21) == list(range(2, 22))


async def test_an_unknown_commit_is_looked_for(
    database: Database, ledger: Ledger, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit succeeded, although its writer got an error."""
    write = database.write

    async def lost(function: Any, **options: Any) -> Any:
        await write(function, **options)
        raise StoreError("the disk went away")

    with (
        followers.follow(Selection("k1"), 0) as one,
        followers.follow(Selection(), 0) as everybodys,
    ):
        await fill(ledger, 1)
        assert await numbers(one, 1) == await numbers(everybodys, 1) == [1]
        waiting = [asyncio.create_task(numbers(follower, 2)) for follower in (one, everybodys)]
        with monkeypatch.context() as patched:
            patched.setattr(database, "write", lost)
            with pytest.raises(Exception, match="the disk went away"):
                await fill(ledger, 1)
        assert await asyncio.gather(*waiting) == [[2], [2]]


async def test_a_commit_that_comes_too_late_to_be_told_of_is_looked_for(
    database: Database, ledger: Ledger, followers: Followers
) -> None:
    """The late commit is noticed only because the next one does not follow the last known one."""
    with (
        followers.follow(Selection("k1"), 0) as one,
        followers.follow(Selection(), 0) as everybodys,
    ):
        await fill(ledger, 1)
        assert await numbers(one, 1) == await numbers(everybodys, 1) == [1]
        untold = Ledger(database)
        await fill(untold, 3)
        ledger._heads.forget()
        await fill(ledger, 1)
        assert await numbers(one, 5) == await numbers(everybodys, 5) == [2, 3, 4, 5]


async def test_an_owner_gets_events_of_the_owners_sessions_only(
    ledger: Ledger, followers: Followers, database: Database
) -> None:
    def sessions(connection: sqlite3.Connection) -> None:
        for key, owner in (*OWNERS.items(), ("k3", "one")):
            connection.execute(
                "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
                " created_at) VALUES (?, ?, ?, 'completed', 'low', '{}', '')",
                (key, key, owner),
            )

    await database.write(sessions)
    with (
        followers.follow(Selection(owner="one"), 0) as follower,
        followers.follow(Selection(), 0) as everybodys,
    ):
        await fill(ledger, 1)
        assert [event.id for event in await follower.next()] == [1]
        for key in ("k2", SYSTEM_KEY, "k1", "k2", "k3", "k1"):
            await fill(ledger, 1, key)
        found: list[int] = []
        async with asyncio.timeout(WAIT_SECONDS):
            # Only the database knows the owner of k3.
            while len(found) < 3:
                found += [event.id for event in await follower.next()]
        assert found == [4, 6, 7]
        everything: list[int] = []
        async with asyncio.timeout(WAIT_SECONDS):
            while len(everything) < 7:
                everything += [event.id for event in await everybodys.next()]
        assert everything == list(range(1, 8))


async def test_what_is_over_is_read_to_its_end(ledger: Ledger, followers: Followers) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with followers.follow(Selection("k1"), 0, over) as follower:
        await fill(ledger, 3)
        assert len(await follower.next()) == 3
        waiting = asyncio.create_task(follower.next())
        await asyncio.wait([waiting], timeout=0.01)
        over.set_result(None)
        assert await waiting == []
    with followers.follow(Selection("k1"), 1, over) as late:
        assert await numbers(late, 3) == [2, 3]
        assert await late.next() == []


async def test_an_end_while_the_ledger_is_read_is_not_missed() -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read(position: int) -> CatchUp:
        if not over.done():
            over.set_result(None)
            await asyncio.sleep(0)  # waiters on `over` are woken
        return CatchUp([], position, more=False)

    async with asyncio.timeout(WAIT_SECONDS):
        assert await Follower(read, 0, over).next() == []


async def test_a_wait_that_is_given_up_loses_nothing(ledger: Ledger, followers: Followers) -> None:
    chance, found = random.Random(9), list[int]()
    with followers.follow(Selection("k1"), 0) as follower:
        adding = asyncio.create_task(fill(ledger, 300))
        while not found or found[-1] < 300:
            waiting = asyncio.create_task(follower.next())
            await asyncio.wait([waiting], timeout=chance.choice([0, 0.0005, 1]))
            waiting.cancel()
            for events in await asyncio.gather(waiting, return_exceptions=True):
                if isinstance(events, list):
                    found += [event.seq for event in events]
        await adding
    assert found == list(range(1, 301))


async def test_nothing_is_left_of_who_leaves(ledger: Ledger, followers: Followers) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with followers.follow(Selection("k1"), 0, over), followers.follow(Selection(), 0):
        pass
    assert (followers._of_sessions, followers._of_all) == ({}, {})
    await fill(ledger, 1)


@pytest.mark.slow
async def test_what_is_not_wanted_costs_no_room_and_no_search(
    ledger: Ledger, followers: Followers, browsed: Browsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 3)
    exits = frozenset({"command.exit"})
    mine, all_ = Selection("k1", operations=exits), Selection(operations=exits)
    with followers.follow(mine, 0) as one, followers.follow(all_, 0) as everybodys:
        await ledger.append(draft(operation="command.exit"))
        assert [event.seq for event in await one.next()] == [1]
        assert [event.id for event in await everybodys.next()] == [1]
        looked_up = browsed.count
        await fill(ledger, 300)
        await fill(ledger, 300, "k2")
        await ledger.append(draft(operation="command.exit"))
        assert len(one._waiting) == len(everybodys._waiting) == 2
        assert [event.seq for event in await one.next()] == [302]
        assert [event.id for event in await everybodys.next()] == [602]
        assert browsed.count == looked_up


async def test_a_search_that_finds_nothing_goes_on_and_ends(
    ledger: Ledger, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MOST_EXAMINED", 10)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await fill(ledger, 35)
    await ledger.append(draft(operation="session.terminated"))
    over.set_result(None)
    last = Selection("k1", operations=frozenset({"session.terminated"}))
    with followers.follow(last, 0, over) as follower:
        assert [event.seq for event in await follower.next()] == [36]
        assert await follower.next() == []
    nothing = Selection("k1", operations=frozenset({"pty.open"}))
    with followers.follow(nothing, 0, over) as follower:
        assert await follower.next() == []
