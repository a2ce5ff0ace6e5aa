"""Sandboxes that were started ahead and wait, each for its one session."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from orchestrator.ground.errors import CapacityExhaustedError, PaddockError
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.tasks import Round, Rounds, Supervised, TaskName, Tasks
from orchestrator.host.engine.image_names import named_in
from orchestrator.rules.policy.levels import Level, Levels
from orchestrator.sandbox.sandboxes.parts import Assembly
from orchestrator.sandbox.sandboxes.warm_demand import WarmDemand
from orchestrator.sandbox.sandboxes.warm_images import WarmImages
from orchestrator.sandbox.sandboxes.warm_state import Waiting, WaitingSandboxes, WarmFailures
from orchestrator.settings.settings import Settings
from orchestrator.state.shapes import Shape, can_wait

log = logging.getLogger(__name__)

# The time limit for one start and for the removal of what is not wanted.
_ROUND_SECONDS = 120.0
# The longest time that a start waits for sessions that are being created.
_CALM_SECONDS = 5.0
# A session's first command comes right after it was given a sandbox: starting the next one at the
# same time would take a processor from it.
_FIRST_COMMAND_SECONDS = 0.2
# Events cause rounds earlier: this is for what has none, such as memory that became free.
_LONGEST_PAUSE = 60.0


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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`start` starts a sandbox that waits; `find_image` finds the id of an image's name."""
        self._settings = settings
        self._start_one = start
        self._metrics = metrics
        self._clock, self._sleep = clock, sleep
        self._handed_over = -_FIRST_COMMAND_SECONDS
        self._demand = WarmDemand(settings.warm_sandboxes)
        self._waiting = WaitingSandboxes(settings.warm_age)
        # How many wait for sessions that begin as a snapshot.
        self._kept: Counter[Shape] = Counter()
        self._images = WarmImages(settings, find_image)
        # Removals continue if the pool's task is cancelled.
        self._removing = TaskScope("the removal of a sandbox that waited")
        self._changed = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._starts: WarmFailures[Shape] = WarmFailures()
        # The account counts, too: a take-over may fail because of the session's own workspace.
        self._take_overs: WarmFailures[tuple[Shape, str]] = WarmFailures()
        self._task: Supervised | None = None
        self._levels: Levels | None = None
        self._sessions: Callable[[], int] = lambda: 0
        self._admit: Callable[[int, int], Awaitable[None]] | None = None
        self._quiet: Callable[[], Awaitable[None]] | None = None

    def run(
        self,
        tasks: Tasks,
        levels: Levels,
        sessions: Callable[[], int],
        admit: Callable[[int, int], Awaitable[None]],
        quiet: Callable[[], Awaitable[None]],
    ) -> None:
        """Begins to keep sandboxes waiting, unless the settings have none.

        `sessions` returns the number of live sessions. `admit` raises CapacityExhaustedError if
        the host has no room for one more than that number of sandboxes, with that many bytes of
        memory. `quiet` waits until no session is being created.
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
        self._discard(list(self._waiting))
        await self._removing.drain()

    @property
    def runs(self) -> bool:
        """Whether sandboxes may wait here. Other runtimes might not show late mounts."""
        return self._task is not None

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the sandboxes that a session may have."""
        return self._waiting.shapes

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

    def keep(self, wanted: Mapping[Shape, int]) -> Counter[Shape]:
        """From now on keeps that many for sessions that begin as snapshots, and no others of them.

        Returns how many of each it keeps: the first ones that there is room for.
        """
        room = self._settings.warm_sandboxes - sum(self._settings.warm_least.values())
        kept: Counter[Shape] = Counter()
        for shape, number in wanted.items():
            if self.runs and can_wait(shape.level) and room > 0:
                self._images.setdefault(shape.image, shape.image_id)
                kept[shape] = min(number, room)
                room -= kept[shape]
        if kept != self._kept:
            self._kept = kept
            self._changed.set()
        return kept

    async def calm(self) -> None:
        """Waits until no session is being created, but not for long: there may be always one.

        The latest one that was given a sandbox has a moment for its first command.
        """
        if self._quiet is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CALM_SECONDS):
                    await self._quiet()
        moment = self._handed_over + _FIRST_COMMAND_SECONDS - self._clock()
        if moment > 0:
            await self._sleep(moment)

    def wake(self) -> None:
        """Has the pool look whether there is room for another sandbox."""
        self._changed.set()

    def take(self, shape: Shape, account: str) -> Waiting | None:
        """A sandbox of that shape for a session of that account; None if none is waiting.

        None, too, for a while after the account's sessions could not take over such a sandbox. It
        now belongs to the caller, who reports what becomes of it; only then is it replaced.
        """
        if not self.runs:
            return None
        now, found = self._clock(), None
        if not self._take_overs.pause((shape, account), now):
            self._images[shape.image] = shape.image_id
            if shape.files is None:
                self._demand.asked(shape, account, now)
            found = self._waiting.suitable(shape, now)
        if found is None and shape.files is not None:
            return None  # any of its level will do
        if found is None:
            self._metrics.warm_claimed(shape.level_name, None)
            self._changed.set()
            return None
        self._waiting.remove(found)
        return found

    def taken_over(self, waiting: Waiting, account: str) -> None:
        """Notes that a session of that account has it."""
        self._handed_over = self._clock()
        self._take_overs.succeeded((waiting.shape, account))
        self._metrics.warm_claimed(waiting.shape.level_name, self._clock() - waiting.since)
        self._changed.set()

    def not_taken_over(self, waiting: Waiting, account: str, *, failed: bool) -> None:
        """Notes that no session has it; if it `failed`, the account's next ones start without."""
        self._metrics.warm_claimed(waiting.shape.level_name, None)
        self._changed.set()
        if failed:
            pause = self._take_overs.failed((waiting.shape, account), self._clock())
            log.warning(
                "a sandbox of level %s could not be taken over: sessions of %s start without one "
                "for %g s",
                *(waiting.shape.level_name, account, pause),
            )

    def ended(self, container_id: str) -> None:
        """Notes that a container has ended; nothing happens if it is not one of the pool's."""
        for waiting in self._waiting:
            if waiting.parts.plan.container_id == container_id:
                waiting.ended = True
                self._changed.set()

    async def make_room(self) -> None:
        """Removes what waits where the sessions need its place, and waits until it is free."""
        self._discard(self._waiting[: max(0, self._surplus)])
        while self._surplus + len(self._removing) > 0 and not self._removing.idle:
            await self._removing.one_ended()

    @property
    def _surplus(self) -> int:
        """How many sandboxes exist above the limit, without those that are being removed."""
        return self._sessions() + len(self._waiting) - self._settings.max_active

    async def give_up_one(self) -> bool:
        """Removes the oldest sandbox that waits; returns whether one was or is being removed."""
        if self._waiting:
            await asyncio.wait(self._discard(self._waiting[:1]))
            return True
        some = not self._removing.idle
        await self._removing.one_ended()
        return some

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            with self._rounds.round() as this:
                pause = await self._round(this)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _round(self, this: Round) -> float:
        """Removes what is not wanted, and starts one; returns the pause until the next round."""
        now = self._clock()
        least = await self._least(now)
        self._demand.renew(self._current)
        wanted = self._demand.wanted(now, least, Counter(self.shapes))
        self._discard(self._waiting.unwanted(wanted, now))
        missing = wanted - Counter(self.shapes)
        pauses = {shape: self._starts.pause(shape, now) for shape in missing}
        ready = [shape for shape, pause in pauses.items() if not pause]
        this.failed = len(ready) < len(pauses)
        if ready:
            await self.calm()
        for shape in ready:
            if await self._tried(shape, this):
                self._changed.set()  # another one may be missing
                break
        return min([self._next_look(now), *(pause for pause in pauses.values() if pause)])

    async def _tried(self, shape: Shape, this: Round) -> bool:
        """Tries to start one; returns whether there was room for it."""
        try:
            await self._start(shape)
        except CapacityExhaustedError:
            return False
        except (PaddockError, OSError) as error:
            this.failed = True
            self._demand.forget(shape)
            pause = self._starts.failed(shape, self._clock())
            log.warning(
                "no sandbox of level %s can be started ahead, tried again in %g s: %s",
                *(shape.level_name, pause, error),
            )
        return True

    def _current(self, shape: Shape) -> Shape | None:
        level = self._level(shape.level_name)
        return None if level is None else shape.renewed(self._images[shape.image], level)

    def _level(self, name: str) -> Level | None:
        """The level of that name, if its sandboxes can wait."""
        level = None if self._levels is None else self._levels.get(name)
        return level if level is not None and can_wait(level) else None

    async def _least(self, now: float) -> Counter[Shape]:
        """How many wait even without demand; none while their image is not known."""
        least = Counter(
            {shape: each for shape, each in self._kept.items() if self._current(shape) == shape}
        )
        await self._images.look(now)
        for name, number in self._settings.warm_least.items():
            level = self._level(name)
            image = self._images.default(name)
            if level is None or not named_in(level.images, image):
                continue
            if number and image in self._images:
                least[Shape.of(image, self._images[image], level)] = number
        return least

    def _next_look(self, now: float) -> float:
        """In how many seconds something becomes too old, at most the longest pause."""
        changes = (self._demand.next_change(now), self._waiting.next_old(now))
        return min([_LONGEST_PAUSE, *(each for each in changes if each is not None)])

    async def _start(self, shape: Shape) -> None:
        """Raises: the errors of the parts; CapacityExhaustedError if the host has no room."""
        if await self._images.changed(shape):
            self._changed.set()  # the earlier one may not exist any more
            return
        if self._admit is not None:
            exist = self._sessions() + len(self._waiting) + len(self._removing)
            await self._admit(exist, shape.limits.memory_bytes)
        parts = await self._start_one(shape)
        self._starts.succeeded(shape)
        self._waiting.append(Waiting(shape, parts, self._clock()))
        parts.plan.link.when_lost(self._changed.set)
        await self.make_room()  # for sessions that were admitted meanwhile

    def _discard(self, these: list[Waiting]) -> list[asyncio.Task[None]]:
        """Begins to remove them."""
        removals = []
        for waiting in these:
            self._waiting.remove(waiting)
            removals.append(self._removing.spawn(waiting.parts.close()))
            removals[-1].add_done_callback(lambda _: self._changed.set())
        return removals
