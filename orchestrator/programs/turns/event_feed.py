"""Events of what goes on in a turn, for those who follow it to its end."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class EventFeed(Generic[T]):
    """Events, counted from 1; a subclass keeps them."""

    ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def after(self, known: int) -> list[tuple[int, T]]:
        """The kept events with higher numbers, and their numbers."""
        raise NotImplementedError

    def end(self) -> None:
        """No more follow."""
        self.ended = True
        self._wake()

    async def follow(self, seconds: float) -> AsyncGenerator[tuple[int, T] | None]:
        """The events with their numbers, to the end; None after so many seconds without one."""
        known = 0
        while True:
            changed = self._changed
            events = self.after(known)
            for known, event in events:
                yield known, event
            if events:
                continue
            if self.ended:
                return
            try:
                async with asyncio.timeout(seconds):
                    await changed.wait()
            except TimeoutError:
                yield None

    def _wake(self) -> None:
        """Wakes those who follow."""
        self._changed.set()
        self._changed = asyncio.Event()
