"""Workspaces of ended sessions: mounted again after a start, purged when they expire.

So are named snapshots removed.
"""

import asyncio
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import time_text
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.sandboxes.workspaces import Workspaces

log = logging.getLogger(__name__)

# For mounting or purging all workspaces: large ones take minutes.
_ROUND_SECONDS = 1800.0
# Between two rounds of removing snapshots.
_LEAST_SECONDS = 0.1


class KeptWorkspaces:
    """Works in the background, from `start` to `close`. A failure is logged and stops nothing."""

    def __init__(
        self,
        workspaces: Workspaces,
        snapshots: NamedSnapshots,
        retention_seconds: int | None,
        snapshot_seconds: int | None,
        tasks: Tasks,
    ) -> None:
        """Workspaces and snapshots are kept for these seconds; None: until they are removed."""
        self._workspaces = workspaces
        self._snapshots = snapshots
        self._retention_seconds = retention_seconds
        self._snapshot_seconds = snapshot_seconds
        self._tasks = tasks
        self._mounting = Rounds(_ROUND_SECONDS)
        self._purging = Rounds(_ROUND_SECONDS)
        self._removing = Rounds(_ROUND_SECONDS)
        self._started: list[Supervised] = []
        self._clock = _Clock()
        # How far the host's clock was set, and workspaces' times were not yet.
        self._ahead = timedelta()
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Mounts what an earlier control plane left, and begins to purge expired workspaces."""
        name = TaskName.KEPT_WORKSPACES
        self._started.append(
            self._tasks.start(name, self._mount, forever=False, rounds=self._mounting)
        )
        if self._retention_seconds is not None:
            purge = partial(self._purge_expired, timedelta(seconds=self._retention_seconds))
            self._started.append(self._tasks.start(name, purge, rounds=self._purging))
        if self._snapshot_seconds is not None:
            remove = partial(self._remove_snapshots, timedelta(seconds=self._snapshot_seconds))
            self._started.append(
                self._tasks.start(TaskName.SNAPSHOTS, remove, rounds=self._removing)
            )

    async def close(self) -> None:
        """Stops; the next start finishes what is incomplete."""
        for task in self._started:
            await task.close()

    async def _mount(self) -> None:
        with self._mounting.round():
            await self._workspaces.mount_kept()

    def clock_changed(self, forward: timedelta) -> None:
        """Keeps what is left of each workspace's time; after a sleep, looks what has expired."""
        self._ahead += forward
        self._changed.set()

    async def _purge_expired(self, retention: timedelta) -> None:
        """Purges at absolute times, so that a restart moves none.

        A session that ends from now on expires after a full retention period, so sleeping no longer
        than that can't miss it.
        """
        while True:
            due = None
            self._changed.clear()
            try:
                with self._purging.round():
                    await self._follow()
                    await self._workspaces.purge_ended_before(self._clock.now() - retention)
                    due = await self._workspaces.next_expiry()
            except (PaddockError, StoreError) as error:
                log.error("expired workspaces could not be purged: %s", error)
            latest = self._clock.now() + retention
            until = latest if due is None else min(latest, due + retention)
            with suppress(TimeoutError):
                async with asyncio.timeout((until - self._clock.now()).total_seconds()):
                    await self._changed.wait()

    async def _remove_snapshots(self, retention: timedelta) -> None:
        """Removes snapshots at absolute times; a change of the host's clock removes none."""
        clock = _Clock()
        while True:
            oldest = None
            try:
                with self._removing.round():
                    before = time_text(clock.now() - retention)
                    oldest = await self._snapshots.remove_taken_before(before)
            except (PaddockError, StoreError) as error:
                log.error("expired snapshots could not be removed: %s", error)
            latest = clock.now() + retention
            until = latest if oldest is None else min(latest, oldest + retention)
            await asyncio.sleep(max(_LEAST_SECONDS, (until - clock.now()).total_seconds()))

    async def _follow(self) -> None:
        """Moves the times before the clock, which is set by more only if that succeeds."""
        if forward := self._ahead:
            await self._workspaces.clock_changed(forward, self._clock.now() + forward)
            self._clock.set_forward(forward)
            self._ahead -= forward


class _Clock:
    """The host's clock, but for changes that were not announced yet: nothing expires by these."""

    def __init__(self) -> None:
        self._zero = datetime.now(UTC) - _since_boot()

    def now(self) -> datetime:
        """The time, by the changes so far."""
        return self._zero + _since_boot()

    def set_forward(self, by: timedelta) -> None:
        """Follows a change."""
        self._zero += by


def _since_boot() -> timedelta:
    """The time since the host's start, in which it may have slept."""
    return timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
