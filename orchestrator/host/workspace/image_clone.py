"""Copies of workspace images that share their blocks with them where the host's disk can do that.

Where it can't, the ranges that hold data are copied. Every call blocks.
"""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace import ext4, loop, mounts
from orchestrator.host.workspace.freezing import Freeze, Freezes, frozen
from orchestrator.host.workspace.image_copy import IMAGE, MOUNT_POINT, mark, sync

Method: TypeAlias = Literal["reflink", "copy"]
# Bytes that were copied so far.
Progress: TypeAlias = Callable[[int], object]

_CLONE = 0x40049409
# What the kernel says where blocks can't be shared: another file system, or one that can't do it.
_CANNOT = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)
# Commands that write to a workspace must not wait longer than this for a copy of it.
MOST_FROZEN_SECONDS = 30.0
_LATE = (
    "its files are being written, and copying them while that waits takes over "
    f"{MOST_FROZEN_SECONDS:g} s: pause the session, or try again when it is idle"
)
_SECTOR = 512
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Saved(NamedTuple):
    """A copy of an image: its length, what it takes on the disk, and how it was made."""

    size: int
    bytes: int
    used_bytes: int
    method: Method
    frozen_ms: float


def save(slot: Path, target: Path, progress: Progress, freezes: Freezes) -> Saved:
    """Copies the slot's image to the new file `target`, as it is at one moment.

    Where blocks can be shared, what writes to the workspace waits for that moment. Else it waits
    only if it wrote during a first copy, and then until a second one is complete. Raises:
    ConflictError if that takes too long, or if `freezes` are ended meanwhile; OSError,
    FileNotFoundError if there is no image. `target` may then exist.
    """
    mount, image = slot / MOUNT_POINT, slot / IMAGE
    with opened(image, _READ) as source, opened(target, _NEW) as copy:
        mounted = _is_mounted(slot)
        if not mounted:
            method, frozen_seconds = clone(source, copy, progress), 0.0
        elif _shared(source, copy):
            method, frozen_seconds = "reflink", _clone_frozen(mount, source, copy, freezes)
        else:
            method, frozen_seconds = "copy", _copy_consistent(slot, source, copy, progress, freezes)
        os.fsync(copy)
        facts = os.fstat(copy)
        used = _used(mount, mounted, target)
    taken = facts.st_blocks * _SECTOR
    return Saved(facts.st_size, taken, used, method, round(frozen_seconds * 1000, 3))


def _used(mount: Path, mounted: bool, copy: Path) -> int:
    """The superblock of a mounted file system says what was used some time ago."""
    if mounted:
        facts = os.statvfs(mount)
        return (facts.f_blocks - facts.f_bfree) * facts.f_frsize
    found = ext4.measure(copy)
    return found.size - found.free


def save_file(source: Path, target: Path, progress: Progress) -> Saved:
    """Copies an image that nothing writes to, to the new file `target`.

    Raises: OSError, FileNotFoundError without `source`; `target` may then exist.
    """
    with opened(source, _READ) as read, opened(target, _NEW) as copy:
        method = clone(read, copy, progress)
        os.fsync(copy)
        facts = os.fstat(copy)
        used = _used(source, mounted=False, copy=target)
    return Saved(facts.st_size, facts.st_blocks * _SECTOR, used, method, 0.0)


def place(source: Path, slot: Path, draft: Path, progress: Progress) -> Method:
    """Makes a copy of the image `source` the slot's own; the slot exists, and has none.

    `draft` is a name in the slot. Raises: OSError, FileNotFoundError without `source`.
    """
    draft.unlink(missing_ok=True)
    with opened(source, _READ) as read, opened(draft, _NEW) as copy:
        method = clone(read, copy, progress)
        os.fsync(copy)
    draft.replace(slot / IMAGE)
    return method


def clone(source: int, copy: int, progress: Progress) -> Method:
    """Copies an image that nothing writes to. Raises: OSError."""
    if _shared(source, copy):
        return "reflink"
    _copy(source, copy, progress)
    return "copy"


def _is_mounted(slot: Path) -> bool:
    """Raises: ConflictError if it is mounted where nobody can freeze it."""
    mount = slot / MOUNT_POINT
    if mount.is_dir() and mounts.is_mounted(str(mount)):
        return True
    if loop.in_use(slot / IMAGE):
        raise ConflictError("its file system is mounted out of sight: try again")
    return False


def _clone_frozen(mount: Path, source: int, copy: int, freezes: Freezes) -> float:
    sync(mount)
    with frozen(mount, freezes, MOST_FROZEN_SECONDS, _LATE) as freeze:
        fcntl.ioctl(copy, _CLONE, source)
    return freeze.seconds


def _copy_consistent(
    slot: Path, source: int, copy: int, progress: Progress, freezes: Freezes
) -> float:
    before = mark(slot)
    _copy(source, copy, progress)
    if mark(slot) == before:
        return 0.0
    os.ftruncate(copy, 0)
    with frozen(slot / MOUNT_POINT, freezes, MOST_FROZEN_SECONDS, _LATE) as freeze:
        _copy(source, copy, progress, freeze)
    return freeze.seconds


def _shared(source: int, copy: int) -> bool:
    """Whether the copy shares the source's blocks now. Raises: OSError."""
    try:
        fcntl.ioctl(copy, _CLONE, source)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def _copy(source: int, copy: int, progress: Progress, freeze: Freeze | None = None) -> None:
    """Raises: OSError; ConflictError if `freeze` is ended meanwhile."""
    os.ftruncate(copy, os.fstat(source).st_size)
    done = 0
    for piece in ext4.copied(source, copy):
        done += piece
        progress(done)
        if freeze is not None:
            freeze.check()
