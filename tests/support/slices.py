"""What one turn of the event loop costs: its longest callback, in CPU time of its thread.

Collections of garbage are left out: they look at all that the tests of this process have made.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Slices:
    """The callbacks that have run meanwhile."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.which = ""
        self._collected = 0.0
        self._began = 0.0

    def collecting(self, phase: str, _: dict[str, Any]) -> None:
        """Notes when a collection begins and ends; for `gc.callbacks`."""
        now = time.thread_time()
        if phase == "start":
            self._began = now
        else:
            self._collected += now - self._began

    def measured(self, run: Callable[[asyncio.Handle], None]) -> Callable[[asyncio.Handle], None]:
        def measured(handle: asyncio.Handle) -> None:
            began, collected = time.thread_time(), self._collected
            run(handle)
            took = time.thread_time() - began - (self._collected - collected)
            if took > self.longest:
                self.longest, self.which = took, repr(handle)

        return measured


@contextmanager
def slices() -> Iterator[Slices]:
    """Measures every callback of the loop."""
    found = Slices()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", found.measured(asyncio.Handle._run))
        gc.callbacks.append(found.collecting)
        try:
            yield found
        finally:
            gc.callbacks.remove(found.collecting)
