"""What one turn of the event loop costs: its longest callback, in CPU time of its thread."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


class Slices:
    """The callbacks that have run meanwhile."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.which = ""

    def measured(self, run: Callable[[asyncio.Handle], None]) -> Callable[[asyncio.Handle], None]:
        def measured(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            if took > self.longest:
                self.longest, self.which = took, repr(handle)

        return measured


@contextmanager
def slices() -> Iterator[Slices]:
    """Measures every callback of the loop."""
    found = Slices()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", found.measured(asyncio.Handle._run))
        yield found
