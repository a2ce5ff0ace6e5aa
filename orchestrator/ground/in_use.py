"""The tasks that use something, so that they can be cut off."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class InUse:
    """Tasks that end when what they use is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        """The number of tasks that use it."""
        return len(self._tasks)

    @contextmanager
    def by_this_task(self) -> Iterator[None]:
        """The current task uses it meanwhile, and is cancelled by `cut`."""
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
