"""The operations of a running turn, in the form in which they are on record."""

import asyncio
from dataclasses import dataclass, field

from paddock.audit.chain import Event


@dataclass(slots=True, eq=False)
class OperationLog:
    """What the turn has done so far, and the tokens and micro-dollars of its calls of models.

    `earlier` is the number of operations of the turns before.
    """

    earlier: int = 0
    events: list[Event] = field(default_factory=list)
    tokens: int = 0
    cost: int = 0
    ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: Event) -> None:
        """Adds an operation, and wakes those who follow."""
        self.events.append(event)
        self._wake()

    def end(self) -> None:
        """No more follow."""
        self.ended = True
        self._wake()

    async def wait(self, known: int, seconds: float) -> list[Event]:
        """The operations after that many; none if nothing happens for a while, or it has ended."""
        if len(self.events) == known and not self.ended:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return []
        return self.events[known:]

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
