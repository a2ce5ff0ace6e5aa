"""A second look at processes that were let execute something: is it what is on record?

What a call of execve is to execute can change between the agent's look and the kernel's. What a
process executes next shows it (see `images`); one that executes nothing more is looked at soon.
One that has ended by then can't be: the kernel tells nothing of the program of a dead process.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from sandbox_agent.confine.caller import Identity, Process, Program
from sandbox_agent.loop import Loop

# When it is looked at; and again, as long as it runs the program of before: on a busy machine it
# may wait for its turn.
DELAYS_SECONDS = (0.005, 0.05, 0.5, 5.0)
_MOST_WAITING = 256


class Expected(NamedTuple):
    """What a process may run by the record, after it ran `before`; and whose process it is."""

    command_id: str | None
    path: str
    before: frozenset[Identity]
    after: frozenset[Identity]


class SecondLooks:
    """Looks at each process once it has had time to execute what it asked for.

    `look` tells what a process runs now, None where it is gone; `differs` is told of one that
    runs something else than is on record. The call itself is not held up.
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
        # By how many looks they had already.
        self._waiting: list[OrderedDict[Process, Expected]] = [
            OrderedDict() for _ in DELAYS_SECONDS
        ]
        # Whether a timer runs for them.
        self._timers = [False for _ in DELAYS_SECONDS]

    def expect(self, process: Process, expected: Expected) -> None:
        """The process goes on now; what it was to execute before does not count any more."""
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
                # It waits for its turn, or the call has failed.
                if looks + 1 < len(DELAYS_SECONDS):
                    self._wait(looks + 1, process, expected)
            elif not running.images <= expected.after:
                self._differs(expected, running)
