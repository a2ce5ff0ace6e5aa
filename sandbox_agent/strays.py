"""Processes whose guard has ended before them: they are the agent's children then, and end, too."""

import os
import signal
import time
from collections.abc import Callable

from sandbox_agent import processes
from sandbox_agent.confine import privileges
from sandbox_agent.loop import Loop

# Looks at all processes in one go, as long as each finds further ones: some may fork.
_MOST_LOOKS = 50
_AGAIN_SECONDS = 0.01
# What has not ended by then hangs in the kernel.
PATIENCE_SECONDS = 10.0


def end(loop: Loop, uid: int, on_gone: Callable[[], None]) -> None:
    """Kills all processes that no living child of the agent answers for; then calls back.

    Raises: SystemExit, also later, where one can't be ended: better no sandbox than a loose
    process.
    """
    _Strays(loop, uid, on_gone).end()


class _Strays:
    """They are killed and waited for, again and again until there are none."""

    def __init__(self, loop: Loop, uid: int, on_gone: Callable[[], None]) -> None:
        self._loop = loop
        self._uid = uid
        self._on_gone = on_gone
        self._until = time.monotonic() + PATIENCE_SECONDS

    def end(self) -> None:
        """One round, and further ones later."""
        self._kill()
        # Numbers are given in turn, so that only one of two looks can miss a process that is
        # made while it lasts.
        if not self._find() and not self._find():
            self._on_gone()
        elif time.monotonic() > self._until:
            raise SystemExit("processes whose guard has ended can't be ended")
        else:
            self._loop.after(_AGAIN_SECONDS, self.end)

    def _kill(self) -> None:
        killed: set[int] = set()
        for _ in range(_MOST_LOOKS):
            found = self._find() - killed
            if not found:
                return
            for pid in found:
                # One that has not become the session's user yet is root's.
                privileges.signal_as(self._uid, pid, signal.SIGKILL)
            killed |= found

    def _find(self) -> set[int]:
        return set(processes.below(os.getpid(), self._loop.children))
