"""Workspaces of ended sessions: mounted again after a start, purged when they expire."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from functools import partial

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.sandbox.sandboxes.workspaces import Workspaces

log = logging.getLogger(__name__)

# For mounting or purging all workspaces: large ones take minutes.
_ROUND_SECONDS = 1800.0


class KeptWorkspaces:
    """Works in the background, from `start` to `close`. A failure is logged and stops nothing."""

    def __init__(self, workspaces: Workspaces, retention_seconds: int | None, tasks: Tasks) -> None:
        self._workspaces = workspaces
        self._retention_seconds = retention_seconds
        self._tasks = tasks
        self._mounting = Rounds(_ROUND_SECONDS)
        self._purging = Rounds(_ROUND_SECONDS)
        self._started: list[Supervised] = []

    def start(self) -> None:
        """Mounts what an earlier control plane left, and begins to purge expired workspaces."""
        name = TaskName.KEPT_WORKSPACES
        self._started.append(
            self._tasks.start(name, self._mount, forever=False, rounds=self._mounting)
        )
        if self._retention_seconds is not None:
            purge = partial(self._purge_expired, timedelta(seconds=self._retention_seconds))
            self._started.append(self._tasks.start(name, purge, rounds=self._purging))

    async def close(self) -> None:
        """Stops; the next start finishes what is incomplete."""
        for task in self._started:
            await task.close()

    async def _mount(self) -> None:
        with self._mounting.round():
            await self._workspaces.mount_kept()

    async def _purge_expired(self, retention: timedelta) -> None:
        """Purges at absolute times, so that a restart moves none.

        A session that ends from now on expires after a full retention period, so sleeping no longer
        than that can't miss it.
        """
        while True:
            due = None
            try:
                with self._purging.round():
                    await self._workspaces.purge_ended_before(datetime.now(UTC) - retention)
                    due = await self._workspaces.next_expiry()
            except (PaddockError, StoreError) as error:
                log.error("expired workspaces could not be purged: %s", error)
            latest = datetime.now(UTC) + retention
            until = latest if due is None else min(latest, due + retention)
            await asyncio.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()))
