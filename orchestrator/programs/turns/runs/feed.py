"""What happens in a run, for those who follow it while it runs."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.programs.turns.event_feed import EventFeed

# Text is passed on in pieces of at least so many characters, which bounds their number.
_PIECE = 24
# Of all kept events; each counts for at least so many.
_MOST_CHARACTERS = 2 * 1024 * 1024
_LEAST_CHARACTERS = 256


class RunEvent(NamedTuple):
    """One thing that happened: `tick`, `text`, `tool_call` or `tool_result`."""

    name: str
    members: dict[str, Any]


@dataclass(slots=True, eq=False)
class RunFeed(EventFeed[RunEvent]):
    """The latest events, counted from the run's first one; slow followers miss the oldest."""

    _events: deque[tuple[RunEvent, int]] = field(default_factory=deque)
    _size: int = 0
    # How many are no longer kept.
    _gone: int = 0
    _text: list[str] = field(default_factory=list)

    def say(self, tick: int, piece: str) -> None:
        """Adds a piece of the model's text."""
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
        """Adds an event."""
        size = max(_LEAST_CHARACTERS, sum(len(str(each)) for each in members.values()))
        self._events.append((RunEvent(name, members), size))
        self._size += size
        while self._size > _MOST_CHARACTERS and len(self._events) > 1:
            self._size -= self._events.popleft()[1]
            self._gone += 1
        self._wake()

    def after(self, known: int) -> list[tuple[int, RunEvent]]:
        """The kept events with higher numbers, and their numbers."""
        kept = enumerate((event for event, _ in self._events), self._gone + 1)
        return [each for each in kept if each[0] > known]
