"""Stores workspaces, each with the driver it was created with, off the event loop."""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self, TypeVar
from weakref import WeakValueDictionary

from orchestrator.ground.errors import CapacityExhaustedError, PaddockError
from orchestrator.ground.threads import Threads, ThreadsBusyError, bounded
from orchestrator.host.workspace import disk_image, mounts, project_quota, staging_area
from orchestrator.host.workspace.disk_image import DiskImages
from orchestrator.host.workspace.image_copy import LAYER
from orchestrator.host.workspace.paths import slot_path
from orchestrator.host.workspace.plain_directory import PlainDirectories
from orchestrator.host.workspace.prepared_slots import PreparedSlots
from orchestrator.host.workspace.project_quota import KernelCalls, ProjectQuotas
from orchestrator.host.workspace.quota import Choice, DiskUsage, Driver, Quota, choose
from orchestrator.host.workspace.slots import Workspace
from orchestrator.host.workspace.slots_ahead import SlotsAhead
from orchestrator.host.workspace.staged_work import settle
from orchestrator.host.workspace.staging_area import StagingArea, area_of, areas_in
from orchestrator.settings.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOUNT_SECONDS = 60.0
# Resizing copies the workspace's contents, and removing may have to walk all of them.
_LONG_SECONDS = 1200.0
_USAGE_SECONDS = 0.8
_RETRY_SECONDS = 10
# More than concurrent creations, because a call that hangs keeps its thread.
_MOST_THREADS = 32
_MOST_LOOKS = 8


class StorageError(PaddockError):
    """This host can't make, mount, resize or remove a workspace."""

    code = "sandbox_unavailable"


