"""`session.send`: what sends, and functions around it."""

from collections.abc import Awaitable, Callable

from paddock.app.execution import AppResult, Execution
from paddock.app.messages import Input

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
