"""The outbox: what is committed is delivered, in order and at least once, whatever happens."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from orchestrator.cluster import outbox as outbox_module
from orchestrator.cluster.base import Message
from orchestrator.cluster.outbox import BATCH, Outbox
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from tests.support.limits import WAIT_SECONDS

T = TypeVar("T")


class Receiver:
    """The cluster: what it was told, and whether it answers."""

    def __init__(self) -> None:
        self.batches: list[list[Message]] = []
        self.away = False
        self.asked = asyncio.Event()

    @property
    def bodies(self) -> list[int]:
        """What arrived, without what came again."""
        seen = {each.id: each.body["n"] for batch in self.batches for each in batch}
        return list(seen.values())

    async def deliver(self, messages: Sequence[Message]) -> None:
        self.asked.set()
        if self.away:
            raise ClusterUnavailableError("it is away", retry_after=1)
        self.batches.append(list(messages))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "db")
    yield database
    await database.close()


@asynccontextmanager
async def started(database: Database, receiver: Receiver) -> AsyncIterator[Outbox]:
    outbox = Outbox(database)
    outbox.start(receiver, Tasks())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield outbox
    finally:
        await outbox.close()


async def put(database: Database, outbox: Outbox, *numbers: int) -> None:
    for number in numbers:
        await database.write(outbox.putting("told", {"n": number}))


def rows(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
    return int(count)


async def test_what_is_committed_is_delivered_in_order(database: Database) -> None:
    receiver = Receiver()
    async with started(database, receiver) as outbox:
        await put(database, outbox, *range(5))
        await outbox.delivered()
        assert receiver.bodies == [0, 1, 2, 3, 4]
        assert await database.read(rows) == outbox.waiting == 0


async def test_a_commit_wakes_it(database: Database) -> None:
    """Nobody asks whether it is delivered, and nothing looks from time to time."""
    receiver = Receiver()
    async with started(database, receiver) as outbox:
        await outbox.delivered()
        await put(database, outbox, 1)
        await receiver.asked.wait()
        assert receiver.bodies == [1]


async def test_a_message_of_a_transaction_that_is_undone_is_none(database: Database) -> None:
    receiver = Receiver()
    async with started(database, receiver) as outbox:
        effect = outbox.putting("told", {"n": 1})

        def undone(connection: sqlite3.Connection) -> None:
            effect(connection)
            raise ValueError("undone")

        with pytest.raises(ValueError, match="undone"):
            await database.write(undone)
        await put(database, outbox, 2)
        await outbox.delivered()
        assert receiver.bodies == [2]
        assert outbox.waiting == 0


async def test_batches_are_bounded(database: Database) -> None:
    receiver, before = Receiver(), Outbox(database)

    def many(connection: sqlite3.Connection) -> None:
        for number in range(2 * BATCH + 1):
            before.putting("told", {"n": number})(connection)

    await database.write(many)
    async with started(database, receiver) as outbox:
        await outbox.delivered()
        assert [len(batch) for batch in receiver.batches] == [BATCH, BATCH, 1]
        assert receiver.bodies == list(range(2 * BATCH + 1))


async def test_while_the_cluster_is_away_messages_wait(database: Database) -> None:
    receiver = Receiver()
    receiver.away = True
    async with started(database, receiver) as outbox:
        await put(database, outbox, 1, 2)
        with pytest.raises(ClusterUnavailableError, match="it is away"):
            await outbox.delivered()
        assert (outbox.waiting, await database.read(rows)) == (2, 2)
        receiver.away = False
        await outbox.delivered()
        assert receiver.bodies == [1, 2]


async def test_it_tries_again_by_itself(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "_FIRST_PAUSE", 0.01)
    receiver = Receiver()
    receiver.away = True
    async with started(database, receiver) as outbox:
        await put(database, outbox, 1)
        await receiver.asked.wait()
        receiver.away = False
        receiver.asked.clear()
        await receiver.asked.wait()
        await outbox.delivered()
        assert receiver.bodies == [1]


async def test_who_waits_when_it_closes_is_told(database: Database) -> None:
    receiver = Receiver()
    hangs = asyncio.Event()

    async def hang(messages: Sequence[Message]) -> None:
        receiver.asked.set()
        await hangs.wait()

    receiver.deliver = hang  # type: ignore[method-assign]
    outbox = Outbox(database)
    outbox.start(receiver, Tasks())
    await put(database, outbox, 1)
    waiting = asyncio.create_task(outbox.delivered())
    await receiver.asked.wait()
    late = asyncio.create_task(outbox.delivered())
    await asyncio.sleep(0)
    await outbox.close()
    for task in (waiting, late):
        with pytest.raises(ClusterUnavailableError):
            await task
    with pytest.raises(ClusterUnavailableError):
        await outbox.delivered()


async def test_ids_are_not_used_again_after_a_restart(database: Database) -> None:
    receiver = Receiver()
    for number in (1, 2):
        async with started(database, receiver) as outbox:
            await put(database, outbox, number)
            await outbox.delivered()
    (first,), (second,) = receiver.batches
    assert second.id == first.id + 1


class Outboxes(RuleBasedStateMachine):
    """An outbox over commits, failures and kills; `sent` is what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="pdk-"))
        self.sent: list[int] = []
        self.kills = False
        self.died = asyncio.Event()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(FaultPoint, "reached", self.reached)

    def reached(self) -> None:
        # Called as a method of the point, with this object bound already.
        if self.kills:
            self.died.set()
            raise asyncio.CancelledError  # its task ends at this point, as with the process

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            async with asyncio.timeout(WAIT_SECONDS):
                return await work

        return self.runner.run(wait())

    @initialize()
    def start(self) -> None:
        self.run(self._start())

    async def _start(self) -> None:
        if not hasattr(self, "receiver"):
            self.receiver = Receiver()
        self.database = await Database.open(self.directory / "db")
        self.outbox = Outbox(self.database)
        self.outbox.start(self.receiver, Tasks())

    @rule(count=st.integers(1, 3))
    def commit(self, count: int) -> None:
        for _ in range(count):
            number = len(self.sent)
            self.run(self.database.write(self.outbox.putting("told", {"n": number})))
            self.sent.append(number)

    @rule()
    def undo(self) -> None:
        effect = self.outbox.putting("told", {"n": -1})

        def undone(connection: sqlite3.Connection) -> None:
            effect(connection)
            raise ValueError

        with suppress(ValueError):
            self.run(self.database.write(undone))

    @rule()
    def go_away(self) -> None:
        self.receiver.away = True

    @rule()
    def come_back(self) -> None:
        self.receiver.away = False

    @rule()
    def wait(self) -> None:
        with suppress(ClusterUnavailableError):
            self.run(self.outbox.delivered())
            assert self.receiver.bodies == self.sent
            assert self.outbox.waiting == 0

    @rule()
    def restart(self) -> None:
        self.run(self._restart())

    @rule()
    def die_between_delivery_and_commit(self) -> None:
        self.receiver.away, self.kills = False, True
        number = len(self.sent)
        self.run(self.database.write(self.outbox.putting("told", {"n": number})))
        self.sent.append(number)
        self.run(self.died.wait())
        self.run(self._restart())

    async def _restart(self) -> None:
        await self.outbox.close()
        await self.database.close()
        self.kills = False
        self.died.clear()
        await self._start()

    @invariant()
    def nothing_is_lost_or_out_of_order(self) -> None:
        if hasattr(self, "receiver"):
            assert self.receiver.bodies == self.sent[: len(self.receiver.bodies)]

    def teardown(self) -> None:
        if hasattr(self, "outbox"):
            self.receiver.away = False
            self.run(self.outbox.delivered())
            assert self.receiver.bodies == self.sent
            self.run(self.outbox.close())
            self.run(self.database.close())
        self.patch.undo()
        self.runner.close()
        shutil.rmtree(self.directory)


def test_kills_lose_nothing() -> None:
    run_state_machine_as_test(
        Outboxes,
        settings=how(
            max_examples=how().max_examples // 2,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
