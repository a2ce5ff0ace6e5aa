"""A workspace as its own file system, in a sparse file on a loop device.

The file is as long as the workspace's size limit, so neither the session nor the host can use more
disk space for it. Freed blocks return to the host (`discard`).
"""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace import ext4, loop, mounts
from orchestrator.host.workspace.freezing import thaw
from orchestrator.host.workspace.holders import WorkspaceInUseError, holders_of
from orchestrator.host.workspace.id_map import namespace
from orchestrator.host.workspace.image_copy import IMAGE, LAYER, MOUNT_POINT
from orchestrator.host.workspace.quota import DiskUsage
from orchestrator.host.workspace.slots import make_data, make_slot
from orchestrator.host.workspace.staging_area import areas_in

log = logging.getLogger(__name__)

DRAFT = "workspace.img.new"
_ROOT = 0
# Inode tables already contain zeros. When the host fails to write a file system, because its disk
# is full or broken, the file system becomes read-only.
_OPTIONS = "discard,noinit_itable,errors=remount-ro"
# A removed container releases its mounts a moment later, and no event announces it.
RELEASE_SECONDS = 5.0
# So does a container that is being started: it has copies of all mounts meanwhile.
RESIZE_SECONDS = 15.0
_LOOK_SECONDS = 0.01


class DiskImages:
    """Slots with an image, mounted at `fs`. The data is a directory in it, next to lost+found."""

    def __init__(self, take: Callable[[int, Path], bool] = lambda _size, _slot: False) -> None:
        """`take` moves a prepared slot of that size to that place; False if there is none."""
        self._take = take

    def data(self, slot: Path) -> Path:
        """The data directory in the mounted image."""
        return slot / MOUNT_POINT / "data"

    def open(self, slot: Path, uid: int, size: int) -> Path:
        """Creates what is missing, resizes the image if needed, and mounts it.

        An image keeps its size while a session stages changes in it.

        Raises: WorkspaceInUseError while something on the host uses files of an image that must be
        resized; ImageError, MountError, CapacityExhaustedError, OSError.
        """
        make_slot(slot)
        if (slot / IMAGE).exists():
            try:
                self._fit(slot, uid, size)
            finally:
                self.mount(slot, uid)
        elif not self._take(size, slot):
            self.create(slot, size)
        FaultPoint.CREATE_SLOT_TAKEN.reached()
        return make_data(self.data(slot), uid)

    def create(self, slot: Path, size: int) -> None:
        """Creates the slot and its image, and mounts it.

        Raises: ImageError, MountError, CapacityExhaustedError, OSError.
        """
        make_slot(slot)
        draft = slot / DRAFT
        draft.unlink(missing_ok=True)
        ext4.make(draft, size)
        draft.replace(slot / IMAGE)
        FaultPoint.CREATE_IMAGE_MADE.reached()
        self.mount(slot)

    def mount(self, slot: Path, uid: int | None = None) -> None:
        """Mounts the image unless it is mounted; its data is `uid`'s; None: it has none yet.

        An image that was copied keeps the uid of its first workspace on the disk, and an id-mapped
        mount shows it as `uid`. Raises: MountError, OSError.
        """
        # A resizing that was killed leaves its copy of the image.
        (slot / DRAFT).unlink(missing_ok=True)
        target = slot / MOUNT_POINT
        target.mkdir(mode=0o700, exist_ok=True)
        if mounts.is_mounted(str(target)):
            thaw(target)
        else:
            with loop.attached(slot / IMAGE) as device:
                mounts.mount_device(device, str(target), "ext4", _OPTIONS)
        if uid is not None:
            self._show_as(slot, uid)

    def _show_as(self, slot: Path, uid: int) -> None:
        with suppress(FileNotFoundError):
            stored = self.data(slot).lstat().st_uid
            if stored not in (_ROOT, uid):
                with namespace({_ROOT: _ROOT, stored: uid}) as users:
                    mounts.remount_as(str(slot / MOUNT_POINT), users)

    def count(self, directory: Path, uid: int) -> None:
        """Does nothing: whatever is in the image counts."""

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        """The usage that the image's file system reports; None while unmounted. Raises: OSError."""
        target = slot / MOUNT_POINT
        if not mounts.is_mounted(str(target)):
            return None
        facts = os.statvfs(target)
        used = facts.f_blocks - facts.f_bfree
        # Some free blocks are reserved by the kernel, and nobody can use them.
        return DiskUsage(used * facts.f_frsize, (used + facts.f_bavail) * facts.f_frsize)

    def unmount(self, slot: Path) -> None:
        """Unmounts the image, which stays in the slot. Raises: MountError, OSError."""
        target = slot / MOUNT_POINT
        if target.is_dir() and mounts.is_mounted(str(target)):
            thaw(target)  # a frozen file system would outlive its mount
        mounts.unmount(str(target))

    def remove(self, slot: Path, uid: int, wait: float = RELEASE_SECONDS) -> None:
        """Unmounts and removes the image without reading its contents.

        `wait` is how many seconds others on the host have to release it.
        Raises: MountError; OSError, also if the slot contains an unknown file.
        """
        if not self.discard(slot, wait):
            log.warning(
                "%s: something on the host still uses it; its space will be freed later", slot
            )

    def discard(self, slot: Path, wait: float = RELEASE_SECONDS) -> bool:
        """The same; returns False if something on the host still uses the image, and its space."""
        image = slot / IMAGE
        self.unmount(slot)
        FaultPoint.PURGE_UNMOUNTED.reached()
        released = not image.exists() or _released(image, wait)
        for file in (image, slot / DRAFT, slot / LAYER):
            file.unlink(missing_ok=True)
        FaultPoint.PURGE_IMAGE_REMOVED.reached()
        for directory in (slot / MOUNT_POINT, slot):
            if directory.exists():
                directory.rmdir()
        return released

    def _fit(self, slot: Path, uid: int, size: int) -> None:
        image, target = slot / IMAGE, slot / MOUNT_POINT
        if ext4.measure(image).size == ext4.whole_blocks(size):
            return
        self.mount(slot, uid)
        if areas_in(self.data(slot)):
            return  # shrinking sets change times, which commits read as changes by others
        device = os.lstat(target).st_dev
        # If something still uses it, the file system lives on, and `open` mounts it again.
        mounts.unmount(str(target))
        if not _released(image, RESIZE_SECONDS):
            raise WorkspaceInUseError(holders_of(device))
        wanted = ext4.wanted_size(ext4.measure(image), size)
        if wanted is not None:
            ext4.resize(image, wanted, slot / DRAFT)


def refusal(directory: Path) -> str | None:
    """Why this host can't use images; None if a test image was made and mounted in `directory`.

    Leaves nothing behind, and removes what an earlier attempt left.
    """
    missing = ext4.missing_tools()
    if missing:
        return f"{', '.join(missing)} not found: install e2fsprogs"
    images, slot = DiskImages(), directory / "probe"
    try:
        images.remove(slot, 0)
        try:
            images.open(slot, 0, ext4.SMALLEST_BYTES)
        finally:
            images.remove(slot, 0)
    except PaddockError as error:
        return error.detail
    except OSError as error:
        return loop.refusal(error) or f"{error.filename or 'loop devices'}: {error.strerror}"
    return None


def _released(image: Path, seconds: float) -> bool:
    """Waits for the image's file system to be unmounted everywhere; False if it is not."""
    deadline = time.monotonic() + seconds
    while loop.in_use(image):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
