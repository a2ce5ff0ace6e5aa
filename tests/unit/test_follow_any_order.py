"""In any order of events, a follower gets all that it wants, once and in order."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.record.audit import followers as module
from orchestrator.record.audit import query
from orchestrator.record.audit.followers import Follower, Followers
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.query import Selection
from orchestrator.record.audit.recorded_event import Recorded
from tests.support.limits import WAIT_SECONDS
from tests.unit.ledger_support import draft

MOST_WAITING, MOST_BYTES = 4, 3000
OPERATIONS = ("command.start", "command.exit", "file.read")
OWNERS = {"a": "one", "b": "two", "c": "one"}
# The session whose owner the follower learns only from the database.
UNKNOWN = "c"
SELECTIONS = [
    Selection("a"),
    Selection("b", operations=frozenset({"command.exit"})),
    Selection(),
    Selection(owner="one"),
    Selection(owner="one", operations=frozenset({"command.exit", "file.read"})),
]
KEYS = st.sampled_from(sorted(OWNERS))
OF_READERS = ("begin_reading", "read", "read", "fail_to_read", "give_up", "leave")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), KEYS, st.sampled_from(OPERATIONS), st.integers(1, 9)),
        st.tuples(st.just("commit_untold"), KEYS),
        st.tuples(st.just("follow"), st.sampled_from(SELECTIONS)),
        st.tuples(st.just("hold"), st.integers(0, 1)),
        *(st.tuples(st.just(name), st.integers(0, 9)) for name in OF_READERS),
        st.tuples(st.just("end"), st.sampled_from("ab")),
    ),
    min_size=5,
    max_size=60,
)


class Reader:
    """One follower and the events that it has returned so far."""

    def __init__(self, follower: Follower, wanted: Selection, held: ExitStack) -> None:
        self.follower, self.wanted, self.held = follower, wanted, held
        self.found: list[Recorded] = []
        self.under_way: asyncio.Task[list[Recorded]] | None = None

    def begin(self) -> asyncio.Task[list[Recorded]]:
        if self.under_way is None:
            self.under_way = asyncio.create_task(self.follower.next())
        return self.under_way

    async def finish(self) -> list[Recorded]:
        """Completes the read; raises its error."""
        under_way, self.under_way = self.begin(), None
        async with asyncio.timeout(WAIT_SECONDS):
            events = await under_way
        self.found += events
        return events

    async def give_up(self) -> None:
        if self.under_way is not None:
            self.under_way.cancel()
            (outcome,) = await asyncio.gather(self.under_way, return_exceptions=True)
            self.found += outcome if isinstance(outcome, list) else []
            self.under_way = None


class World:
    """A ledger, its followers, and the recorded events."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.ledger = Ledger(database)
        known = {key: owner for key, owner in OWNERS.items() if key != UNKNOWN}
        self.followers = Followers(self.ledger, database, known.get)
        self.readers: list[Reader] = []
        # By key, id and operation, in recorded order.
        self.on_record: list[tuple[str, int, str]] = []
        self.gates = asyncio.Event(), asyncio.Event()
        self.let_go()
        self.failing = False
        self.over: dict[str, asyncio.Future[None]] = {
            key: asyncio.get_running_loop().create_future() for key in OWNERS
        }

    async def close(self) -> None:
        for reader in self.readers:
            await reader.give_up()
            reader.held.close()
        assert (self.followers._of_sessions, self.followers._of_all) == ({}, {})
        await self.ledger.close()

    async def commit(self, key: str, operation: str, count: int) -> None:
        if not self.over[key].done():
            drafts = [draft(key, operation=operation) for _ in range(count)]
            for event in await asyncio.gather(*map(self.ledger.append, drafts)):
                self.on_record.append((key, event.id, operation))

    async def commit_untold(self, key: str) -> None:
        """The event is recorded, although its writer gets an error."""
        write = self.database.write

        async def lost(function: Any, **options: Any) -> Any:
            await write(function, **options)
            raise StoreError("the disk went away")

        if not self.over[key].done():
            losing = mock.patch.object(self.database, "write", lost)
            with losing, pytest.raises(AuditUnavailableError):
                await self.ledger.append(draft(key))
            self.on_record.append((key, len(self.on_record) + 1, "command.start"))

    async def follow(self, wanted: Selection) -> None:
        held = ExitStack()
        over = None if wanted.session_key is None else self.over[wanted.session_key]
        follower = held.enter_context(self.followers.follow(wanted, 0, over))
        self.readers.append(Reader(follower, wanted, held))

    async def begin_reading(self, reader: Reader) -> None:
        reader.begin()
        await asyncio.sleep(0)

    async def hold(self, gate: int) -> None:
        """Reads of the ledger stop before they query (0), or before they return (1)."""
        self.gates[gate].clear()

    def let_go(self) -> None:
        for gate in self.gates:
            gate.set()

    async def read(self, reader: Reader) -> None:
        """Ignores a failed read, which is tried again later."""
        self.let_go()
        if len(reader.found) < len(self.wanted(reader)):
            with suppress(StoreError):
                assert await reader.finish()

    async def fail_to_read(self, reader: Reader) -> None:
        self.failing = True
        await self.read(reader)
        self.failing = False

    async def browse(self, function: Callable[[sqlite3.Connection], Any]) -> Any:
        """The look-up in the database, which `hold` stops and `failing` breaks."""
        before, after = self.gates
        await before.wait()
        if self.failing:
            raise StoreError("the disk is slow")
        found = await self.database.read(function)
        await after.wait()
        return found

    async def give_up(self, reader: Reader) -> None:
        await reader.give_up()

    async def leave(self, reader: Reader) -> None:
        await reader.give_up()
        reader.held.close()
        self.readers.remove(reader)

    async def end(self, key: str) -> None:
        if not self.over[key].done():
            self.over[key].set_result(None)

    def wanted(self, reader: Reader) -> list[tuple[str, int, str]]:
        """The recorded events that the reader wants."""
        wanted = reader.wanted
        return [
            (key, number, operation)
            for key, number, operation in self.on_record
            if wanted.session_key in (None, key)
            and wanted.owner in (None, OWNERS[key])
            and (wanted.operations is None or operation in wanted.operations)
        ]

    def check(self) -> None:
        """Each reader has a prefix of the events that it wants, and few events wait."""
        for reader in self.readers:
            waiting = reader.follower._waiting
            assert len(waiting) <= MOST_WAITING + 1
            assert sum(len(event.text) for _, event in waiting if event) <= MOST_BYTES
            found = [(event.session_key, event.id, event.operation) for event in reader.found]
            assert found == self.wanted(reader)[: len(found)]

    async def check_all_is_got(self) -> None:
        self.let_go()
        for reader in self.readers:
            while len(reader.found) < len(self.wanted(reader)):
                await self.read(reader)
            key = reader.wanted.session_key
            if key is not None and self.over[key].done():
                await reader.give_up()
                assert await reader.finish() == []
        self.check()


