"""Round-robin scheduling: each caller is served one item at a time, however many it requests."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")

# Work of the control plane itself, not of a caller.
SYSTEM = ("",)
_ASKER: ContextVar[tuple[str, ...]] = ContextVar("asker", default=SYSTEM)


@contextmanager
def asking(*who: str) -> Iterator[None]:
    """Attributes look-ups in this context to `who`: the name of a key and its handle, if any."""
    token = _ASKER.set(who)
    try:
        yield
    finally:
        _ASKER.reset(token)


def asker() -> tuple[str, ...]:
    """The caller of look-ups in this context."""
    return _ASKER.get()


class RoundRobin(Generic[T]):
    """Items by caller, as a path of names; at each step of the path, names are served round robin.

    So keys are, and the handles of one key. Items of one path keep their order.
    """

    def __init__(self) -> None:
        # Both in the order in which they are served.
        self._members: dict[str, RoundRobin[T]] = {}
        self._items: dict[T, None] = {}

    def __bool__(self) -> bool:
        """Whether it has items."""
        return bool(self._members or self._items)

    def add(self, who: Sequence[str], item: T) -> None:
        """Adds an item, which must be hashable and not in it yet."""
        if who:
            self._members.setdefault(who[0], RoundRobin()).add(who[1:], item)
        else:
            self._items[item] = None

    def remove(self, who: Sequence[str], item: T) -> None:
        """Removes an item if it is still there."""
        if not who:
            self._items.pop(item, None)
        elif who[0] in self._members:
            self._members[who[0]].remove(who[1:], item)
            if not self._members[who[0]]:
                del self._members[who[0]]

    def take(self) -> T | None:
        """Removes and returns the next item; None if there is none."""
        if self._items:
            item = next(iter(self._items))
            del self._items[item]
            return item
        for name, member in self._members.items():
            del self._members[name]
            taken = member.take()
            if member:  # behind the others
                self._members[name] = member
            return taken
        return None


class Queue:
    """Allows one piece of work at a time."""

    def __init__(self) -> None:
        self._waiting = RoundRobin[asyncio.Future[None]]()
        self._busy = False

    @asynccontextmanager
    async def slot(self, who: Sequence[str]) -> AsyncIterator[None]:
        """Waits for the slot on behalf of `who`, and keeps it until the block ends."""
        if self._busy:
            given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(who, given)
            try:
                await given
            except asyncio.CancelledError:
                self._waiting.remove(who, given)
                if not given.cancelled():  # it got the slot at the same moment
                    self._advance()
                raise
        self._busy = True
        try:
            yield
        finally:
            self._advance()

    def _advance(self) -> None:
        while (given := self._waiting.take()) is not None:
            if not given.done():  # else it is cancelled, but its task has not run yet
                given.set_result(None)
                return
        self._busy = False
