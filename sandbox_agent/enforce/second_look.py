"""Checks a process again after it executed something: does it run what is on record?

The file that a call of execve executes can change between the agent's check and the kernel's. The
next execution of the process reveals that (see `images`). A process that executes nothing more is
checked here after a short time. If it has ended by then, it can't be checked: the kernel reports
nothing about the program of a dead process.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from sandbox_agent.core.loop import Loop
from sandbox_agent.enforce.caller import Identity, Process, Program

# The time to the first check, and to further ones while the process still runs its previous
# program: on a busy machine it may not have run yet.
DELAYS_SECONDS = (0.005, 0.05, 0.5, 5.0)
_MOST_WAITING = 256


class Expected(NamedTuple):
    """What a process may run by the record, after it ran `before`."""

    command_id: str | None
    path: str
    before: frozenset[Identity]
    after: frozenset[Identity]


class SecondLooks:
    """Checks each process once it has had time to execute its program.

    `look` returns what a process runs now, None if it is gone. `differs` is called for a process
    that runs something other than the record says. The call of execve itself is not delayed.
    """

    def __init__(
        self,
        loop: Loop,
        look: Callable[[Process], Program | None],
        differs: Callable[[Expected, Program], None],
    ) -> None:
        self._loop = loop
        self._look = look
        self._differs = differs
        # Indexed by the number of checks already made.
        self._waiting: list[OrderedDict[Process, Expected]] = [
            OrderedDict() for _ in DELAYS_SECONDS
        ]
        # Whether a timer is set for them.
        self._timers = [False for _ in DELAYS_SECONDS]

    def expect(self, process: Process, expected: Expected) -> None:
        """Schedules a check of the process, which replaces an earlier one."""
        for waiting in self._waiting:
            waiting.pop(process, None)
        self._wait(0, process, expected)

    def _wait(self, looks: int, process: Process, expected: Expected) -> None:
        waiting = self._waiting[looks]
        if not self._timers[looks]:
            self._timers[looks] = True
            self._loop.after(DELAYS_SECONDS[looks], lambda: self._look_at_all(looks))
        waiting[process] = expected
        if len(waiting) > _MOST_WAITING:
            waiting.popitem(last=False)

    def _look_at_all(self, looks: int) -> None:
        self._timers[looks] = False
        waiting, self._waiting[looks] = self._waiting[looks], OrderedDict()
        for process, expected in waiting.items():
            running = self._look(process)
            if running is None or running.images is None:
                continue
            if running.images <= expected.before:
                # It has not run yet, or the call has failed.
                if looks + 1 < len(DELAYS_SECONDS):
                    self._wait(looks + 1, process, expected)
            elif not running.images <= expected.after:
                self._differs(expected, running)