async def _play(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = await Database.open(Path(directory) / "paddock.db")
        await database.write(_sessions)
        world = World(database)
        try:
            with mock.patch.object(database, "browse", world.browse):
                await _take(world, steps)
        finally:
            await world.close()
            await database.close()


async def _take(world: World, steps: list[tuple[Any, ...]]) -> None:
    for name, *values in steps:
        step: Callable[..., Any] = getattr(world, name)
        if name in OF_READERS:
            if not world.readers:
                continue
            values = [world.readers[values[0] % len(world.readers)]]
        await step(*values)
        world.check()
    await world.check_all_is_got()


def _sessions(connection: sqlite3.Connection) -> None:
    for key, owner in OWNERS.items():
        connection.execute(
            "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
            " created_at) VALUES (?, ?, ?, 'active', 'low', '{}', '')",
            (key, key, owner),
        )


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_nothing_is_lost_or_repeated_and_little_waits(steps: list[tuple[Any, ...]]) -> None:
    with (
        mock.patch.object(module, "_PAGE", 3),
        mock.patch.object(module, "_MOST_WAITING", MOST_WAITING),
        mock.patch.object(module, "_MOST_WAITING_BYTES", MOST_BYTES),
        mock.patch.object(query, "MOST_EXAMINED", 5),
    ):
        asyncio.run(_play(steps))
