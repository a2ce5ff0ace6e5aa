"""Runs: their events, results and handles, and what begins them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.app.messages import Input, TokenUsage

Kind = Literal[
    "start", "tick_start", "text", "tool_call", "tool_result", "tick_end", "end",
    "spawn_start", "spawn_end",
]  # fmt: skip
Ended = Literal["completed", "max-ticks", "aborted"]


@dataclass(frozen=True, slots=True)
class AppEvent:
    """One event, and what belongs to it.

    `spawn_path` is of a child's event: the spawns that lead to the child, the outermost first.
    """

    kind: Kind
    data: dict[str, Any] = field(default_factory=dict)
    spawn_path: tuple[str, ...] = ()


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

    `await` gives its result, or raises what ended it. A caller that stops awaiting does not end it.

    Args:
        told: called with each event of the run itself.
        top: the run at the top of the children's tree; None: this one.
        forward: called with each event, also of children.
    """

    def __init__(
        self,
        id: str,
        told: Callable[[AppEvent], None] = lambda _: None,
        top: "Execution | None" = None,
        forward: Callable[[AppEvent], None] | None = None,
    ) -> None:
        self.id = id
        # It counts the spawns of the whole tree.
        self.top: Execution = top or self
        self.spawned = 0
        self._told = told
        self._forward = forward
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
        if self._forward is not None:
            self._forward(event)

    def end(self, result: AppResult | None, error: BaseException | None = None) -> None:
        """Ends the run, once."""
        self._result, self._error = result, error
        status, reason = (result.status, result.reason) if result else ("failed", str(error))
        self.tell(AppEvent("end", {"status": status, "error": reason}))
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        """Wakes those who wait; those who wait later wait for the next event."""
        self._changed.set()
        self._changed = asyncio.Event()


Proceed = Callable[[Input], Awaitable[AppResult]]
Middleware = Callable[[Input, Proceed], Awaitable[AppResult]]


class Send:
    """Sends, and returns the run's handle."""

    def __init__(self, send: Callable[[Input], Execution]) -> None:
        self._send = send

    def __call__(self, messages: Input) -> Execution:
        """Queues the messages, and runs. Raises: SessionClosedError."""
        return self._send(messages)

    def use(self, *around: Middleware) -> Proceed:
        """A send with functions around it, the first one outermost.

        Each gets the messages and what sends them; it may change both, and what is returned.
        """

        async def plainly(messages: Input) -> AppResult:
            return await self._send(messages)

        proceed: Proceed = plainly
        for each in reversed(around):
            proceed = _around(each, proceed)
        return proceed


def _around(middleware: Middleware, proceed: Proceed) -> Proceed:
    async def through(messages: Input) -> AppResult:
        return await middleware(messages, proceed)

    return through
