"""Deliveries to one hook, from the ledger to a server that answers well, badly or never."""

import asyncio
import socket
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import TaskName, Tasks
from orchestrator.operate.hooks import delivery_rows, hook_deliveries
from orchestrator.operate.hooks.delivery_queue import OwnQueue
from orchestrator.operate.hooks.hook import Hook
from orchestrator.operate.hooks.hook_deliveries import (
    AT_ONCE,
    MOST_TRIES,
    HookDeliveries,
    kept_since,
)
from orchestrator.record.audit.followers import Followers
from orchestrator.record.audit.ledger import Ledger
from paddock.webhooks import verify
from tests.support.limits import WAIT_SECONDS
from tests.support.manual_clock import ManualClock
from tests.support.receiver import ENDLESS, ERROR, HANGS, OK, Received, Receiver, Reply, receiving
from tests.support.until import until
from tests.unit.ledger_support import draft

SECRET = "the-secret-of-the-tests"
LONG = 100_000.0  # seconds, more than any pause


@dataclass
class Place:
    """A record, and hooks that are told of it."""

    database: Database
    ledger: Ledger
    receiver: Receiver
    clock: ManualClock = field(default_factory=ManualClock)
    metrics: Metrics = field(default_factory=Metrics)
    refusal: str | None = None

    @asynccontextmanager
    async def delivering(self, name: str = "one", url: str = "") -> AsyncIterator[HookDeliveries]:
        """A control plane's part for one hook, from its start to its end."""
        hook = Hook(
            id=name,
            url=url or self.receiver.url,
            events=("session.closed",),
            key=None,
            managed_by=None,
            set_by=None,
            created_at="2026-03-04T09:30:12.482113Z",
            secret=SecretStr(SECRET),
        )
        followers = Followers(self.ledger, self.database, lambda _: None)
        deliveries = HookDeliveries(
            hook,
            OwnQueue(self.database, hook.id),
            self.database,
            followers,
            self.metrics,
            lambda _: self.refusal,
            self.clock,
        )
        task = Tasks().start(TaskName.HOOKS, deliveries.run, rounds=deliveries.rounds)
        try:
            # It is told of what is recorded from its first start on.
            await until(lambda: bool(followers._of_all))
            yield deliveries
        finally:
            await task.close()

    async def record(self, *sessions: str) -> None:
        """The next event of each of these sessions."""
        ends = (draft(key, operation="session.terminated") for key in sessions)
        await asyncio.gather(*(self.ledger.append(each) for each in ends))

    def counted(self, outcome: str) -> float:
        return float(self.metrics._hooks[outcome]._value.get())

    async def count(self, outcome: str, number: int) -> None:
        await until(lambda: self.counted(outcome) >= number)


@pytest.fixture
async def place(database: Database, ledger: Ledger) -> AsyncIterator[Place]:
    async with receiving() as receiver:
        yield Place(database, ledger, receiver)


def numbers(receiver: Receiver) -> dict[str, list[int]]:
    """What the receiver got of each session: the places in its chain."""
    found: dict[str, list[int]] = defaultdict(list)
    for request in receiver.requests:
        found[request.json["session"]["id"]].append(request.json["event"]["seq"])
    return found


def failing(*sessions: str) -> Callable[[Received], bytes]:
    return lambda got: ERROR if got.json["session"]["id"] in sessions else OK


async def test_a_message_is_delivered_signed(place: Place) -> None:
    async with place.delivering() as deliveries:
        await place.record("a")
        await place.count("delivered", 1)
        await until(lambda: deliveries.counts == (0, 0))
    (got,) = place.receiver.requests
    assert got.headers["paddock-event"] == got.json["type"] == "session.closed"
    assert got.headers["paddock-delivery"] == got.json["id"]
    timestamp, signed = got.headers["paddock-timestamp"], got.headers["paddock-signature"]
    assert verify(SECRET, timestamp, signed, got.body)


async def test_a_session_that_fails_keeps_its_order_and_delays_no_other(place: Place) -> None:
    place.receiver.answer = failing("s-a")
    async with place.delivering():
        await place.record("a", "b")
        await place.record("a", "b")
        await place.record("a", "b")
        await place.count("delivered", 3)
        await place.count("failed", 1)
        assert numbers(place.receiver) == {"s-a": [1], "s-b": [1, 2, 3]}
        place.clock.advance(LONG)
        await place.count("failed", 2)
        place.receiver.answer = lambda _: OK
        place.clock.advance(LONG)
        await place.count("delivered", 6)
    assert numbers(place.receiver) == {"s-a": [1, 1, 1, 2, 3], "s-b": [1, 2, 3]}
    first, second, third, *_ = (
        r for r in place.receiver.requests if r.json["session"]["id"] == "s-a"
    )
    assert first.json["id"] == second.json["id"] == third.json["id"]
    assert first.body == second.body == third.body


