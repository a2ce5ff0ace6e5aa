"""An event loop for callers that have none, and the way to it."""

import asyncio
import sys
import threading
import types
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def in_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@types.coroutine
def on_loop() -> Generator[None, None, None]:
    """After `await on_loop()`, an event loop runs: a coroutine of `LoopThread.run` moves to it."""
    if not in_loop():
        yield


class LoopThread:
    """An event loop on its own thread, for callers that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="paddock-client", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` and returns its result; ends it if this thread is interrupted.

        It begins in this thread, because the way to the other costs more than a request.
        """
        if not in_loop():
            try:
                work.send(None)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
        return self._run_on_loop(work)

    def _run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yields the items; the source is closed if the caller stops early."""
        end = object()

        async def following() -> T | object:
            return await anext(items, end)

        try:
            while (item := self._run_on_loop(following())) is not end:
                yield item  # type: ignore[misc]
        finally:
            # At interpreter shutdown the thread is stopped and would never answer.
            if not self._loop.is_closed() and not sys.is_finalizing():
                self._run_on_loop(_closed(items))

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancels running work, runs the last coroutine, and ends the thread; once."""
        if self._loop.is_closed():
            last.close()
            return
        self._run_on_loop(_cancel_others())
        self._run_on_loop(self._loop.shutdown_asyncgens())
        self._run_on_loop(last)
        self._run_on_loop(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _closed(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
