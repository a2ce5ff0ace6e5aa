"""Lists that are made without holding anybody up."""

import asyncio

from api.shape.spread import STEP, spread


async def test_others_are_served_after_every_few() -> None:
    turns = 0
    seen: list[int] = []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def view(number: int) -> int:
        seen.append(turns)
        return -number

    counting = asyncio.create_task(count())
    found = await spread(range(5 * STEP + 1), view)
    counting.cancel()
    assert found == [-number for number in range(5 * STEP + 1)]
    assert seen[0] == seen[STEP - 1]
    assert len(set(seen[::STEP])) == 6


async def test_an_empty_list() -> None:
    assert await spread([], str) == []
