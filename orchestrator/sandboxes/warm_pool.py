"""Sandboxes that were started ahead and wait, each for its one session."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.config.settings import Settings
from orchestrator.errors import CapacityExhaustedError, PaddockError
from orchestrator.observe.metrics import Metrics
from orchestrator.policy.levels import Level, Levels
from orchestrator.sandboxes.parts import Assembly
from orchestrator.sandboxes.shapes import Shape, can_wait, usual_limits
from orchestrator.sandboxes.warm_demand import WarmDemand
from orchestrator.task_scope import TaskScope
from orchestrator.tasks import Round, Rounds, Supervised, TaskName, Tasks

log = logging.getLogger(__name__)

# The time limit for one start and for the removal of what is not wanted.
_ROUND_SECONDS = 120.0
# After a failure, doubled with each further one.
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0
# After which a host without room is examined again.
_NO_ROOM_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A sandbox that waits, since `since` on the pool's clock."""

    shape: Shape
    parts: Assembly
    since: float
    ended: bool = False

    @property
    def fit(self) -> bool:
        """Whether a session may have it."""
        return not self.ended and self.parts.plan.link.connected


class WarmPool:
    """Starts sandboxes in the background, one at a time, while no session is being created.

    It owns them until `take` hands one over. At most `max_active` sandboxes exist, including
    these, which make room for those of sessions.
    """

    def __init__(
        self,
        settings: Settings,
        start: Callable[[Shape], Awaitable[Assembly]],
        find_image: Callable[[str], Awaitable[str]],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start` starts a sandbox that waits; `find_image` finds the id of an image's name."""
        self._settings = settings
        self._start_one = start
        self._find_image = find_image
        self._metrics = metrics
        self._clock = clock
        self._demand = WarmDemand(settings.warm_sandboxes)
        self._waiting: list[_Waiting] = []
        # The latest known ids of images, by their names.
        self._images: dict[str, str] = {}
        # Removals continue if the pool's task is cancelled.
        self._removing = TaskScope("the removal of a sandbox that waited")
        self._changed = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        # Since the last success; nothing is started before that time.
        self._failures = 0
        self._not_before = 0.0
        self._task: Supervised | None = None
        self._levels: Levels | None = None
        self._sessions: Callable[[], int] = lambda: 0
        self._admit: Callable[[int], Awaitable[None]] | None = None
        self._quiet: Callable[[], Awaitable[None]] | None = None

    def run(
        self,
        tasks: Tasks,
        levels: Levels,
        sessions: Callable[[], int],
        admit: Callable[[int], Awaitable[None]],
        quiet: Callable[[], Awaitable[None]],
    ) -> None:
        """Begins to keep sandboxes waiting, unless the settings have none.

        `sessions` returns the number of live sessions. `admit` raises CapacityExhaustedError if
        the host has no room for one more than that number of sandboxes. `quiet` waits until no
        session is being created.
        """
        if not self._settings.warm_sandboxes or self._settings.runtime is not None:
            return
        self._levels, self._sessions, self._admit, self._quiet = levels, sessions, admit, quiet
        levels.on_change(self._changed.set)
        self._task = tasks.start(TaskName.WARM_POOL, self._keep, rounds=self._rounds)

    async def close(self) -> None:
        """Removes every sandbox that waits, and starts no more."""
        task, self._task = self._task, None
        if task is not None:
            await task.close()
        await self.clear()
        await self._removing.drain()

    @property
    def runs(self) -> bool:
        """Whether sandboxes may wait here. Other runtimes might not show late mounts."""
        return self._task is not None

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the sandboxes that wait."""
        return [waiting.shape for waiting in self._waiting]

    @property
    def container_ids(self) -> list[str]:
        """Their containers."""
        return [waiting.parts.plan.container_id or "" for waiting in self._waiting]

    def image_id(self, image: str) -> str | None:
        """The id that the image's name had when it was last used; None if that is not known."""
        return self._images.get(image)

    def image_changed(self, image: str, image_id: str) -> None:
        """Notes the image's present id: sandboxes of an earlier one are replaced."""
        self._images[image] = image_id
        self._changed.set()

    def take(self, shape: Shape) -> Assembly | None:
        """A sandbox of that shape, which now belongs to the caller; None if none is waiting."""
        if not self.runs:
            return None
        now = self._clock()
        self._images[shape.image] = shape.image_id
        self._demand.asked(shape, now)
        self._changed.set()
        for waiting in self._waiting:
            if waiting.shape == shape and waiting.fit and not self._old(waiting, now):
                self._waiting.remove(waiting)
                self._metrics.warm_claimed(shape.level_name, now - waiting.since)
                return waiting.parts
        self._metrics.warm_claimed(shape.level_name, None)
        return None

    def ended(self, container_id: str) -> None:
        """Notes that a container has ended; nothing happens if it is not one of the pool's."""
        for waiting in self._waiting:
            if waiting.parts.plan.container_id == container_id:
                waiting.ended = True
                self._changed.set()

    def failed(self) -> float:
        """Notes that one could not be started or taken over; returns the pause in seconds."""
        pause = min(_FIRST_PAUSE * 2.0**self._failures, _LONGEST_PAUSE)
        self._failures += 1
        self._not_before = self._clock() + pause
        return pause

    async def make_room(self) -> None:
        """Removes what waits where the sessions need its place."""
        surplus = self._sessions() + len(self._waiting) - self._settings.max_active
        await self._remove(self._waiting[: max(0, surplus)])

    async def clear(self) -> bool:
        """Removes every sandbox that waits; returns whether there was one."""
        some = bool(self._waiting)
        await self._remove(list(self._waiting))
        return some

    async def _keep(self) -> None:
        if self._quiet is None:
            raise RuntimeError("the pool does not run")
        while True:
            await self._quiet()
            self._changed.clear()
            with self._rounds.round() as this:
                pause = await self._round(this)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _round(self, this: Round) -> float | None:
        """Removes what is not wanted, or else starts one; returns the pause until the next round.

        None: until something changes.
        """
        now = self._clock()
        try:
            wanted = self._demand_now(now, await self._least())
            await self._remove(self._unwanted(wanted, now))
            missing = wanted - Counter(self.shapes)
            if not missing:
                return self._next_look(now)
            if now < self._not_before:
                return self._not_before - now
            await self._start(next(iter(missing)))
        except CapacityExhaustedError:
            return _NO_ROOM_SECONDS
        except (PaddockError, OSError) as error:
            this.failed = True
            pause = self.failed()
            log.warning("no sandbox can be started ahead, tried again in %g s: %s", pause, error)
            return pause
        self._changed.set()  # another one may be missing
        return None

    def _demand_now(self, now: float, least: Counter[Shape]) -> Counter[Shape]:
        self._demand.renew(self._current)
        return self._demand.wanted(now, least)

    def _current(self, shape: Shape) -> Shape | None:
        level = self._level(shape.level_name)
        return None if level is None else shape.at(self._images[shape.image], level)

    def _level(self, name: str) -> Level | None:
        """The level of that name, if its sandboxes can wait."""
        level = None if self._levels is None else self._levels.get(name)
        return level if level is not None and can_wait(level) else None

    async def _least(self) -> Counter[Shape]:
        """What waits even without demand. Raises: EngineUnavailableError, ValidationError."""
        least: Counter[Shape] = Counter()
        image = self._settings.image
        for name, number in self._settings.warm_least.items():
            level = self._level(name)
            if level is not None and number:
                image_id = self._images[image] = await self._find_image(image)
                least[Shape.of(image, image_id, level, usual_limits(level))] = number
        return least

    def _unwanted(self, wanted: Counter[Shape], now: float) -> list[_Waiting]:
        """What has ended or waited for too long, or is more than what is wanted."""
        left = wanted.copy()
        unwanted = []
        for waiting in reversed(self._waiting):  # the oldest go first
            old = self._old(waiting, now)
            if not waiting.fit or old or left[waiting.shape] <= 0:
                unwanted.append(waiting)
            else:
                left[waiting.shape] -= 1
        return unwanted

    def _old(self, waiting: _Waiting, now: float) -> bool:
        return now - waiting.since >= self._settings.warm_age

    def _next_look(self, now: float) -> float | None:
        """In how many seconds something becomes too old; None: never."""
        ages = [waiting.since + self._settings.warm_age - now for waiting in self._waiting]
        forgotten = self._demand.next_change(now)
        return min([*ages, *([] if forgotten is None else [forgotten])], default=None)

    async def _start(self, shape: Shape) -> None:
        """Raises: the errors of the parts; CapacityExhaustedError if the host has no room."""
        if self._admit is not None:
            await self._admit(self._sessions() + len(self._waiting))
        parts = await self._start_one(shape)
        self._failures = 0
        self._waiting.append(_Waiting(shape, parts, self._clock()))

    async def _remove(self, unwanted: list[_Waiting]) -> None:
        """Returns once they, and others that are being removed, are gone."""
        for waiting in unwanted:
            self._waiting.remove(waiting)
            self._removing.spawn(waiting.parts.close())
        await self._removing.results()
