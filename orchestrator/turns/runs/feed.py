"""What happens in a run, for those who follow it while it runs."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Text is passed on in pieces of at least so many characters, which bounds their number.
_PIECE = 24


class RunEvent(NamedTuple):
    """One thing that happened: `tick`, `text`, `tool_call` or `tool_result`."""

    name: str
    members: dict[str, Any]


@dataclass(slots=True, eq=False)
class RunFeed:
    """The events so far. Their number is limited by the ticks, and by what a tick may have."""

    events: list[RunEvent] = field(default_factory=list)
    ended: bool = False
    _text: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, tick: int, piece: str) -> None:
        """A piece of the model's text."""
        self._text.append(piece)
        if sum(map(len, self._text)) >= _PIECE:
            self.flush(tick)

    def flush(self, tick: int) -> None:
        """Passes on what is left of the text."""
        text = "".join(self._text)
        self._text.clear()
        if text:
            text = text.encode(errors="replace").decode()
            self.add("text", tick=tick, text=text)

    def add(self, name: str, **members: Any) -> None:
        """Adds an event, and wakes those who follow."""
        self.events.append(RunEvent(name, members))
        self._wake()

    def end(self) -> None:
        """No more follow."""
        self.ended = True
        self._wake()

    async def wait(self, known: int, seconds: float) -> list[RunEvent]:
        """The events after that many; none if nothing happens for a while, or it has ended."""
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
