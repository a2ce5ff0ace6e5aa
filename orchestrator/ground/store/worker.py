"""One thread that runs functions in turn, for work that must not block the event loop."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    function: Callable[[], Any]
    outcome: asyncio.Future[Any]


class Worker:
    """A thread whose results go straight to the event loop.

    An executor of the standard library does the same by way of a second future with locks of its
    own, which costs more than most of the functions. The thread ends with `stop`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    async def run(self, function: Callable[[], T]) -> T:
        """The result of `function`, after those of earlier calls.

        A call that is cancelled before its turn has no effect. Raises: the errors of `function`;
        RuntimeError after `stop`.
        """
        if self._stopped:
            raise RuntimeError(f"{self._name} was stopped")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(function, outcome))
        return await outcome

    def stop(self) -> None:
        """Ends the thread after the calls so far."""
        self._stopped = True
        self._jobs.put(None)

    def _work(self) -> None:
        # While the thread waits, it holds nothing of an earlier call.
        while _do(self._jobs.get()):
            pass


def _do(job: _Job | None) -> bool:
    """Runs a job; returns False if there is none any more."""
    if job is None:
        return False
    if job.outcome.cancelled():
        return True
    result, failed = None, None
    try:
        result = job.function()
    except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
        failed = error
    with suppress(RuntimeError):  # the loop has ended, so nobody waits any more
        job.outcome.get_loop().call_soon_threadsafe(_settle, job.outcome, result, failed)
    return True


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
