"""Long lists, which are made without holding anybody up."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
View = TypeVar("View")

# A view takes up to a third of a millisecond.
STEP = 20


async def spread(items: Iterable[Item], view: Callable[[Item], View]) -> list[View]:
    """The view of each item; others are served after every few of them."""
    found = []
    for number, item in enumerate(items, 1):
        found.append(view(item))
        if number % STEP == 0:
            await asyncio.sleep(0)
    return found
