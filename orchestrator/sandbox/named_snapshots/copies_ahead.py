"""Copies of snapshots that are made ahead, each to be the workspace of one new session."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace.prepared_slots import PreparedSlots
from orchestrator.host.workspace.slots import Workspace
from orchestrator.host.workspace.storage import Storage
from orchestrator.sandbox.named_snapshots.snapshot_files import SnapshotFiles


class CopiesAhead:
    """`ready` has how many copies of a snapshot wait, by its id. They end with this process."""

    def __init__(self, storage: Storage, files: SnapshotFiles, copies: asyncio.Semaphore) -> None:
        """`copies` limits how many are made at a time."""
        self._storage = storage
        self._files = files
        self._copies = copies
        self._when_taken: Callable[[], None] = lambda: None
        self.ready: Counter[str] = Counter()

    def when_taken(self, call: Callable[[], None]) -> None:
        """Has `call` called whenever a session has got one."""
        self._when_taken = call

    async def keep(self, wanted: Mapping[str, int]) -> None:
        """Has that many copies of each of these snapshots ready, and no others.

        Raises: NotFoundError if a snapshot is gone; CapacityExhaustedError, MountError, OSError.
        """
        self.ready = await self._storage.ahead.call(lambda slots: slots.keep_filled(wanted))
        for snapshot_id, number in wanted.items():
            while self.ready[snapshot_id] < number:
                async with self._copies:
                    await self._storage.ahead.call(partial(self._make, snapshot_id))
                self.ready[snapshot_id] += 1

    def _make(self, snapshot_id: str, slots: PreparedSlots) -> None:
        slots.make_filled(snapshot_id, partial(self._files.place, snapshot_id))

    async def take(self, snapshot_id: str, workspace: Workspace) -> bool:
        """Makes one the files of a new workspace; returns False if none is ready.

        Raises: StorageError.
        """
        if not self.ready[snapshot_id]:
            return False
        self.ready[snapshot_id] -= 1
        try:
            taken = await self._storage.take_filled(workspace, snapshot_id)
        finally:
            self._when_taken()
        if taken:
            FaultPoint.AHEAD_TAKEN.reached()
        return taken
