"""Copies of workspace images, also while sessions use them. Every call blocks.

Nothing is frozen, so a copy that is killed leaves no command waiting. A copy is used only if
nothing was written to the image's device meanwhile: it then has what a loss of power right after a
sync would have left.
"""

import os
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace import ext4, loop, mounts
from orchestrator.host.workspace.staged import descriptors

IMAGE = "workspace.img"
MOUNT_POINT = "fs"
# The writable layer with which sandboxes begin whose session began as a snapshot with one.
LAYER = "layer.img"
_ATTEMPTS = 3
# The numbers of sectors written and discarded (see the kernel's Documentation/block/stat.rst). A
# sync with nothing pending counts as a write of no sectors.
_WRITTEN, _DISCARDED = 6, 13


class Mark(NamedTuple):
    """Changes whenever something is written to the image, or another image takes its place."""

    inode: int
    modified_ns: int
    device: int
    written: tuple[str, ...]


def copy_image(slot: Path, target: Path) -> None:
    """Copies the slot's image with its holes to the new file `target`, and checks the copy.

    Raises: ConflictError if its files were written during each attempt; ImageError; OSError,
    FileNotFoundError if there is no image. `target` may then exist.
    """
    for _ in range(_ATTEMPTS):
        target.unlink(missing_ok=True)
        before = mark(slot)
        ext4.copy_sparse(slot / IMAGE, target)
        if mark(slot) == before:
            ext4.check(target)
            return
    raise ConflictError("its files are being written: pause or end its session")


def mark(slot: Path) -> Mark:
    """What is compared; writes what is pending to the image first.

    Raises: ConflictError, OSError.
    """
    image, mount = slot / IMAGE, slot / MOUNT_POINT
    mounted = mount.is_dir() and mounts.is_mounted(str(mount))
    if mounted:
        sync(mount)
    elif loop.in_use(image):
        raise ConflictError("its file system is mounted out of sight")
    device = mount.lstat().st_dev if mounted else 0
    facts = image.lstat()
    return Mark(facts.st_ino, facts.st_mtime_ns, device, _written(device) if mounted else ())


def _written(device: int) -> tuple[str, ...]:
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    numbers = path.read_text(encoding="ascii").split()
    return numbers[_WRITTEN], numbers[_DISCARDED]


def sync(directory: Path) -> None:
    """Writes what is pending in the directory's file system. Raises: OSError."""
    with opened(directory) as descriptor:
        descriptors.sync_all(descriptor)
