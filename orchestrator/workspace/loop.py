"""Loop devices: a file as a block device, by the kernel's own calls.

A device is bound with "autoclear": it frees itself when its last user is gone. So the mount
of a file system is all that there is to own, and a process that dies leaves no device bound.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONTROL = "/dev/loop-control"
_CTL_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_GET_STATUS64 = 0x4C05
_AUTOCLEAR = 4
# What is written is not kept in memory twice; the kernel drops it where the disk can't do it.
_DIRECT_IO = 16
# At least that of every disk, which direct writes need; our file systems have the same.
BLOCK_BYTES = 4096
# `struct loop_info64`: where its flags are, and its length.
_INFO_FLAGS = 52
_INFO_BYTES = 232
_CONFIG_RESERVED = 64
# Another process may take the free device first; so often in a row it is not by chance.
_ATTEMPTS = 32
_BLOCK_DEVICES = Path("/sys/block")


@contextmanager
def attached(image: Path) -> Iterator[str]:
    """The block device of `image`, for the time of the block; what was mounted keeps it.

    A file that is bound already keeps its device: two of one file would destroy it.
    Raises: OSError: there is no device, or `image` is a symbolic link.
    """
    image_fd = os.open(image, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        device, device_fd = _bound(image, image_fd) or _bind(image_fd)
    finally:
        os.close(image_fd)
    try:
        yield device
    finally:
        os.close(device_fd)


def in_use(image: Path) -> bool:
    """Whether a file system of it is mounted, be it in a place that nobody sees any more."""
    image_fd = os.open(image, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = _bound(image, image_fd)
    finally:
        os.close(image_fd)
    if found is None:
        return False
    device, device_fd = found
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return True
    finally:
        os.close(device_fd)
    return False


def _bind(image_fd: int) -> tuple[str, int]:
    info = bytearray(_INFO_BYTES)
    struct.pack_into("I", info, _INFO_FLAGS, _AUTOCLEAR | _DIRECT_IO)
    config = struct.pack("II", image_fd, BLOCK_BYTES) + bytes(info) + bytes(_CONFIG_RESERVED)
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            device = f"/dev/loop{fcntl.ioctl(control, _CTL_GET_FREE)}"
            device_fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device_fd, _CONFIGURE, config)
            except BaseException as error:
                os.close(device_fd)
                if not isinstance(error, OSError) or error.errno != errno.EBUSY:
                    raise
            else:
                return device, device_fd
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "every free loop device is taken by somebody else")


def _bound(image: Path, image_fd: int) -> tuple[str, int] | None:
    """The device that has this file now, and a descriptor that keeps it so.

    Devices are told by the end of their file's path: of one that was bound in a container
    which is gone, the kernel shows no more of it. The file itself decides.
    """
    end = f"/{image.parent.name}/{image.name}"
    for directory in _BLOCK_DEVICES.glob("loop*"):
        try:
            path = os.fsdecode((directory / "loop" / "backing_file").read_bytes())
        except OSError:
            continue  # bound to nothing
        if not path.rstrip("\n").endswith(end):
            continue
        device = f"/dev/{directory.name}"
        try:
            device_fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:  # it is being freed
                raise
            continue
        # It may have been freed, and taken for something else, before it was opened.
        if _file_of(device_fd) == _identity(image_fd):
            return device, device_fd
        os.close(device_fd)
    return None


def _file_of(device_fd: int) -> tuple[int, int] | None:
    info = bytearray(_INFO_BYTES)
    try:
        fcntl.ioctl(device_fd, _GET_STATUS64, info)
    except OSError as error:
        if error.errno != errno.ENXIO:  # bound to nothing
            raise
        return None
    device, inode = struct.unpack_from("Q", info, 0)[0], struct.unpack_from("Q", info, 8)[0]
    return int(device), int(inode)


def _identity(image_fd: int) -> tuple[int, int]:
    facts = os.fstat(image_fd)
    return facts.st_dev, facts.st_ino
