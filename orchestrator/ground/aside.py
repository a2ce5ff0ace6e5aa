"""Keeps work on what others send from holding the event loop."""

from collections.abc import Callable
from typing import TypeVar

from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.ground.threads import Threads

T = TypeVar("T")

# Work on so many bytes takes a few milliseconds at most.
AT_ONCE_BYTES = 16 * 1024
# More would only share the interpreter, and each delays the event loop by its switch interval.
_MOST = 2
_SECONDS = 30.0
_RETRY_SECONDS = 5


class Aside:
    """Does short work at once and long work in a thread, where the event loop interrupts it.

    Only for work that consists of many short steps: a thread can't be interrupted within one.
    """

    def __init__(self) -> None:
        self._threads = Threads("long requests", _MOST)

    async def call(self, size: int, function: Callable[[], T]) -> T:
        """The result of `function`, whose work grows with `size`, in bytes.

        Raises: CapacityExhaustedError if it takes too long; the errors of `function`.
        """
        if size <= AT_ONCE_BYTES:
            return function()
        try:
            return await self._threads.call(function, _SECONDS)
        except TimeoutError:
            raise CapacityExhaustedError(
                "too many long requests are being read: try again", retry_after=_RETRY_SECONDS
            ) from None
