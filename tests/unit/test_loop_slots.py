"""Connections of the way out are served in slots, and everything else on the event loop goes on."""

import asyncio
from collections import Counter

from orchestrator.ground.loop_slots import LoopSlots
from tests.support.limits import WAIT_SECONDS


async def test_many_connections_delay_a_pass_of_the_loop_by_a_few() -> None:
    slots, done = LoopSlots(), 0

    async def connection() -> None:
        nonlocal done
        for _ in range(5):
            await slots.next("a")
            done += 1

    connections = [asyncio.create_task(connection()) for _ in range(50)]
    most, before = 0, 0
    while done < 250:
        await asyncio.sleep(0)
        most, before = max(most, done - before), done
    assert 0 < most <= 2
    await asyncio.gather(*connections)


async def test_sessions_are_served_round_robin_however_many_connections_they_have() -> None:
    slots = LoopSlots()
    order: list[str] = []

    async def connection(session: str) -> None:
        await slots.next(session)
        order.append(session)

    await asyncio.gather(*(connection(session) for session in "aaaaaaaaaabb"))
    assert Counter(order) == Counter("aaaaaaaaaabb")
    assert order.index("b") < 4
    assert order[:5].count("b") == 2


async def test_who_leaves_takes_no_slot() -> None:
    slots = LoopSlots()
    first, second, third = (asyncio.create_task(slots.next(name)) for name in ("a", "a", "b"))
    second.cancel()
    await asyncio.gather(first, third)
    leaving = [asyncio.create_task(slots.next("a")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    await asyncio.wait_for(slots.next("a"), WAIT_SECONDS)
