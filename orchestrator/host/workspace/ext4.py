"""ext4 file systems in files: creating, measuring and resizing them.

The e2fsprogs tools do the work. Every call blocks, so run it in a thread.
"""

import errno
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.errors import CapacityExhaustedError, PaddockError
from orchestrator.ground.file_handles import opened

TOOLS = ("mkfs.ext4", "e2fsck", "resize2fs")
BLOCK_BYTES = 4096
# A journal needs at least 1,024 blocks, which is a quarter of the smallest image.
SMALLEST_BYTES = 16 * 1024 * 1024
_JOURNAL_MIB = 4
# One inode per 8 KiB: many small files use up the space first, or the inodes soon after.
_BYTES_PER_INODE = 8192
# The tools' usual directories, in case PATH lacks them.
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MAKE_SECONDS = 60
_RESIZE_SECONDS = 600
_COPY_BYTES = 64 * 1024 * 1024
# An image that was shrunk to its smallest size has almost no free space left.
_FULL = 15 / 16
# resize2fs estimates the smallest size. The estimate improves as the image gets closer to it, but
# resize2fs sometimes fails at its own estimate.
_ATTEMPTS = 3
_SLACKS = (0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
_SUPERBLOCK_AT = 1024
_SUPERBLOCK_BYTES = 1024
_MAGIC = 0xEF53
_RETRY_SECONDS = 10


class ImageError(PaddockError):
    """A workspace's file system can't be created, read or resized."""

    code = "sandbox_unavailable"


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Facts from a superblock, in bytes."""

    size: int
    free: int


def missing_tools() -> list[str]:
    """The required tools that this host lacks."""
    return [name for name in TOOLS if shutil.which(name, path=_PATH) is None]


def whole_blocks(size: int) -> int:
    """The size in bytes of the largest image that does not exceed `size`."""
    return size - size % BLOCK_BYTES


def make(image: Path, size: int) -> None:
    """Makes a sparse image of whole blocks, at most `size` bytes. On failure, nothing is left.

    Raises: ImageError, CapacityExhaustedError, OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with opened(image, flags) as descriptor:
        try:
            os.ftruncate(descriptor, whole_blocks(size))
            _make_file_system(image)
        except BaseException:
            image.unlink(missing_ok=True)
            raise


def _make_file_system(image: Path) -> None:
    _run(
        [
            *("mkfs.ext4", "-q", "-F", "-b", str(BLOCK_BYTES), "-i", str(_BYTES_PER_INODE)),
            # The session may use all of it. No room is reserved for growing in place, and each
            # group keeps its own tables, so the image can shrink to about the size of its files.
            *("-m", "0", "-O", "^resize_inode,^flex_bg", "-J", f"size={_JOURNAL_MIB}"),
            # A new file reads as zeros, so nothing has to be overwritten.
            *("-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", str(image)),
        ],
        _MAKE_SECONDS,
    )


def measure(image: Path) -> FileSystem:
    """Reads the file system of an unmounted image. Raises: ImageError, OSError."""
    with opened(image, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) as descriptor:
        return parse_superblock(os.pread(descriptor, _SUPERBLOCK_BYTES, _SUPERBLOCK_AT))


def parse_superblock(data: bytes) -> FileSystem:
    """Parses the 1,024 bytes of an ext4 superblock. Raises: ImageError."""
    if len(data) < _SUPERBLOCK_BYTES or struct.unpack_from("<H", data, 56)[0] != _MAGIC:
        raise ImageError("the workspace's image has no ext4 file system: restore it, or purge it")
    (shift,) = struct.unpack_from("<I", data, 24)
    low, free_low = (struct.unpack_from("<I", data, at)[0] for at in (4, 12))
    high, free_high = (struct.unpack_from("<I", data, at)[0] for at in (0x150, 0x158))
    block = 1024 << shift
    return FileSystem((high << 32 | low) * block, (free_high << 32 | free_low) * block)


def wanted_size(found: FileSystem, limit: int) -> int | None:
    """The size in bytes that an image should get for a limit; None to keep its size.

    An image whose files exceed the limit keeps its size once it is full: it has no space to return.
    """
    limit = whole_blocks(limit)
    used = found.size - found.free
    if found.size == limit or (found.size > limit and used > found.size * _FULL):
        return None
    return limit


def resize(image: Path, size: int, draft: Path) -> None:
    """Resizes an unmounted image; if its files need more, it gets about their smallest size.

    The work is done on a copy at `draft`, which replaces the image when it is complete, so a
    process that dies during it does no harm. The copy holds the used blocks only. Raises:
    ImageError, CapacityExhaustedError, OSError; the image is then unchanged.
    """
    try:
        for slack in _SLACKS:
            draft.unlink(missing_ok=True)
            copy_sparse(image, draft)
            check(draft)
            if _resized(draft, whole_blocks(size), slack):
                break
        else:
            raise ImageError("resize2fs can't move the workspace's files together")
        with opened(draft, os.O_RDONLY | os.O_CLOEXEC) as descriptor:
            os.fsync(descriptor)
        draft.replace(image)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def check(image: Path) -> None:
    """Replays the journal of an unmounted image, and checks the file system.

    Raises: ImageError.
    """
    _run(["e2fsck", "-f", "-p", str(image)], _RESIZE_SECONDS, accepted=(0, 1))


def _resized(image: Path, size: int, slack: float) -> bool:
    """Whether the image has its target or smallest size now; False if its files need more space."""
    for _ in range(_ATTEMPTS):
        now = image.stat().st_size
        least = least_size(_run(["resize2fs", "-P", str(image)], _RESIZE_SECONDS))
        final = max(size, whole_blocks(int(least * (1 + slack))))
        if now > size and final >= now:
            return True  # it has no space to return
        os.truncate(image, max(final, now))
        try:
            _run(["resize2fs", str(image), f"{final // BLOCK_BYTES}"], _RESIZE_SECONDS)
        except CapacityExhaustedError:  # limited by the image's own free space, at least at first
            return False
        os.truncate(image, final)
        if final == size:
            return True
    return True


def least_size(output: str) -> int:
    """The size in bytes that `resize2fs -P` prints. Raises: ImageError."""
    found = re.search(r"minimum size of the filesystem: (\d+)\s*$", output)
    if found is None:
        raise ImageError("resize2fs did not report the workspace's smallest size")
    return int(found[1]) * BLOCK_BYTES


def copy_sparse(source: Path, target: Path) -> None:
    """Copies a file with its holes. Raises: OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        opened(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) as read,
        opened(target, flags) as write,
    ):
        for _ in copied(read, write):
            pass


def copied(read: int, write: int) -> Iterator[int]:
    """Copies a file with its holes to an empty one; yields the bytes of each piece.

    Raises: OSError.
    """
    os.ftruncate(write, os.fstat(read).st_size)
    for start, end in data_ranges(read):
        yield from _copied(read, write, start, end)


def data_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file that hold data, as (start, end) in bytes."""
    length, end = os.fstat(descriptor).st_size, 0
    while end < length:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # only a hole is left
                raise
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


def _copied(read: int, write: int, start: int, end: int) -> Iterator[int]:
    os.lseek(write, start, os.SEEK_SET)
    while start < end:
        count = os.sendfile(write, read, start, min(_COPY_BYTES, end - start))
        start += count
        yield count


def _run(argv: list[str], seconds: float, accepted: tuple[int, ...] = (0,)) -> str:
    """Runs a tool and returns its output. Raises: ImageError, CapacityExhaustedError."""
    program = shutil.which(argv[0], path=_PATH)
    if program is None:
        raise ImageError(f"{argv[0]} is not installed: install e2fsprogs")
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"LC_ALL": "C", "PATH": _PATH},
            cwd="/",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"{argv[0]} did not finish within {seconds:g} s") from None
    output = done.stdout.decode(errors="replace").strip()
    if done.returncode not in accepted:
        if "No space left on device" in output:
            raise CapacityExhaustedError(
                "the host is short of disk space for a workspace", retry_after=_RETRY_SECONDS
            )
        last = output.splitlines()[-1][:200] if output else f"exit status {done.returncode}"
        raise ImageError(f"{argv[0]} failed: {last}")
    return output