async def test_nothing_is_tried_again_before_its_time(place: Place) -> None:
    place.receiver.answer = lambda _: ERROR
    async with place.delivering():
        await place.record("a")
        await place.count("failed", 1)
        place.clock.advance(0.4)
        await place.record("b")
        await place.count("failed", 2)
        assert numbers(place.receiver) == {"s-a": [1], "s-b": [1]}
        place.clock.advance(1.0)
        await place.count("failed", 4)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 301 Away\r\nLocation: /elsewhere\r\n\r\n",
        b"HTTP/1.1 404 Absent\r\n\r\n",
        b"SSH-2.0-x y\r\n",
        b"",
        HANGS,
    ],
)
async def test_what_is_no_success_is_tried_again(
    place: Place, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_deliveries, "TRY_SECONDS", 0.2)
    place.receiver.answer = lambda _: answer
    async with place.delivering():
        await place.record("a")
        await place.count("failed", 1)
        monkeypatch.undo()
        place.receiver.answer = lambda _: OK
        place.clock.advance(LONG)
        await place.count("delivered", 1)
    assert numbers(place.receiver) == {"s-a": [1, 1]}
    assert {r.line for r in place.receiver.requests} == {"POST /paddock HTTP/1.1"}


async def test_an_endless_answer_is_a_success_that_takes_little(place: Place) -> None:
    place.receiver.answer = lambda _: ENDLESS
    async with place.delivering():
        await place.record("a")
        await place.count("delivered", 1)
    assert place.receiver.sent < 64 * 2**20


async def test_one_that_hangs_delays_no_other_session(place: Place) -> None:
    place.receiver.answer = lambda got: HANGS if got.json["session"]["id"] == "s-a" else OK
    async with place.delivering():
        await place.record("a")
        await until(lambda: "s-a" in numbers(place.receiver))
        await place.record(*"bcdefghijk")
        await place.count("delivered", 10)


