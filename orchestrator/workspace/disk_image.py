"""A workspace as a file system of its own, in a sparse file on a loop device.

The file is as long as the workspace may be large, so neither the session nor the host can
lose more to it. Removed blocks go back to the host (`discard`).
"""

import logging
import os
import time
from pathlib import Path

from orchestrator.errors import ConflictError, PaddockError
from orchestrator.workspace import ext4, loop, mounts
from orchestrator.workspace.prepared import PreparedImages
from orchestrator.workspace.quota import DiskUsage
from orchestrator.workspace.slots import make_data, make_slot

log = logging.getLogger(__name__)

_IMAGE = "workspace.img"
_DRAFT = "workspace.img.new"
_MOUNT = "fs"
# Inode tables are zeros already; a file system that the host fails (its disk is full, or
# broken) is not written any more.
_OPTIONS = "discard,noinit_itable,errors=remount-ro"
# A container that was removed lets go of its mounts a moment later, of which nothing tells.
_RELEASE_SECONDS = 5.0
_LOOK_SECONDS = 0.01


class DiskImages:
    """Slots with an image, mounted at `fs`; the data is a directory in it beside lost+found."""

    def __init__(self, prepared: PreparedImages | None = None) -> None:
        self._prepared = prepared

    def data(self, slot: Path) -> Path:
        """The directory in the image, where that is mounted."""
        return slot / _MOUNT / "data"

    def open(self, slot: Path, uid: int, size: int) -> Path:
        """Makes what is missing, gives the image its size, and mounts it.

        Raises: ConflictError while something on the host uses files of an image that should
        change its size; ImageError, MountError, CapacityExhaustedError, OSError.
        """
        make_slot(slot)
        image = slot / _IMAGE
        if image.exists():
            try:
                self._fit(slot, size)
            finally:
                self.mount(slot)
        else:
            self._make(image, size)
            self.mount(slot)
        return make_data(self.data(slot), uid)

    def mount(self, slot: Path) -> None:
        """Mounts the image where it is not. Raises: MountError, OSError."""
        target = slot / _MOUNT
        target.mkdir(mode=0o700, exist_ok=True)
        if not mounts.is_mounted(str(target)):
            with loop.attached(slot / _IMAGE) as device:
                mounts.mount_device(device, str(target), "ext4", _OPTIONS)

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        """As the image's file system counts; None while it is not mounted. Raises: OSError."""
        target = slot / _MOUNT
        if not mounts.is_mounted(str(target)):
            return None
        facts = os.statvfs(target)
        used = facts.f_blocks - facts.f_bfree
        # Some blocks are free, but for nobody: the kernel keeps them for itself.
        return DiskUsage(used * facts.f_frsize, (used + facts.f_bavail) * facts.f_frsize)

    def remove(self, slot: Path, uid: int) -> None:
        """Unmounts and removes the image: nothing in it is looked at.

        Raises: MountError; OSError, also when something unknown is in the slot.
        """
        image, target = slot / _IMAGE, slot / _MOUNT
        mounts.unmount(str(target))
        if image.exists() and not _released(image):
            log.warning("%s: something on the host still uses it; its space is free later", slot)
        for file in (image, slot / _DRAFT):
            file.unlink(missing_ok=True)
        for directory in (target, slot):
            if directory.exists():
                directory.rmdir()

    def _make(self, image: Path, size: int) -> None:
        draft = image.with_name(_DRAFT)
        draft.unlink(missing_ok=True)
        if self._prepared is None or not self._prepared.take(size, draft):
            ext4.make(draft, size)
        draft.replace(image)

    def _fit(self, slot: Path, size: int) -> None:
        image, target = slot / _IMAGE, slot / _MOUNT
        if ext4.measure(image).size == ext4.whole_blocks(size):
            return
        try:
            mounts.unmount(str(target), busy=False)
        except mounts.MountError as error:
            raise _in_use() from error
        if not _released(image):
            raise _in_use()
        wanted = ext4.wanted_size(ext4.measure(image), size)
        if wanted is not None:
            ext4.resize(image, wanted, slot / _DRAFT)


def refusal(directory: Path) -> str | None:
    """Why images can't be used on this host; None: one was made and mounted in `directory`.

    Nothing of it is left, nor of what an earlier try left there.
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
        return f"{error.filename or 'loop devices'}: {error.strerror}"
    return None


def _released(image: Path) -> bool:
    """Whether its file system is mounted nowhere, be it after a moment."""
    deadline = time.monotonic() + _RELEASE_SECONDS
    while loop.in_use(image):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _in_use() -> ConflictError:
    return ConflictError(
        "the workspace's size can't be changed while something on the host uses its files"
    )
