"""The agent's event loop: file descriptors, timers, and the end of child processes."""

import heapq
import os
import selectors
import signal
import time
from collections.abc import Callable, Collection

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
# Kernel timers accept at most 24 days.
_LONGEST_SECONDS = 86_400.0
# Cancelled timers are removed once there are this many and they are the majority.
_MOST_CANCELLED = 64


class Timer:
    """A scheduled callback; `cancel` does nothing after it has run."""

    def __init__(
        self,
        due: float,
        callback: Callable[[], None],
        on_cancel: Callable[[], None],
        always: bool,
    ) -> None:
        self.due = due
        self.always = always
        self._callback: Callable[[], None] | None = callback
        self._on_cancel = on_cancel

    @property
    def pending(self) -> bool:
        """Whether the callback is still to run."""
        return self._callback is not None

    def cancel(self) -> None:
        """Drops the callback."""
        if self._callback is not None:
            self._callback = None
            self._on_cancel()

    def expire(self) -> None:
        """Runs the callback unless it was cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def __lt__(self, other: "Timer") -> bool:
        return self.due < other.due


class Loop:
    """A selectors loop that also reaps every child: the agent is PID 1."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        # Those that wait until all timers run again.
        self._held: list[Timer] = []
        # How many of the timers are cancelled.
        self._cancelled = 0
        self._children: dict[int, Callable[[], None]] = {}
        self._stopped = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Calls back with the ready events; replaces an earlier watch of `fd`."""
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, callback)
        else:
            self._selector.register(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        """Stops watching `fd`; call this before closing it."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def after(self, seconds: float, callback: Callable[[], None], *, always: bool = False) -> Timer:
        """Calls back once after `seconds`; `always`: also while timers are held."""
        timer = Timer(time.monotonic() + seconds, callback, self._on_cancel, always)
        heapq.heappush(self._timers, timer)
        return timer

    def hold_timers(self) -> None:
        """Those that exist wait, but for those that run always."""
        self._held += [timer for timer in self._timers if not timer.always]
        self._keep([timer for timer in self._timers if timer.always])

    def release_timers(self) -> None:
        """Those that have waited run as soon as they are due."""
        held, self._held = self._held, []
        self._keep([*self._timers, *held])

    def _keep(self, timers: list[Timer]) -> None:
        self._timers = [timer for timer in timers if timer.pending]
        heapq.heapify(self._timers)
        self._cancelled = 0

    def on_exit(self, pid: int, callback: Callable[[], None]) -> None:
        """Calls back when the child has ended and has been reaped."""
        self._children[pid] = callback

    @property
    def children(self) -> Collection[int]:
        """Pids of the children with a callback."""
        return self._children.keys()

    def stop(self) -> None:
        """Makes `run` return after the current callbacks."""
        self._stopped = True

    def run(self) -> None:
        """Serves until `stop`."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.watch(self._wake_read, READ, self._on_wake)
        while not self._stopped:
            for key, events in self._selector.select(self._timeout()):
                # An earlier callback of this round may have removed the descriptor.
                current = self._selector.get_map().get(key.fd)
                if current is not None and current.data is key.data:
                    key.data(events)
            self._run_timers()

    def _timeout(self) -> float | None:
        while self._timers and not self._timers[0].pending:
            self._next_timer()
        if not self._timers:
            return None
        return min(_LONGEST_SECONDS, max(0.0, self._timers[0].due - time.monotonic()))

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0].due <= now:
            self._next_timer().expire()

    def _next_timer(self) -> Timer:
        timer = heapq.heappop(self._timers)
        self._cancelled -= not timer.pending
        return timer

    def _on_cancel(self) -> None:
        """Removes cancelled timers, so that they never become the majority."""
        self._cancelled += 1
        if self._cancelled > max(_MOST_CANCELLED, len(self._timers) // 2):
            self._keep(self._timers)

    def _on_wake(self, _events: int) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            callback = self._children.pop(pid, None)
            if callback is not None:
                callback()
