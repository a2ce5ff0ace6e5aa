"""The session stands still unless its control plane has said that it may run, until when.

So do sessions that another machine may take over: a control plane that was killed, or hangs, can't
freeze them. They stand still by signals, which need no word of anybody.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from sandbox_agent.core import params as given
from sandbox_agent.core.loop import Loop, Timer
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide.protocol import Message

# The loop's timers don't go on while the machine sleeps, but this clock does.
_CLOCK = time.CLOCK_BOOTTIME
_LOOK_SECONDS = 1.0


class Vouching:
    """Nothing is held up before the first word, as in most sessions none comes."""

    def __init__(
        self,
        loop: Loop,
        stop_all: Callable[[], AbstractContextManager[None]],
        now: Callable[[], float] = lambda: time.clock_gettime(_CLOCK),
    ) -> None:
        """`stop_all` stops all processes of the session until its end."""
        self._loop = loop
        self._stop_all = stop_all
        self._now = now
        self._until = 0.0
        self._timer: Timer | None = None
        self._stopped = ExitStack()
        self.still = False

    def vouch(self, params: Message, reply: Reply) -> None:
        """Takes the word of the control plane: until when, by this clock, or only what it says."""
        now = self._now()
        if params.get("until_ms") is not None:
            self._until = given.number(params, "until_ms") / 1000
            self._look()
        reply({"now_ms": int(now * 1000)})

    def _look(self) -> None:
        left = self._until - self._now()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if left > 0:
            self._go_on()
            self._timer = self._loop.after(min(left, _LOOK_SECONDS), self._look)
        else:
            self._stand_still()

    def _stand_still(self) -> None:
        """No timer runs either: the end of a command could have the kernel continue others."""
        if not self.still:
            self.still = True
            self._stopped.enter_context(self._stop_all())
            self._loop.hold_timers()

    def _go_on(self) -> None:
        if self.still:
            self.still = False
            self._stopped.close()
            self._loop.release_timers()
