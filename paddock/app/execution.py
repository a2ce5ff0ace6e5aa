"""The handle of a run: it can be awaited, and followed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from paddock.app.events import AppEvent
from paddock.app.messages import TokenUsage

if TYPE_CHECKING:
    from paddock.app.origin import Origin

Ended = Literal["completed", "max-ticks", "aborted"]


@dataclass(frozen=True, slots=True)
class AppResult:
    """How a run ended, the model's last text, its calls of the model and their tokens.

    `reason` tells why it was aborted.
    """

    status: Ended
    text: str = ""
    ticks: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    reason: str | None = None


class Execution:
    """One run of a session; all who sent to it while it was going on have the same one.

    `await` gives its result, or raises what ended it. Who stops awaiting does not end it.
    """

    def __init__(
        self,
        id: str,
        told: Callable[[AppEvent], None] = lambda _: None,
        origin: "Origin | None" = None,
    ) -> None:
        self.id = id
        # The run at the top of the children's tree counts all their spawns.
        self.top: Execution = origin.run.top if origin and origin.run else self
        self.spawned = 0
        self._told = told
        self._origin = origin
        self._events: list[AppEvent] = []
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._result: AppResult | None = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def __await__(self) -> Generator[object, None, AppResult]:
        return self._wait().__await__()

    async def _wait(self) -> AppResult:
        await self._ended.wait()
        if self._result is None:
            raise self._error or RuntimeError("the run ended without a result")
        return self._result

    async def events(self) -> AsyncIterator[AppEvent]:
        """Every event from the run's start to its end, at any time and as often as wanted."""
        at = 0
        while True:
            while at < len(self._events):
                yield self._events[at]
                at += 1
            if self.done:
                return
            await self._changed.wait()

    def begin(self, session_id: str) -> None:
        """The first event."""
        self.tell(AppEvent("start", {"session_id": session_id, "execution_id": self.id}))

    def tell(self, event: AppEvent) -> None:
        """Adds an event of the run. Ticks, calls and spawns are limited, so the list is."""
        self.forward(event)
        self._told(event)

    def forward(self, event: AppEvent) -> None:
        """Adds an event of a child; no hook is called."""
        self._events.append(event)
        self._wake()
        if self._origin is not None:
            self._origin.forward(event)

    def end(self, result: AppResult | None, error: BaseException | None = None) -> None:
        """Ends the run, once."""
        self._result, self._error = result, error
        status, reason = (result.status, result.reason) if result else ("failed", str(error))
        self.tell(AppEvent("end", {"status": status, "error": reason}))
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        """Those who wait now look again; those who wait later wait for the next event."""
        self._changed.set()
        self._changed = asyncio.Event()
