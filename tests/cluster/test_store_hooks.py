"""Hooks of a cluster: one queue for all nodes, in the order of each session, whoever sends."""

import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.ground.store.database import Database
from orchestrator.operate.hooks.delivery_queue import DeliveryQueue, OwnQueue
from orchestrator.operate.hooks.delivery_rows import Delivery, FailedTry, NewDelivery
from orchestrator.operate.hooks.shared_queue import OVERDUE_SECONDS, SharedQueue
from orchestrator.rules.access.keys import Principal, Role
from tests.api.conftest import Api
from tests.support.cluster_store import make_schema, opened
from tests.support.postgres import FreshDatabase
from tests.support.receiver import Receiver, receiving
from tests.support.shared_nodes import node_settings, shared_node, shared_nodes
from tests.support.until import until

ADMIN = Principal("admin", Role.ADMIN)
HOOK, LONG_AGO, AT = "hook-1", "2026-01-01", "2026-03-04"
_HOOK_ROW = (
    "INSERT INTO paddock.hooks VALUES ('hook-1', 'http://x', '[]', NULL, NULL, 'ci', '', '')"
)


@pytest_asyncio.fixture
async def dsn(postgres: FreshDatabase) -> str:
    await make_schema(postgres.dsn)
    return postgres.dsn


@pytest_asyncio.fixture(params=["own", "shared"])
async def queues(
    request: pytest.FixtureRequest, postgres: FreshDatabase, dsn: str, tmp_path: Path
) -> AsyncIterator[list[DeliveryQueue]]:
    """A queue as its users see it: in a cluster, several nodes."""
    async with AsyncExitStack() as closers:
        own = await Database.open(tmp_path / "paddock.db")
        closers.push_async_callback(own.close)
        if request.param == "own":
            yield [OwnQueue(own, HOOK)]
            return
        postgres.sql(_HOOK_ROW)
        found: list[DeliveryQueue] = []
        for name in ("one", "two"):
            database = await closers.enter_async_context(opened(dsn))
            found.append(SharedQueue(database, own, HOOK, name))
        yield found


def message(name: str, session: str) -> NewDelivery:
    return NewDelivery(f"{HOOK}-{name}", session, session, "session.closed", "{}")


def names(found: list[Delivery]) -> list[str]:
    return [each.id.removeprefix(f"{HOOK}-") for each in found]


async def _check_one_due(queue: DeliveryQueue) -> None:
    """Each session with a message that waits has exactly one that is due."""
    waiting = await queue.page("waiting", 0, 1000, LONG_AGO)
    due = [each.session_key for each in waiting if each.due_at is not None]
    assert sorted(due) == sorted({each.session_key for each in waiting})
    undelivered = await queue.page("undelivered", 0, 1000, LONG_AGO)
    assert all(each.due_at is None for each in undelivered)
    assert await queue.counts() == (len(waiting), len(undelivered))


@pytest.mark.parametrize("seed", range(3))
async def test_any_steps_keep_the_order_of_each_session(
    queues: list[DeliveryQueue], seed: int
) -> None:
    chance = random.Random(seed)
    delivered: dict[str, list[int]] = defaultdict(list)
    again: set[int] = set()
    for number in range(60):
        queue, which = chance.choice(queues), chance.randrange(3)
        step = chance.choice(["put", "put", "deliver", "deliver", "postpone", "give_up", "again"])
        if step == "put":
            await queue.enqueue(number, [message(f"{number:03}", f"s{which}")], 0.0)
        elif step == "again":
            for each in (await queue.page("undelivered", 0, 100, LONG_AGO))[:1]:
                assert await queue.try_again(each.id, 5.0, LONG_AGO)
                again.add(each.number)
        else:
            others = [f"s{other}" for other in range(3) if other != which]
            for each in await queue.claim(others, 9, 1000.0, 99.0):
                if step == "deliver":
                    await queue.deliver(each, 5.0)
                    if each.number not in again:
                        delivered[each.session_key].append(each.number)
                elif step == "postpone":
                    await queue.postpone(FailedTry(each, "e", AT), 50.0)
                else:
                    await queue.give_up(FailedTry(each, "e \0", AT), 5.0, LONG_AGO)
        await _check_one_due(queue)
    assert all(numbers == sorted(numbers) for numbers in delivered.values())
    assert sum(map(len, delivered.values())) >= 5


