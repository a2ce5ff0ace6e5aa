"""The order in which callers that look something up are served."""

import asyncio
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.round_robin import SYSTEM, Queue, RoundRobin, asker, asking
from orchestrator.ground.store.database import Database
from tests.support.limits import WAIT_SECONDS

PATHS = st.sampled_from([SYSTEM, ("a", "a"), ("a", "handle:1"), ("a", "handle:2"), ("b", "b")])


def drained(rounds: RoundRobin[str]) -> str:
    found = []
    while (item := rounds.take()) is not None:
        found.append(item)
    return " ".join(found)


def test_keys_are_served_round_robin_and_so_are_the_handles_of_one() -> None:
    rounds = RoundRobin[str]()
    for who, items in (
        (("a", "x"), "1 2 3 4"),
        (("a", "y"), "5 6"),
        (("b", "b"), "7"),
        (SYSTEM, "8"),
    ):
        for item in items.split():
            rounds.add(who, item)
    rounds.remove(("a", "x"), "3")
    rounds.remove(("a", "x"), "7")
    rounds.remove(("c", "x"), "1")
    assert drained(rounds) == "1 7 8 5 2 6 4"
    assert not rounds


@given(st.lists(st.tuples(PATHS, st.booleans())))
def test_all_come_once_in_their_order_and_no_name_twice_before_another(
    asked: list[tuple[tuple[str, ...], bool]],
) -> None:
    rounds = RoundRobin[int]()
    left: dict[tuple[str, ...], list[int]] = {}
    for number, (who, stays) in enumerate(asked):
        rounds.add(who, number)
        if stays:
            left.setdefault(who, []).append(number)
        else:
            rounds.remove(who, number)
    whose = {number: who for who, numbers in left.items() for number in numbers}
    since: dict[str, set[str]] = {}
    while (item := rounds.take()) is not None:
        who = whose[item]
        assert left[who].pop(0) == item
        waiting = {each[0] for each, numbers in left.items() if numbers} - {who[0]}
        # All that have waited since this name was served have been served meanwhile.
        assert not since.get(who[0], set())
        since = {name: others - {who[0]} for name, others in since.items()}
        since[who[0]] = waiting
    assert not any(left.values())
    assert not rounds


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def order() -> list[str]:
    return []


async def begin(queue: Queue, name: str, order: list[str], until: asyncio.Event) -> None:
    async with queue.slot((name,)):
        order.append(name)
        await until.wait()


async def test_one_has_the_slot_until_it_is_done(order: list[str]) -> None:
    queue, until = Queue(), asyncio.Event()
    tasks = [asyncio.create_task(begin(queue, name, order, until)) for name in ("a", "a", "a", "b")]
    await settle()
    assert order == ["a"]
    until.set()
    await asyncio.gather(*tasks)
    assert order == ["a", "a", "b", "a"]


@pytest.mark.parametrize("given_first", [True, False])
async def test_who_leaves_has_no_slot_and_keeps_nobody_from_theirs(
    order: list[str], given_first: bool
) -> None:
    queue, until = Queue(), asyncio.Event()
    first = asyncio.create_task(begin(queue, "a", order, until))
    leaving = asyncio.create_task(begin(queue, "b", order, until))
    staying = asyncio.create_task(begin(queue, "c", order, until))
    await settle()
    if given_first:  # it gets its slot and leaves at the same moment
        until.set()
        await asyncio.sleep(0)
    leaving.cancel()
    until.set()
    await asyncio.gather(first, staying)
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert order[0] == "a"
    assert order[-1] == "c"
    async with asyncio.timeout(WAIT_SECONDS), queue.slot(("d",)):
        order.append("d")


async def test_a_slot_is_free_however_its_work_does() -> None:
    queue = Queue()
    with pytest.raises(ValueError, match="failed"):
        async with queue.slot(("a",)):
            raise ValueError("failed")
    async with asyncio.timeout(WAIT_SECONDS), queue.slot(("a",)):
        pass


def test_who_asks_is_known_in_its_context_only() -> None:
    assert asker() == SYSTEM
    with asking("a", "handle:1"):
        assert asker() == ("a", "handle:1")
    assert asker() == SYSTEM


async def test_a_page_waits_for_no_more_than_one_of_anothers(
    tmp_path: Path, order: list[str]
) -> None:
    database = await Database.open(tmp_path / "paddock.db")
    free = threading.Event()

    async def look(name: str) -> None:
        def work(_: object) -> None:
            assert free.wait(WAIT_SECONDS)
            order.append(name)

        with asking(name, name):
            await database.browse(work)

    tasks = [asyncio.create_task(look("many")) for _ in range(100)]
    await settle()
    tasks.append(asyncio.create_task(look("one")))
    tasks.append(asyncio.create_task(database.browse(lambda _: order.append("system"))))
    await settle()
    free.set()
    await asyncio.gather(*tasks)
    # One of them had already begun.
    assert order.index("one") <= 2
    assert order.index("system") <= 3
    assert len(order) == 102
    await database.close()


async def test_who_leaves_while_it_is_looked_up_counts(tmp_path: Path, order: list[str]) -> None:
    """A key that asks and leaves repeatedly gets no precedence by that."""
    database = await Database.open(tmp_path / "paddock.db")
    free, began = threading.Event(), threading.Event()

    async def look(name: str) -> None:
        def work(_: object) -> None:
            began.set()
            assert free.wait(WAIT_SECONDS)
            order.append(name)

        with asking(name, name):
            await database.browse(work)

    leaving = asyncio.create_task(look("many"))
    await asyncio.to_thread(began.wait, 60)
    more = [asyncio.create_task(look("many")) for _ in range(20)]
    other = asyncio.create_task(look("one"))
    await settle()
    leaving.cancel()
    await settle()
    more += [asyncio.create_task(look("many")) for _ in range(20)]
    await settle()
    free.set()
    await asyncio.gather(other, *more)
    assert order.index("one") <= 2
    await database.close()
