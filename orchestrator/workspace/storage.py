"""Where workspaces are kept: each by the driver that it was made with, off the event loop."""

import asyncio
import errno
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Self, TypeVar
from weakref import WeakValueDictionary

from orchestrator.config.settings import Settings
from orchestrator.errors import CapacityExhaustedError, PaddockError
from orchestrator.task_scope import TaskScope
from orchestrator.threads import Threads, ThreadsBusyError, bounded
from orchestrator.workspace import disk_image, mounts, project_quota
from orchestrator.workspace.disk_image import DiskImages
from orchestrator.workspace.paths import slot_path
from orchestrator.workspace.plain_directory import PlainDirectories
from orchestrator.workspace.prepared import PreparedImages
from orchestrator.workspace.project_quota import KernelCalls, ProjectQuotas
from orchestrator.workspace.quota import Choice, DiskUsage, Driver, Quota, choose
from orchestrator.workspace.slots import Workspace

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOUNT_SECONDS = 60.0
# Resizing copies what the workspace holds; removing may have to walk all of it.
_LONG_SECONDS = 1200.0
_USAGE_SECONDS = 0.8
_RETRY_SECONDS = 10
# More than creations under way; those that hang keep theirs.
_MOST_THREADS = 32
_MOST_LOOKS = 8


class StorageError(PaddockError):
    """A workspace can't be made, mounted, resized or removed on this host."""

    code = "sandbox_unavailable"


class Storage:
    """The workspaces' slots. One call at a time works on one of them."""

    def __init__(self, settings: Settings, choice: Choice) -> None:
        self._state_dir = settings.state_dir
        self._prepared = PreparedImages(settings.state_dir / "prepared")
        self._drivers: dict[Quota, Driver] = {
            Quota.IMAGE: DiskImages(self._prepared),
            Quota.PROJECT: ProjectQuotas(KernelCalls()),
            Quota.NONE: PlainDirectories(),
        }
        self.choice = choice
        self._threads = Threads("workspaces", _MOST_THREADS)
        self._looks = Threads("the use of workspaces", _MOST_LOOKS)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Slots in which a call goes on that nobody waits for any more, as it took too long.
        self._overdue: set[str] = set()
        self._looking: dict[str, asyncio.Future[DiskUsage | None]] = {}
        # Sizes of which images are to be made, and the task that does.
        self._wanted: OrderedDict[int, None] = OrderedDict()
        self._refilling = TaskScope("making workspaces ahead")

    @classmethod
    async def open(cls, settings: Settings) -> Self:
        """Looks what this host can do, and takes away what a start that failed has left.

        Raises: ConfigError where it can't do what the settings say; StorageError.
        """
        prepared = settings.state_dir / "prepared"
        try:
            await bounded(PreparedImages(prepared).clean, _MOUNT_SECONDS)
            choice = await bounded(lambda: choice_for(settings, prepared), _MOUNT_SECONDS)
        except (OSError, TimeoutError) as error:
            raise StorageError(f"the state directory can't be used: {error}") from error
        if choice.quota is Quota.NONE and settings.workspace_quota != "none":
            log.warning("workspaces are not held to their size: %s", "; ".join(choice.refusals))
        return cls(settings, choice)

    def data(self, workspace: Workspace) -> Path:
        """Where the workspace's own files are, once it is prepared."""
        return self._drivers[workspace.quota].data(self._slot(workspace))

    async def prepare(self, workspace: Workspace, size: int) -> Path:
        """Makes what is missing of it, and holds it to `size` bytes; returns its data.

        Raises: CapacityExhaustedError when the host's disk is full, ConflictError while
        something on the host uses what must be resized; StorageError, ImageError, MountError.
        """
        driver, slot = self._drivers[workspace.quota], self._slot(workspace)
        data = await self._call(
            workspace, lambda: driver.open(slot, workspace.uid, size), _LONG_SECONDS
        )
        if workspace.quota is Quota.IMAGE:
            self._refill(size)
        return data

    async def mount(self, workspace: Workspace) -> None:
        """Makes an existing workspace visible again, as after a start of the host.

        Raises: StorageError, MountError, ImageError.
        """
        driver, slot = self._drivers[workspace.quota], self._slot(workspace)

        def mount() -> None:
            if slot.exists():  # purged meanwhile, it is not
                driver.mount(slot)

        await self._call(workspace, mount, _MOUNT_SECONDS)

    async def usage(self, workspace: Workspace) -> DiskUsage | None:
        """How full it is; None where nothing holds it, or nobody can tell in time."""
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
            return None  # the rest of a session can be shown all the same

    async def remove(self, workspace: Workspace) -> None:
        """Removes its files; no command runs in it.

        Raises: PurgeError, StorageError, MountError.
        """
        driver, slot = self._drivers[workspace.quota], self._slot(workspace)
        await self._call(workspace, lambda: driver.remove(slot, workspace.uid), _LONG_SECONDS)

    async def unmount_strays(self, known: Iterable[Workspace]) -> int:
        """Unmounts what is mounted in slots of no workspace; how many. Files stay."""
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
        """Ends what goes on in the background; workspaces stay as they are."""
        self._wanted.clear()
        await self._refilling.drain()

    def _slot(self, workspace: Workspace) -> Path:
        return slot_path(self._state_dir, workspace.slot)

    async def _call(self, workspace: Workspace, function: Callable[[], T], seconds: float) -> T:
        """What `function` returns; until it has, also when nobody waits, no other works there.

        Raises: StorageError, CapacityExhaustedError, and what `function` raises.
        """
        slot = workspace.slot
        try:
            if slot in self._overdue:
                raise StorageError("the workspace's disk still works on what took too long before")
            calling = await self._begin(slot, function, seconds)
            async with asyncio.timeout(seconds):
                return await asyncio.shield(calling)
        except ThreadsBusyError as error:
            raise StorageError(f"workspaces can't be changed: {error}") from error
        except TimeoutError as error:
            raise StorageError("the workspace's disk does not answer in time") from error
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
        """Has the call begun, with the slot's lock held until it has come back."""
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

    def _refill(self, size: int) -> None:
        """Has images of that size made; those that wait already are made first."""
        self._wanted[size] = None
        if self._refilling.idle:
            self._refilling.spawn(self._refill_wanted())

    async def _refill_wanted(self) -> None:
        while self._wanted:
            size, _ = self._wanted.popitem(last=False)
            refill = partial(self._prepared.refill, size)
            try:
                await self._threads.call(refill, _MOUNT_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, others are made
                log.warning("no workspaces of %d bytes are made ahead: %s", size, error)


def choice_for(settings: Settings, directory: Path) -> Choice:
    """The driver for new workspaces; it is tried in `directory`, of which nothing is left. Blocks.

    Raises: ConfigError where the one that the settings name can't be used.
    """
    return choose(
        settings.workspace_quota,
        (
            (Quota.IMAGE, lambda: disk_image.refusal(directory)),
            (Quota.PROJECT, lambda: project_quota.refusal(directory, KernelCalls())),
        ),
    )


def _is_below(point: str, slots: set[str]) -> bool:
    return any(point.startswith(f"{slot}/") for slot in slots)