async def test_what_is_claimed_is_due_again_if_nobody_learns_how_it_went(
    queues: list[DeliveryQueue],
) -> None:
    queue = queues[0]
    await queue.enqueue(1, [message("a", "s1"), message("b", "s1"), message("c", "s2")], 0.0)
    assert (await queue.look((), 0.0)).due_at == 0.0
    assert names(await queue.claim((), 9, 10.0, 40.0)) == ["a", "c"]
    assert await queue.claim((), 9, 10.0, 40.0) == []
    assert await queue.look((), 10.0) == (40.0, (3, 0))
    again = await queue.claim(("s2",), 9, 40.0, 99.0)
    assert [(each.id, each.tries) for each in again] == [("hook-1-a", 1)]
    assert await queue.limit_due(45.0) == (3, 0)
    assert (await queue.look(("s2",), 10.0)).due_at == 45.0


async def test_another_node_sends_what_one_has_left_and_settles_it_alone(
    postgres: FreshDatabase, dsn: str, tmp_path: Path
) -> None:
    postgres.sql(_HOOK_ROW)
    own = await Database.open(tmp_path / "paddock.db")
    async with opened(dsn) as database:
        one, two = (SharedQueue(database, own, HOOK, name) for name in ("one", "two"))
        await one.enqueue(1, [message("a", "s1"), message("b", "s1")], 0.0)
        late = OVERDUE_SECONDS
        assert await two.claim((), 9, late - 1, 99.0) == []
        assert (await two.look((), 0.0)).due_at == late
        (begun,) = await one.claim((), 9, 1.0, 12.0)
        # The one that has begun is gone, or is only slow.
        (taken,) = await two.claim((), 9, 12.0 + late, 99.0)
        assert (taken.id, taken.tries) == (begun.id, 1)
        for settled in (one.deliver(begun, 50.0), one.postpone(FailedTry(begun, "e", AT), 1.0)):
            assert (await settled).waiting == 2
        assert await one.claim((), 9, 60.0, 99.0) == []
        await two.deliver(taken, 50.0)
        assert names(await one.claim((), 9, 60.0, 99.0)) == ["b"]
        # What is put there again after a kill is there once; a hook that is gone gets nothing.
        await one.enqueue(2, [message("b", "s1")], 0.0)
        assert await one.counts() == (1, 0)
        postgres.sql("DELETE FROM paddock.hooks")
        assert await one.enqueue(3, [message("c", "s1")], 0.0) == (1, 0)
    await own.close()


async def ends(api: Api, name: str, key: str) -> None:
    await api.session(id=name, key=key)
    await api.json("DELETE", f"/api/sessions/{name}", key=key)


def of(receiver: Receiver) -> set[str]:
    return {each.json["session"]["id"] for each in receiver.requests}


async def test_a_hook_is_told_of_sessions_on_all_nodes(dsn: str, postgres: FreshDatabase) -> None:
    async with receiving("/hooks/paddock") as receiver, AsyncExitStack() as nodes:
        more: Any = {"hook_prefixes": (receiver.url,)}
        settings = nodes.enter_context(node_settings(dsn, "two", **more))
        (one,) = await nodes.enter_async_context(shared_nodes(dsn, "one", **more))
        made = await one.json("POST", "/api/keys", status=201, json={"name": "ci"})
        key = made["key"]
        async with shared_node(settings) as two:
            body = {"url": receiver.url, "events": ["session.closed"]}
            hook = await one.json("POST", "/api/hooks", key=key, status=201, json=body)
            # What happens on a node before it has heard of the hook counts, too.
            await ends(two, "there", key)
            await ends(one, "here", key)
            await until(lambda: of(receiver) == {"here", "there"})
            (listed,) = (await two.json("GET", "/api/hooks", key=key))["items"]
            assert (listed["id"], listed["url"]) == (hook["id"], receiver.url)
            assert hook["secret"] not in str(listed)
            assert hook["secret"] not in postgres.sql("SELECT * FROM paddock.hooks")
            # What needs the database says so while it is away.
            postgres.server.stop()
            for method, path in (("GET", "/api/hooks"), ("DELETE", f"/api/hooks/{hook['id']}")):
                await one.problem(503, "cluster_unavailable", method, path, key=key)
        postgres.server.start()
        # The node that comes again has a copy, and what it is told of.
        async with shared_node(settings) as two:
            await ends(two, "later", key)
            await until(lambda: "later" in of(receiver))
            await two.json("DELETE", f"/api/hooks/{hook['id']}", key=key)
            await until(lambda: one.plane.hooks.visible(ADMIN) == [])
            assert postgres.sql("SELECT count(*) FROM paddock.hook_deliveries").strip() == "0"
            await one.problem(404, "not_found", "DELETE", f"/api/hooks/{hook['id']}", key=key)
