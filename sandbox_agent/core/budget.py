"""Counts what a session's commands and terminals use of its budget.

The agent counts, so that the limit holds even while the control plane is down or slow.
"""

import os
from collections.abc import Callable
from typing import Protocol

from sandbox_agent.core.loop import Loop, Timer
from sandbox_agent.decide.protocol import CPU_BUDGET, OUTPUT_BUDGET, Configuration

# The sandbox's own control group as seen from inside: version 2, then version 1.
_FILES = ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpuacct/cpuacct.usage")
# The shortest time between two checks: a session may exceed its budget by the CPU time that it uses
# in it. Without this bound, the timer for the last microseconds of a budget would fire endlessly.
_SLACK_SECONDS = 0.05


class BudgetError(Exception):
    """This sandbox can't enforce the session's budget."""


class Printing(Protocol):
    """The output of a command or terminal, as far as counting needs it."""

    @property
    def total(self) -> int:
        """Bytes printed so far, kept or not."""


class CpuClock:
    """The CPU time of everything in the sandbox, in microseconds."""

    def __init__(self, files: tuple[str, ...] = _FILES) -> None:
        self._fd: int | None = None
        for path in files:
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            return

    def read(self) -> int | None:
        """CPU time since the sandbox started; None if the kernel does not report it."""
        if self._fd is None:
            return None
        words = os.pread(self._fd, 4096, 0).split()
        if b"usage_usec" in words:
            return int(words[words.index(b"usage_usec") + 1])
        return int(words[0]) // 1000


class Budget:
    """The agent's part of a session's budget.

    `on_exceeded` is called once, with the kind, the limit and the consumption.

    Raises: BudgetError if the CPU time is limited and can't be measured.
    """

    def __init__(
        self,
        loop: Loop,
        configuration: Configuration,
        clock: CpuClock,
        on_exceeded: Callable[[str, int, int], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._on_exceeded = on_exceeded
        self._cpus = configuration.cpus
        self._cpu_limit = configuration.cpu_budget_us
        self._output_limit = configuration.output_budget_bytes
        at_start = clock.read()
        if at_start is None and self._cpu_limit is not None:
            raise BudgetError("the CPU time of this sandbox can't be measured or limited")
        self._cpu_offset = configuration.cpu_used_us - (at_start or 0)
        self._ended_bytes = configuration.output_used_bytes
        self._running: list[Printing] = []
        self._timer: Timer | None = None
        self.exceeded = False

    @property
    def cpu_us(self) -> int:
        """CPU time of the session in microseconds, including the agent's own."""
        return (self._clock.read() or 0) + self._cpu_offset

    @property
    def output_bytes(self) -> int:
        """Bytes that all commands and terminals printed, kept or not."""
        return self._ended_bytes + sum(output.total for output in self._running)

    def totals(self) -> dict[str, int]:
        """The totals that the control plane receives."""
        return {"session_cpu_us": self.cpu_us, "session_output_bytes": self.output_bytes}

    def admit(self) -> bool:
        """Whether the budget allows more work; if not, reports it as exceeded."""
        if not self._check_cpu() and self._output_limit is not None:
            self._compare(OUTPUT_BUDGET, self._output_limit, self.output_bytes)
        return not self.exceeded

    def begin(self, output: Printing) -> None:
        """Starts counting the output of a command or terminal."""
        self._running.append(output)
        if self._timer is None and self._cpu_limit is not None:
            self._watch_cpu()

    def printed(self) -> None:
        """Checks the output limit: the limit itself may be reached, but not exceeded."""
        if self._output_limit is not None and self.output_bytes > self._output_limit:
            self._compare(OUTPUT_BUDGET, self._output_limit, self.output_bytes)

    def end(self, output: Printing) -> None:
        """Counts the final output of a command or terminal that has ended."""
        self._running.remove(output)
        self._ended_bytes += output.total
        if not self._running and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_cpu(self) -> None:
        """Checks again at the earliest time at which the CPU budget can be used up."""
        self._timer = None
        if not self._check_cpu() and self._cpu_limit is not None:
            left = (self._cpu_limit - self.cpu_us) / 1_000_000 / self._cpus
            self._timer = self._loop.after(max(_SLACK_SECONDS, left), self._watch_cpu)

    def _check_cpu(self) -> bool:
        if self._cpu_limit is not None:
            self._compare(CPU_BUDGET, self._cpu_limit, self.cpu_us)
        return self.exceeded

    def _compare(self, kind: str, limit: int, consumed: int) -> None:
        if consumed >= limit and not self.exceeded:
            self.exceeded = True
            self._on_exceeded(kind, limit, consumed)
