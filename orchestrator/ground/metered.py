"""Measures how much of their thread's time the steps of a coroutine take."""

import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Metered(Generic[T]):
    """Awaits `work` and measures its steps, without the time of others while it waits."""

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        spent: Callable[[float], object],
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`spent` is called with the seconds of each step."""
        self._work = work
        self._spent = spent
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, T]:
        """Returns or raises what `work` does."""
        steps = self._work.__await__()
        step: Callable[[], Any] = partial(steps.send, None)
        while True:
            began = self._clock()
            try:
                awaited = step()
            except StopIteration as ended:
                result: T = ended.value
                return result
            finally:
                self._spent(self._clock() - began)
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - it is raised where `work` waits
                step = partial(steps.throw, error)
            else:
                step = partial(steps.send, None)
