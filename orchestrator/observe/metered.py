"""What the steps of a coroutine take of their thread's time, told as they are taken."""

import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Metered(Generic[T]):
    """Awaits `work`. What others do while it waits is none of its time."""

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        spent: Callable[[float], object],
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`spent` is told the seconds of each step."""
        self._work = work
        self._spent = spent
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, T]:
        """What `work` returns or raises."""
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
