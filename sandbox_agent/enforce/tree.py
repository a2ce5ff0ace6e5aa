"""One process tree: started by a guard, ended as a whole, and accounted for."""

import errno
import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from sandbox_agent.core import limits
from sandbox_agent.core.loop import READ, Loop, Timer
from sandbox_agent.enforce import guard_messages, standstill, strays
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.guard_messages import Denied, Ended, Failed, Gone, Outrun, Report, Step

# The end reason of a command whose guard failed.
LOST = "guard_failed"
# A tree that was cancelled is killed after this time.
KILL_AFTER_SECONDS = 2.0
_ORDER_AGAIN_SECONDS = 0.05
# A guard that searches takes seconds among more processes that all want to run.
_MANY_PROCESSES = 64
# The part that is shown of a word that can be as long as a message.
_SHOWN_CHARACTERS = 256
# The limit behind an error of fork or exec.
_STRIKES = {errno.EAGAIN: limits.PIDS, errno.ENOMEM: limits.OOM}


class Tree:
    """The processes that one guard owns, from the start until nothing is left.

    The first process waits for `go`; then the tree is running. `on_left` is called when the first
    process has ended and others are left, `on_gone` once, when nothing is left. Raises: OSError
    from the constructor if the tree can't be prepared; the guard is then released.
    """

    def __init__(
        self,
        loop: Loop,
        guard: Guard,
        work_id: str,
        plan: Plan,
        pipes: Pipes,
        on_left: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        self.guard = guard
        self.gone = False
        # The operand that leads out of the workspace, if there is one.
        self.denied: str | None = None
        # Why the command could not be started, as a sentence.
        self.failure: str | None = None
        # Whether the guard has failed.
        self.lost = False
        self._failure_code = 0
        self._loop = loop
        self._id = work_id
        self._plan = plan
        self._on_left = on_left
        self._on_gone = on_gone
        self._started = 0.0
        self._counters = guard.meter.counters()
        self._struck: str | None = None
        self._ended: Ended | None = None
        self._reason: str | None = None
        self._leftovers = 0
        self._timers: list[Timer] = []
        try:
            guard.prepare(work_id, plan, pipes)
        except OSError:
            guard.close()
            raise

    def go(self) -> None:
        """Lets the first process execute its program."""
        self._loop.watch(self.guard.socket.fileno(), READ, lambda _events: self._on_guard())
        self._started = time.monotonic()
        self.guard.go()

    def drop(self) -> None:
        """Ends a tree that never got its `go`."""
        for timer in self._timers:
            timer.cancel()
        if not self.guard.closed:
            self._loop.unwatch(self.guard.socket.fileno())
        self.guard.close()

    @property
    def first_ended(self) -> bool:
        """Whether the first process has ended."""
        return self._ended is not None

    @property
    def reason(self) -> str | None:
        """Why the tree was cancelled, or None."""
        return self._reason

    def signal(self, number: int) -> bool:
        """Signals the first process's group; False when too many signals wait already."""
        return self.guard.order(guard_messages.signal_order(number))

    def cancel(self, reason: str) -> bool:
        """Sends TERM to the whole tree, and KILL to what is left after `KILL_AFTER_SECONDS`.

        Returns False if it has ended or was cancelled before.
        """
        if self._reason is not None or self.first_ended:
            return False
        self._reason = reason
        self.guard.stopping()
        if self._crowded():
            standstill.send(self.guard.uid, self.guard.pid, signal.SIGTERM)
        else:
            self._order(guard_messages.TERM)
        self.after(KILL_AFTER_SECONDS, self.kill)
        return True

    def kill(self, reason: str | None = None) -> None:
        """Kills everything that is left; `reason` applies unless the tree was cancelled before."""
        self._reason = self._reason or reason
        if not self.gone:
            if self._reason is not None:
                self.guard.stopping()
            if self._crowded():
                standstill.end(self.guard.uid, self.guard.pid)
            self._order(guard_messages.KILL)

    def _crowded(self) -> bool:
        """Whether its processes are signalled while all of the session stand still."""
        guard = self.guard
        return guard.searches and not guard.closed and guard.meter.running() > _MANY_PROCESSES

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Calls back after that time unless nothing is left by then."""
        self._timers = [timer for timer in self._timers if timer.pending]
        self._timers.append(self._loop.after(seconds, callback))

    def _order(self, order: bytes) -> None:
        """Sends an order that must not be lost, even behind a flood of signals."""
        if not self.guard.order(order):
            self.after(_ORDER_AGAIN_SECONDS, functools.partial(self._order, order))

    def _on_guard(self) -> None:
        while not self.gone and not self.lost:
            try:
                report = self.guard.receive()
            except BlockingIOError:
                return
            self._on_report(report)

    def _on_report(self, message: bytes) -> None:
        try:
            report = guard_messages.parse_report(message)
        except ValueError:
            self._lose()
            return
        if not self._makes_sense(report):
            self._lose()
            return
        match report:
            case Failed():
                self._on_failure(report)
            case Denied():
                self.denied = _cut(self._plan.inside[report.operand][0])
            case Ended():
                self._on_first_ended(report)
            case Outrun():
                self._end_outrunners()
            case Gone():
                self._leftovers = report.outlived
                self._finish()

    def _makes_sense(self, report: Report) -> bool:
        """Whether the guard can send that report now, for this plan."""
        if isinstance(report, Denied) and report.operand >= len(self._plan.inside):
            return False
        return isinstance(report, Outrun) or isinstance(report, Gone) == self.first_ended

    def _end_outrunners(self) -> None:
        """Ends what the guard can't: while all of the session's processes stand still."""
        if not standstill.end(self.guard.uid, self.guard.pid):
            self.after(_ORDER_AGAIN_SECONDS, self._end_outrunners)

    def _lose(self) -> None:
        """Handles a guard that died or misbehaves: ends it and all that it owned."""
        print(f"the guard of {self._id} has failed", file=sys.stderr, flush=True)
        self.lost = True
        self._reason = self._reason or LOST
        self._loop.unwatch(self.guard.socket.fileno())
        uid = self.guard.uid
        self.guard.kill(lambda: strays.end(self._loop, uid, self._finish))

    def _on_failure(self, failed: Failed) -> None:
        plan = self._plan
        what = {
            Step.START: "start",
            Step.PATHS: "look at its paths",
            Step.OUTPUT: f"write its output to {_shown(plan.output_file or '')}",
            Step.DIRECTORY: f"enter directory {_shown(plan.cwd)}",
            Step.PROGRAM: f"run {_shown(plan.argv[0])}",
            Step.CONTENT: f"run {_shown(plan.argv[0])} with another content than the pack's",
        }[failed.step]
        self.failure = f"cannot {what}: {os.strerror(failed.errno)}"
        # The exit codes that shells use.
        self._failure_code = 127 if failed.errno == errno.ENOENT else 126
        changed = failed.step is Step.CONTENT
        by_kernel = failed.step is Step.PROGRAM and failed.errno == errno.EACCES
        if changed or (by_kernel and "/" in plan.program):
            self.guard.refused(_program_path(plan), changed=changed)
        self._struck = _STRIKES.get(failed.errno)

    def _on_first_ended(self, ended: Ended) -> None:
        self._ended = ended
        if ended.status and self._struck is None:
            most = self.guard.processes + len(self._loop.children) + 1
            after, now = self.guard.meter.counters(), self.guard.meter.running()
            self._struck = limits.struck(self._counters, after, now, most, full=ended.full)
        if ended.left:
            self._on_left()
        else:
            self._finish()

    def _finish(self) -> None:
        self.gone = True
        for timer in self._timers:
            timer.cancel()
        if not self.lost:
            self._loop.unwatch(self.guard.socket.fileno())
        # Break the reference cycle, so that the owner and its large output are freed.
        on_gone, self._on_gone, self._on_left = self._on_gone, _nothing, _nothing
        on_gone()

    def result(self) -> dict[str, Any]:
        """The tree's result; complete once nothing is left."""
        ended = self._ended or Ended(signal.SIGKILL, 0, 0, left=False, full=False)
        exit_code, signal_name = _exit_status(ended.status)
        return {
            "exit_code": self._failure_code if self.failure is not None else exit_code,
            "signal": signal_name,
            "reason": self._reason or self._struck,
            "leftover_killed": self._leftovers,
            "duration_us": int((time.monotonic() - self._started) * 1_000_000),
            "cpu_us": ended.cpu_us,
            "max_rss_bytes": ended.max_rss_bytes,
        }


def _nothing() -> None:
    """Does nothing."""


def _program_path(plan: Plan) -> str:
    """The plan's program as an absolute path; a bare name may be found in the workspace only."""
    if "/" in plan.program:
        return os.path.normpath(os.path.join(plan.workspace, plan.cwd, plan.program))
    own = (item for item in os.get_exec_path(plan.env) if item.startswith(plan.workspace))
    return os.path.join(next(own, plan.workspace), plan.program)


def _shown(word: str) -> str:
    return repr(_cut(word))


def _cut(word: str) -> str:
    return f"{word[:_SHOWN_CHARACTERS]}…" if len(word) > _SHOWN_CHARACTERS else word


def _exit_status(status: int) -> tuple[int, str | None]:
    """The exit code and signal name of a wait status; a signal gives 128 + its number."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return 128 + number, signal.Signals(number).name
        except ValueError:
            return 128 + number, f"SIG{number}"
    return os.WEXITSTATUS(status), None
