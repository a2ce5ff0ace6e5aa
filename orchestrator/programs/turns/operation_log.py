"""The operations of a running turn, in the form in which they are on record."""

from dataclasses import dataclass, field

from orchestrator.programs.turns.event_feed import EventFeed
from paddock.audit.chain import Event


@dataclass(slots=True, eq=False)
class OperationLog(EventFeed[Event]):
    """The turn's operations so far, and the tokens and micro-dollars of its calls of models.

    `earlier` is the number of operations of earlier turns.
    """

    earlier: int = 0
    events: list[Event] = field(default_factory=list)
    tokens: int = 0
    cost: int = 0

    def add(self, event: Event) -> None:
        """Adds an operation."""
        self.events.append(event)
        self._wake()

    def after(self, known: int) -> list[tuple[int, Event]]:
        """The operations after that many, with their numbers."""
        return list(enumerate(self.events[known:], known + 1))
