"""A command that can't be watched when its word comes keeps no guard."""

from typing import cast

import pytest

from sandbox_agent.run.executor import Executor
from sandbox_agent.run.process import Command


class Unwatched:
    """A command whose descriptors the kernel has no memory to watch."""

    def __init__(self) -> None:
        self.dropped = False

    def go(self) -> None:
        raise OSError(12, "Cannot allocate memory")

    def drop(self) -> None:
        self.dropped = True


def test_a_command_that_cannot_be_watched_is_dropped() -> None:
    executor, command = Executor.__new__(Executor), Unwatched()
    with pytest.raises(OSError, match="memory"):
        executor._start(cast(Command, command))
    assert command.dropped