async def test_names_that_nobody_finds_delay_no_other_hook(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's own threads would all be in calls that hang."""
    look_up, goes_on, asked = socket.getaddrinfo, threading.Event(), 0

    def hanging(host: str, *more: Any, **named: Any) -> Any:
        nonlocal asked
        if host == "hangs.example":
            asked += 1
            goes_on.wait()
            raise socket.gaierror("nobody knows it")
        return look_up(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    port = place.receiver.url.split(":")[2]
    async with AsyncExitStack() as stack:
        for number in range(16):
            stuck = place.delivering(f"stuck-{number}", f"http://hangs.example:{port}")
            await stack.enter_async_context(stuck)
        await place.record(*"abcd")
        await until(lambda: asked == 16 * AT_ONCE)
        async with place.delivering("live", f"http://localhost:{port}"):
            await place.record("e")
            await place.count("delivered", 1)
        goes_on.set()


async def test_what_is_given_up_is_kept_and_can_be_sent_again(place: Place) -> None:
    place.receiver.answer = failing("s-a")
    async with place.delivering() as deliveries:
        await place.record("a")
        for tries in range(1, MOST_TRIES + 1):
            await place.count("failed", tries)
            place.clock.advance(LONG)
        await place.count("undelivered", 1)
        place.receiver.answer = lambda _: OK
        await place.record("a")
        await place.count("delivered", 1)
        assert numbers(place.receiver) == {"s-a": [1] * MOST_TRIES + [2]}
        (kept,) = await place.database.read(
            lambda connection: delivery_rows.page(connection, "one", None, 0, 9, kept_since())
        )
        assert (kept.status, kept.tries, kept.error) == ("undelivered", MOST_TRIES, "status 500")
        again = await place.database.write(
            lambda connection: delivery_rows.try_again(
                connection, "one", kept.id, place.clock.now(), kept_since()
            )
        )
        assert again is not None
        deliveries.wake(again[1])
        await place.count("delivered", 2)
    assert place.receiver.requests[-1].json["id"] == kept.id


async def test_what_is_not_permitted_is_not_sent(place: Place) -> None:
    place.refusal = "the key ci is not valid any more"
    async with place.delivering():
        await place.record("a")
        await place.count("failed", 1)
        assert place.receiver.requests == []
        place.refusal = None
        place.clock.advance(LONG)
        await place.count("delivered", 1)


async def test_a_restart_at_any_moment_loses_nothing_and_keeps_the_order(place: Place) -> None:
    """Each control plane ends at another moment; the record goes on meanwhile."""
    sessions = [f"k{number}" for number in range(6)]
    for ends_after in range(1, 20):
        place.clock.advance(LONG)
        place.receiver.answer = partial(_hangs_for, ends_after % 6)
        wanted = len(place.receiver.requests) + ends_after % 7
        async with place.delivering():
            await place.record(*sessions)
            await until(partial(_has, place.receiver, wanted))
        await place.record(*sessions)
    place.receiver.answer = lambda _: OK
    async with place.delivering() as deliveries:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await _all_told(place, deliveries):
                place.clock.advance(LONG)
                await asyncio.sleep(0.01)
    for session, got in numbers(place.receiver).items():
        first = list(dict.fromkeys(got))
        assert first == list(range(1, 39)), session
        # A message is repeated only while it is the latest that was sent.
        assert got == sorted(got), session


def _hangs_for(number: int, got: Received) -> Reply:
    return HANGS if got.json["session"]["id"] == f"s-k{number}" else OK


def _has(receiver: Receiver, wanted: int) -> bool:
    return len(receiver.requests) >= wanted


async def _all_told(place: Place, deliveries: HookDeliveries) -> bool:
    told = numbers(place.receiver)
    return deliveries.counts.waiting == 0 and all(38 in got for got in told.values())


async def test_a_kill_between_the_answer_and_its_note_delivers_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling, never = asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> None:
        settling.set()
        await never.wait()

    with monkeypatch.context() as patch:
        patch.setattr(HookDeliveries, "_settle", hang)
        async with place.delivering():
            await place.record("a")
            await settling.wait()
    async with place.delivering():
        place.clock.advance(LONG)
        await place.count("delivered", 1)
    first, second = place.receiver.requests
    assert first.json == second.json


@pytest.mark.slow
async def test_a_dead_hook_takes_bounded_room_and_delays_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand sessions, and a server that never answers."""
    monkeypatch.setattr(hook_deliveries, "MOST_WAITING", 200)
    monkeypatch.setattr(hook_deliveries, "TRY_SECONDS", 600.0)
    keys = [f"k{number}" for number in range(1000)]
    async with receiving("/dead") as dead:
        dead.answer = lambda _: HANGS
        async with place.delivering("live"), place.delivering("dead", dead.url) as stuck:
            for start in range(0, 1000, 250):
                await place.record(*keys[start : start + 250])
            await place.count("delivered", 1000)
            assert len(dead.requests) == len(stuck._sending) == AT_ONCE
            assert 200 <= stuck.counts.waiting <= 300  # a page of the record above the limit
            (rows,) = await place.database.read(
                lambda c: c.execute(
                    "SELECT count(*) FROM hook_deliveries WHERE hook_id = 'dead'"
                ).fetchone()
            )
            assert rows == stuck.counts.waiting
            assert len(numbers(place.receiver)) == 1000
    # What did not fit waits in the record: it is delivered once the server answers again.
    async with receiving("/dead") as alive, place.delivering("dead", alive.url):
        place.clock.advance(LONG)
        await place.count("delivered", 2000)
    assert len(numbers(alive)) == 1000


async def test_damaged_events_are_left_out(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    await place.record("a")
    async with place.delivering() as deliveries:
        await until(lambda: deliveries.counts == (0, 0))
    await place.record("a")
    await place.database.write(
        lambda c: c.execute("UPDATE events SET body = '{' WHERE id = 2").rowcount
    )
    await place.record("a")
    async with place.delivering():
        await place.count("delivered", 1)
    assert numbers(place.receiver) == {"s-a": [3]}
    assert "event 2 of the record is damaged" in caplog.text


async def test_a_lost_secret_is_an_error_and_no_message_goes_out_unsigned(place: Place) -> None:
    async with place.delivering() as deliveries:
        deliveries.hook = replace(deliveries.hook, secret=None)
        await place.record("a")
        await place.count("failed", 1)
    assert place.receiver.requests == []


async def test_a_disk_that_fails_sends_nothing_in_a_loop(place: Place) -> None:
    """What can't be claimed is not sent, and is sent once it can."""
    async with place.delivering() as deliveries:
        claim = deliveries.queue.claim
        attempts = 0

        async def refuse(*_: object) -> list[delivery_rows.Delivery]:
            nonlocal attempts
            attempts += 1
            raise StoreError("the disk is full")

        deliveries.queue.claim = refuse  # type: ignore[assignment, method-assign]
        await place.record("a")
        await until(lambda: attempts >= 2)
        assert place.receiver.requests == []
        deliveries.queue.claim = claim  # type: ignore[method-assign]
        await place.count("delivered", 1)
    assert len(place.receiver.requests) == 1
