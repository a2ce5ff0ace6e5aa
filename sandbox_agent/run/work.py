"""All running work of the sandbox, commands and terminals alike: admission and end."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.budget import Budget, CpuClock, Printing
from sandbox_agent.core.loop import Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import BUDGET_REASON, Configuration

# The number of started ids that are remembered; work under the same id is refused.
_REMEMBERED_IDS = 65536


class Running(Protocol):
    """A command or terminal, as far as the whole sandbox is concerned."""

    id: str

    @property
    def output(self) -> Printing:
        """Its output."""

    def cancel(self, reason: str) -> None:
        """Ends it with TERM, then KILL."""

    def kill(self, reason: str) -> None:
        """Ends it with KILL alone."""


class Ready(NamedTuple):
    """Work that is ready: `run` starts it, `drop` releases what was made for it."""

    run: Callable[[], None]
    drop: Callable[[], None]


class Work:
    """All running work, within the session's budget. Raises: BudgetError."""

    def __init__(self, loop: Loop, configuration: Configuration, events: EventBuffer) -> None:
        self._events = events
        self._most = configuration.max_running
        self._budget = Budget(loop, configuration, CpuClock(), self._on_exceeded)
        self._running: dict[str, Running] = {}
        # Work that waits for `go`.
        self._ready: dict[str, Ready] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._stopping = False
        self._on_idle: Callable[[], None] | None = None

    def check(self, work_id: str) -> None:
        """Raises: AgentError if this work may not start now."""
        if self._stopping:
            raise AgentError("conflict", "the sandbox is shutting down")
        if self._events.full:
            raise AgentError("audit_unavailable", "audit events still wait for the control plane")
        if work_id in self._seen:
            raise AgentError("conflict", f"{work_id} was started before")
        if len(self._running) + len(self._ready) >= self._most:
            raise AgentError(
                "busy",
                f"{self._most} commands and terminals are already running: end one, or wait",
            )
        if not self._budget.admit():
            raise AgentError("budget_exceeded", "the session's budget is used up")

    def remember(self, work_id: str) -> None:
        """Marks the id as used."""
        self._seen[work_id] = None
        if len(self._seen) > _REMEMBERED_IDS:
            self._seen.popitem(last=False)

    def keep_ready(self, work_id: str, ready: Ready) -> None:
        """Keeps work until `go` comes: nothing may run before its start is on record."""
        self._ready[work_id] = ready

    def go(self, work_id: str) -> None:
        """Starts ready work; does nothing if there is none of that id."""
        ready = self._ready.pop(work_id, None)
        if ready is not None:
            ready.run()

    def drop(self, work_id: str) -> None:
        """Drops ready work, so that it never starts."""
        ready = self._ready.pop(work_id, None)
        if ready is not None:
            ready.drop()

    def drop_ready(self) -> None:
        """Drops all ready work, because `go` will not come, or comes too late."""
        for work_id in list(self._ready):
            self.drop(work_id)

    def begin(self, running: Running) -> None:
        """Adds work that has started to run."""
        self._running[running.id] = running
        self._budget.begin(running.output)

    def printed(self) -> None:
        """Counts new output of running work."""
        self._budget.printed()

    def end(self, running: Running) -> None:
        """Removes work that has ended, after the event of its end."""
        del self._running[running.id]
        self._budget.end(running.output)
        self._tell_idle()

    def add(self, output: Printing) -> None:
        """Counts output that was printed without a process."""
        self._budget.begin(output)
        self._budget.end(output)

    def totals(self) -> dict[str, int]:
        """The session's totals so far, as the control plane receives them."""
        return self._budget.totals()

    def stop(self, reason: str, at_once: bool, on_idle: Callable[[], None]) -> None:
        """Refuses new work and ends what runs (`at_once`: with KILL alone), then calls back."""
        self._stopping = True
        self._on_idle = on_idle
        self.drop_ready()
        for running in list(self._running.values()):
            if at_once:
                running.kill(reason)
            else:
                running.cancel(reason)
        self._tell_idle()

    def _on_exceeded(self, kind: str, limit: int, consumed: int) -> None:
        """Reports the exceeded budget and stops everything at once."""
        self._events.emit(
            "budget.exceeded",
            decision="deny",
            rule=None,
            command_id=None,
            args={"kind": kind, "limit": limit, "consumed": consumed},
            result=None,
            error=None,
            duration_ms=0,
        )
        self.drop_ready()
        for running in list(self._running.values()):
            running.kill(BUDGET_REASON)

    def _tell_idle(self) -> None:
        if not self._running and self._on_idle is not None:
            callback, self._on_idle = self._on_idle, None
            callback()
