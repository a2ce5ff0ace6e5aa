"""Tasks that run as long as the control plane: restarted when they end, and never silently."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.task_scope import TaskScope

log = logging.getLogger(__name__)

TASKS = "tasks"
_FIRST_PAUSE = 0.1  # doubled after each failure
_LONGEST_PAUSE = 5.0
# A task that has run for this long has recovered.
_SETTLED_SECONDS = 60.0


class TaskName(StrEnum):
    """Every supervised task."""

    ENGINE_EVENTS = "engine-events"
    POLICY = "policy"
    POLICY_WATCH = "policy-watch"
    SCRUBBER = "scrubber"
    SEARCH_INDEX = "search-index"
    KEPT_WORKSPACES = "kept-workspaces"
    SNAPSHOTS = "snapshots"
    ARCHIVING = "archiving"
    ERASING = "erasing"
    ANCHORING = "anchoring"
    WARM_POOL = "warm-pool"
    WARM_TEMPLATES = "warm-templates"
    USAGE = "usage"
    HOOKS = "hooks"
    EXPORTS = "exports"
    TELEMETRY = "telemetry"
    OPEN_NETWORK = "open-network"
    LEASE = "lease"
    CLUSTER_KEYS = "cluster-keys"
    OUTBOX = "outbox"
    SHIPPING = "shipping"
    OLD_ROWS = "old-rows"
    FENCING = "fencing"
    COPIES = "workspace-copies"
    TAKEOVER = "takeover"
    LENDING = "lending"
    SHARED = "shared"


class TaskState(StrEnum):
    """It runs; it runs again after a recent failure; it does not run at the moment."""

    WELL = "well"
    AGAIN = "again"
    DOWN = "down"


class Trouble(NamedTuple):
    """A problem of a task's rounds, and its beginning."""

    what: str
    since: datetime


class Round:
    """One round. `failed`: it did not achieve its purpose, although the task continues."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.since = datetime.now(UTC)
        self.failed = False


class Rounds:
    """Repeated work of a task: a round that takes too long is overdue.

    While a task waits for work, it is in no round.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._under_way: list[Round] = []
        # The start of the first failed round since the last successful one.
        self._failing: datetime | None = None

    @contextmanager
    def round(self) -> Iterator[Round]:
        """One round, within the block; an exception that leaves it is a failure."""
        this = Round()
        self._under_way.append(this)
        try:
            yield this
        except Exception:
            self._settle(this, failed=True)
            raise
        else:
            self._settle(this, failed=this.failed)
        finally:
            self._under_way.remove(this)

    def _settle(self, this: Round, *, failed: bool) -> None:
        self._failing = (self._failing or this.since) if failed else None

    @property
    def trouble(self) -> Trouble | None:
        """The present problem."""
        for this in self._under_way:
            if time.monotonic() - this.began > self._seconds:
                return Trouble("takes too long", this.since)
        return None if self._failing is None else Trouble("failed", self._failing)


class Supervised:
    """One task. It ends only with `close`, or, if it is not `forever`, when its work is done."""

    def __init__(
        self,
        name: TaskName,
        work: Callable[[], Awaitable[None]],
        restarted: Callable[[TaskName], None],
        *,
        forever: bool,
        rounds: Rounds | None,
        clock: Callable[[], float],
    ) -> None:
        """`restarted` is called after each failure."""
        self.name = name
        self.rounds = rounds
        self._work = work
        self._restarted = restarted
        self._forever = forever
        self._clock = clock
        self._pause = _FIRST_PAUSE
        self._failed = False
        self.closed = False
        self._runs_since: float | None = None
        self._scope = TaskScope(name)
        self._task = self._scope.begin(self._run(), name=name)

    @property
    def state(self) -> TaskState:
        """Its present state."""
        if not self._failed:
            return TaskState.WELL
        if self._runs_since is None:
            return TaskState.DOWN
        return TaskState.WELL if self._settled(self._runs_since) else TaskState.AGAIN

    async def close(self) -> None:
        """Ends it."""
        self.closed = True
        await self._scope.close()

    async def _run(self) -> None:
        while True:
            self._runs_since = began = self._clock()
            try:
                await self._work()
            except Exception:
                log.exception("the task %s failed; it is started again", self.name)
            else:
                if not self._forever:
                    self._failed = False
                    return
                log.error("the task %s ended by itself; it is started again", self.name)
            self._runs_since, self._failed = None, True
            if self._settled(began):
                self._pause = _FIRST_PAUSE
            self._restarted(self.name)
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _settled(self, since: float) -> bool:
        return self._clock() - since >= _SETTLED_SECONDS


class Tasks:
    """All supervised tasks of a control plane. The code that starts one closes it."""

    def __init__(
        self,
        restarted: Callable[[TaskName], None] = lambda name: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`restarted` is called after each failure, for the metrics."""
        self._restarted = restarted
        self._clock = clock
        self._started: list[Supervised] = []

    def start(
        self,
        name: TaskName,
        work: Callable[[], Awaitable[None]],
        *,
        forever: bool = True,
        rounds: Rounds | None = None,
    ) -> Supervised:
        """Awaits `work()`, again after each failure; `forever`: its return counts as a failure.

        `work` reports its rounds to `rounds`.
        """
        task = Supervised(
            name, work, self._restarted, forever=forever, rounds=rounds, clock=self._clock
        )
        # Some end with what they serve, long before the control plane.
        self._started = [each for each in self._started if not each.closed]
        self._started.append(task)
        return task

    def check(self) -> Check:
        """Whether all of them run; the log says why one does not."""
        down = self._names(TaskState.DOWN)
        if down:
            return failure(TASKS, f"stopped by a failure: {_listed(down)}", "see the log")
        problems = [f"{name} {trouble}" for name, trouble in self._troubles()]
        again = self._names(TaskState.AGAIN)
        if again:
            problems.append(f"started again after a failure: {_listed(again)}")
        if problems:
            return warning(TASKS, "; ".join(problems), "see the log")
        return ok(TASKS, "all background tasks run")

    def _troubles(self) -> Iterator[tuple[TaskName, str]]:
        """Problems of running tasks; restarted ones are reported separately."""
        running = (task for task in self._started if task.state is TaskState.WELL)
        for task in running:
            trouble = None if task.rounds is None else task.rounds.trouble
            if trouble is not None:
                yield task.name, f"{trouble.what}, since {trouble.since:%Y-%m-%dT%H:%M:%SZ}"

    def _names(self, state: TaskState) -> Iterable[TaskName]:
        return dict.fromkeys(task.name for task in self._started if task.state is state)


def _listed(names: Iterable[TaskName]) -> str:
    return ", ".join(names)
