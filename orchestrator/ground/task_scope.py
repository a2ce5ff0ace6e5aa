"""Tasks with an owner: each is held until it has ended, and none fails unnoticed.

Nothing else in the control plane creates tasks. `tasks` has the tasks that run forever.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar

from orchestrator.ground.errors import PaddockError

T = TypeVar("T")

log = logging.getLogger(__name__)


class TaskScope:
    """The tasks of one owner, which ends them with `drain` or `close`."""

    def __init__(self, kind: str) -> None:
        """`kind` names the work in the log."""
        self._kind = kind
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """The number of tasks that have not ended, or have only just ended."""
        return len(self._tasks)

    @property
    def idle(self) -> bool:
        """Whether no task is running."""
        return all(task.done() for task in self._tasks)

    def begin(
        self,
        work: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Starts work whose caller waits for it and sees its result."""
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts work for which its caller need not wait; its failure is logged."""
        task = self.begin(work)
        task.add_done_callback(lambda done: self._look(done, logging.WARNING))
        return task

    def begin_now(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Like `begin`, but the first step is done before this returns (see `Begun`)."""
        return self.begin(_rest(Begun(work)))

    async def shield(
        self, work: Coroutine[Any, Any, T], abandoned: Callable[[T], None] | None = None
    ) -> T:
        """Returns the result of `work`, which continues if the caller is cancelled.

        `abandoned` then gets its result; its failure is logged.
        """
        task = self.begin(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: self._look(done, logging.INFO, abandoned))
            raise

    async def results(self) -> list[Any]:
        """The results of all running tasks, which continue if the caller is cancelled.

        Raises: the error of the first one that fails.
        """
        return await asyncio.shield(asyncio.gather(*self._tasks))

    async def one_ended(self) -> None:
        """Waits until one of the running tasks has ended, if there is one."""
        if self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def drain(self) -> None:
        """Waits until no task is running any more, ignoring results."""
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks)
            _see(done)

    def cancel(self) -> None:
        """Cancels the running tasks."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancels the running tasks, and returns when they have ended."""
        while self._tasks:
            self.cancel()
            done, _ = await asyncio.wait(self._tasks)
            _see(done)

    def _look(
        self, task: asyncio.Task[T], level: int, abandoned: Callable[[T], None] | None = None
    ) -> None:
        """Logs a failure, an expected one at `level`."""
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if abandoned is not None:
                abandoned(task.result())
        elif isinstance(error, PaddockError):
            log.log(level, "%s failed: %s", self._kind, error.detail)
        else:
            log.error("%s failed", self._kind, exc_info=error)


class Begun(Generic[T]):
    """Does the first step of `work` when it is made. Awaiting it, which must follow, does the rest.

    A task would begin only after everything that is due already. The first step is no part of the
    awaiting task, so it may not use a time limit, which would end the task that runs just then.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._steps = work.__await__()
        # Gives again what the first step gave: what the work waits for, or its end.
        self._first: Callable[[], Any]
        try:
            waits_for = self._steps.send(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where this is awaited
            self._first = partial(_raise, error)
        else:
            self._first = lambda: waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        """Returns or raises what `work` does."""
        step = self._first
        while True:
            try:
                waits_for = step()
            except StopIteration as ended:
                result: T = ended.value
                return result
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is raised where `work` waits
                step = partial(self._steps.throw, error)
            else:
                step = partial(self._steps.send, None)


async def _rest(begun: Begun[T]) -> T:
    return await begun


def _raise(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def together() -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], Any]]:
    """Yields a function that starts tasks, which have all ended after the block.

    The first failure, also the block's own, cancels the block and the other tasks, and is raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group.create_task
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _see(done: Iterable[asyncio.Task[Any]]) -> None:
    """Retrieves results that nobody waits for any more, so asyncio does not report them."""
    for task in done:
        if not task.cancelled():
            task.exception()


class InUse:
    """Tasks that end when what they use is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        """The number of tasks that use it."""
        return len(self._tasks)

    @contextmanager
    def by_this_task(self) -> Iterator[None]:
        """Counts the current task as a user until the block ends; `cut` cancels it."""
        task = asyncio.current_task()
        if task is None:
            yield
            return
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def cut(self) -> None:
        """Cancels all tasks that use it."""
        for task in self._tasks:
            task.cancel()