class Storage:
    """The workspaces' slots. Only one call at a time works on a slot."""

    def __init__(self, settings: Settings, choice: Choice) -> None:
        self._state_dir = settings.state_dir
        self._prepared = PreparedSlots(settings.state_dir / "prepared")
        self._drivers: dict[Quota, Driver] = {
            Quota.IMAGE: DiskImages(self._prepared.take),
            Quota.PROJECT: ProjectQuotas(KernelCalls()),
            Quota.NONE: PlainDirectories(),
        }
        self.choice = choice
        self._threads = Threads("workspaces", _MOST_THREADS)
        self.ahead = SlotsAhead(self._prepared, self._threads)
        self._looks = Threads("the use of workspaces", _MOST_LOOKS)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Slots with a call that took too long: it still runs, but nobody waits for it.
        self._overdue: set[str] = set()
        self._looking: dict[str, asyncio.Future[DiskUsage | None]] = {}
        # The kinds of workspaces on which a trial of staging succeeded.
        self._stages: set[Quota] = set()

    @classmethod
    async def open(cls, settings: Settings) -> Self:
        """Checks what this host supports and removes what a failed start left.

        Raises: ConfigError if the host does not support the settings; StorageError.
        """
        prepared = settings.state_dir / "prepared"
        try:
            await bounded(PreparedSlots(prepared).clear, _MOUNT_SECONDS)
            choice = await bounded(lambda: choice_for(settings, prepared), _MOUNT_SECONDS)
        except (OSError, TimeoutError) as error:
            raise StorageError(f"the state directory can't be used: {error}") from error
        if choice.quota is Quota.NONE and settings.workspace_quota != "none":
            log.warning("workspace sizes are not enforced: %s", "; ".join(choice.refusals))
        return cls(settings, choice)

    def data(self, workspace: Workspace) -> Path:
        """The directory of the workspace's own files, once it is prepared."""
        return self._drivers[workspace.quota].data(self._slot(workspace))

    def layer(self, workspace: Workspace) -> Path:
        """The writable layer with which its session's sandboxes begin, if the file exists."""
        return self._slot(workspace) / LAYER

    async def prepare(self, workspace: Workspace, size: int, stages: str | None = None) -> Path:
        """Creates what is missing, limits it to `size` bytes, and returns the data directory.

        The staging areas of all sessions but the one with the key `stages` are removed. Raises:
        CapacityExhaustedError if the host's disk is full; WorkspaceInUseError while something on
        the host uses a file that must be resized; StorageError, ImageError, MountError; PurgeError,
        ProposalsError.
        """
        driver, slot = self._drivers[workspace.quota], self._slot(workspace)

        def prepare() -> Path:
            data = driver.open(slot, workspace.uid, size)
            for area in areas_in(data):
                if area.path.name != stages:
                    _remove_area(data, area, workspace.uid)
            return data

        data = await self._call(workspace, prepare, _LONG_SECONDS)
        if workspace.quota is Quota.IMAGE and not workspace.is_volume:
            self.ahead.expect(size)
        return data

    def expect(self, size: int) -> None:
        """Prepares a slot, because a new workspace of that size may be needed."""
        if self.choice.quota is Quota.IMAGE:
            self.ahead.expect(size)

    async def stage(self, workspace: Workspace, session_key: str) -> StagingArea:
        """The session's staging area, made if it is missing, in a prepared workspace.

        A commit that was interrupted is finished or undone. Raises: StorageError if this host can't
        have an area; ProposalsError.
        """
        driver, data = self._drivers[workspace.quota], self.data(workspace)

        def stage() -> StagingArea:
            area = area_of(data, session_key)
            if area.unsettled:
                settle(data, area, workspace.uid)
            area.path.parent.mkdir(mode=0o700, exist_ok=True)
            driver.count(area.path.parent, workspace.uid)
            if workspace.quota not in self._stages:
                why = staging_area.refusal(area.path.parent, workspace.uid)
                if why is not None:
                    raise StorageError(f"changes can't be staged on this host: {why}")
                self._stages.add(workspace.quota)
            area.make(workspace.uid)
            return area

        return await self._call(workspace, stage, _LONG_SECONDS)

    async def unstage(self, workspace: Workspace, session_key: str) -> None:
        """Removes what the session has staged, once no sandbox has it mounted.

        Raises: PurgeError, StorageError, ProposalsError.
        """
        data = self.data(workspace)
        area = area_of(data, session_key)
        await self._call(workspace, lambda: _remove_area(data, area, workspace.uid), _LONG_SECONDS)

    async def on_slot(self, workspace: Workspace, function: Callable[[Path], T]) -> T:
        """The result of `function`, which gets the slot while nothing else works on it.

        Raises: StorageError, CapacityExhaustedError, and what `function` raises.
        """
        slot = self._slot(workspace)
        return await self._call(workspace, lambda: function(slot), _LONG_SECONDS)

    async def take_filled(self, workspace: Workspace, files: str) -> bool:
        """Makes a slot with those files, made ahead, a new workspace's; False if there is none.

        Raises: StorageError.
        """
        slot = self._slot(workspace)
        return await self._call(workspace, lambda: self._prepared.take(files, slot), _MOUNT_SECONDS)

    def area(self, workspace: Workspace, session_key: str) -> StagingArea:
        """The session's staging area, which need not exist."""
        return area_of(self.data(workspace), session_key)

    async def mount(self, workspace: Workspace) -> None:
        """Makes an existing workspace visible again, for example after the host started.

        Raises: StorageError, MountError, ImageError.
        """
        driver, slot = self._drivers[workspace.quota], self._slot(workspace)

        def mount() -> None:
            if slot.exists():  # it does not exist if it was purged meanwhile
                driver.mount(slot, workspace.uid)

        await self._call(workspace, mount, _MOUNT_SECONDS)

    async def usage(self, workspace: Workspace) -> DiskUsage | None:
        """Its usage; None if it has no size limit, or if the answer takes too long."""
        driver, slot = self._drivers[workspace.quota], self._slot(workspace)
        until = asyncio.get_running_loop().time() + _USAGE_SECONDS
        try:
            looking = self._looking.get(workspace.slot)
            if looking is None:
                looking = await self._looks.begin(
                    lambda: driver.usage(slot, workspace.uid), _USAGE_SECONDS
                )
                self._looking[workspace.slot] = looking
                looking.add_done_callback(lambda _: self._looking.pop(workspace.slot, None))
            async with asyncio.timeout_at(until):
                return await asyncio.shield(looking)
        except (PaddockError, OSError, TimeoutError):
            return None  # the rest of a session can still be shown

    async def remove(self, workspace: Workspace) -> None:
        """Removes its files; no command may be running in it.

        Raises: PurgeError, StorageError, MountError.
        """
        driver, slot = self._drivers[workspace.quota], self._slot(workspace)
        await self._call(workspace, lambda: driver.remove(slot, workspace.uid), _LONG_SECONDS)

    async def unmount_strays(self, known: Iterable[Workspace]) -> int:
        """Unmounts slots that belong to no workspace and returns their number. Files stay."""
        slots = {str(self._slot(workspace).resolve()) for workspace in known}

        def unmount() -> int:
            points = mounts.mounts_under(str(self._state_dir / "slots"))
            strays = [point for point in points if not _is_below(point, slots)]
            for point in strays:
                log.warning("%s is mounted and belongs to no workspace: unmounted", point)
                mounts.unmount(point)
            return len(strays)

        return await self._threads.call(unmount, _MOUNT_SECONDS)

    async def close(self) -> None:
        """Ends background work and removes what was made ahead; workspaces stay as they are."""
        await self.ahead.close()

    def _slot(self, workspace: Workspace) -> Path:
        return slot_path(self._state_dir, workspace.slot)

    async def _call(self, workspace: Workspace, function: Callable[[], T], seconds: float) -> T:
        """Runs `function` on the slot and returns its result.

        Until it has returned, no other call works on the slot, even if its caller stopped waiting.
        Raises: StorageError, CapacityExhaustedError, and what `function` raises.
        """
        slot = workspace.slot
        try:
            if slot in self._overdue:
                raise StorageError(
                    "the workspace's disk is still busy with a call that took too long"
                )
            calling = await self._begin(slot, function, seconds)
            async with asyncio.timeout(seconds):
                return await asyncio.shield(calling)
        except ThreadsBusyError as error:
            raise StorageError(f"workspaces can't be changed: {error}") from error
        except TimeoutError as error:
            late = f"the workspace's disk does not answer in time: it took over {seconds:g} s"
            raise StorageError(late) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CapacityExhaustedError(
                    "the host is short of disk space for a workspace",
                    retry_after=_RETRY_SECONDS,
                ) from error
            raise StorageError(f"the workspace can't be used: {error.strerror}") from error

    async def _begin(
        self, slot: str, function: Callable[[], T], seconds: float
    ) -> asyncio.Future[T]:
        """Starts the call and holds the slot's lock until it has returned."""
        lock = self._locks.setdefault(slot, asyncio.Lock())
        async with asyncio.timeout(seconds):
            await lock.acquire()
        try:
            calling = await self._threads.begin(function, seconds)
        except BaseException:
            lock.release()
            raise
        overdue = asyncio.get_running_loop().call_later(seconds, self._overdue.add, slot)

        def came_back(_: object) -> None:
            overdue.cancel()
            self._overdue.discard(slot)
            lock.release()

        calling.add_done_callback(came_back)
        return calling


def choice_for(settings: Settings, directory: Path) -> Choice:
    """Chooses the driver for new workspaces by a trial in `directory`, and cleans up. Blocks.

    Raises: ConfigError if the driver that the settings name can't be used.
    """
    return choose(
        settings.workspace_quota,
        (
            (Quota.IMAGE, lambda: disk_image.refusal(directory)),
            (Quota.PROJECT, lambda: project_quota.refusal(directory, KernelCalls())),
        ),
    )


def _remove_area(data: Path, area: StagingArea, uid: int) -> None:
    """Removes an area, after an interrupted commit, which may hold files of the workspace."""
    if area.unsettled:
        settle(data, area, uid)
    area.remove(uid)


def _is_below(point: str, slots: set[str]) -> bool:
    return any(point.startswith(f"{slot}/") for slot in slots)
