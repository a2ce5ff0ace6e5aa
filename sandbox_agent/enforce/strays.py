"""Ends processes that have outlived their guard, and so have become children of the agent."""

import os
import time
from collections.abc import Callable

from sandbox_agent.core.loop import Loop
from sandbox_agent.enforce import processes, standstill

_AGAIN_SECONDS = 0.01
# A process that has not ended by then is stuck in the kernel.
PATIENCE_SECONDS = 10.0


def end(loop: Loop, uid: int, on_gone: Callable[[], None]) -> None:
    """Kills all processes that belong to no living child of the agent, then calls back.

    Raises: SystemExit, possibly later, if a process can't be ended: no sandbox is better than a
    loose process.
    """
    _Strays(loop, uid, on_gone).end()


class _Strays:
    """Kills and waits in rounds until no such process is left."""

    def __init__(self, loop: Loop, uid: int, on_gone: Callable[[], None]) -> None:
        self._loop = loop
        self._uid = uid
        self._on_gone = on_gone
        self._until = time.monotonic() + PATIENCE_SECONDS

    def end(self) -> None:
        """Runs one round and schedules the next."""
        if self._find():
            # A process that has not become the session's user yet belongs to root.
            standstill.end(self._uid, os.getpid(), self._loop.children)
        # Pids are assigned in ascending order, so a process that is created during the scans can
        # escape only one of two.
        if not self._find() and not self._find():
            self._on_gone()
        elif time.monotonic() > self._until:
            raise SystemExit("processes whose guard has ended can't be ended")
        else:
            self._loop.after(_AGAIN_SECONDS, self.end)

    def _find(self) -> set[int]:
        return set(processes.below(os.getpid(), self._loop.children))
