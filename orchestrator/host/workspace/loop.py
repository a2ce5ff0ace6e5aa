"""Loop devices: files as block devices, through direct system calls.

Devices are bound with "autoclear", so a device frees itself when its last user is gone. Only the
mount needs an owner, and a process that dies leaves no device bound.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ground.file_handles import opened

_DEVICES = "/dev/loop"
_CONTROL = f"{_DEVICES}-control"
_CTL_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_GET_STATUS64 = 0x4C05
_AUTOCLEAR = 4
# Avoids caching written data twice. The kernel ignores it if the disk does not support it.
_DIRECT_IO = 16
# Direct writes need at least the disk's block size. Our file systems use the same size.
BLOCK_BYTES = 4096
# `struct loop_info64`: the offset of its flags, and its length.
_INFO_FLAGS = 52
_INFO_BYTES = 232
_CONFIG_RESERVED = 64
# Another process may take the free device first. So many failures in a row are not chance.
_ATTEMPTS = 32
_BLOCK_DEVICES = Path("/sys/block")


@contextmanager
def attached(image: Path) -> Iterator[str]:
    """Provides the block device of `image` during the `with` block. A mount keeps it bound.

    A file that is already bound keeps its device: two devices for one file would destroy it.
    Raises: OSError if there is no device, or if `image` is a symbolic link.
    """
    with opened(image, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC) as image_fd:
        device, device_fd = _bound(image, image_fd) or _bind(image_fd)
    try:
        yield device
    finally:
        os.close(device_fd)


def refusal(error: OSError) -> str | None:
    """Why there is no loop device; None if the error is not about one."""
    device = str(error.filename or "")
    if not device.startswith(_DEVICES):
        return None
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"this process may not use loop devices ({device}: {error.strerror})"
    return f"this host has no loop devices ({device}: {error.strerror})"


def in_use(image: Path) -> bool:
    """Whether a file system on it is mounted, even at a mount point that is no longer visible."""
    with opened(image, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) as image_fd:
        found = _bound(image, image_fd)
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
    with opened(_CONTROL, os.O_RDWR | os.O_CLOEXEC) as control:
        for _ in range(_ATTEMPTS):
            device = f"{_DEVICES}{fcntl.ioctl(control, _CTL_GET_FREE)}"
            device_fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device_fd, _CONFIGURE, config)
            except BaseException as error:
                os.close(device_fd)
                if not isinstance(error, OSError) or error.errno != errno.EBUSY:
                    raise
            else:
                return device, device_fd
    raise OSError(errno.EBUSY, "other processes took every free loop device")


def _bound(image: Path, image_fd: int) -> tuple[str, int] | None:
    """The device that has this file now, and a descriptor that keeps it bound.

    Candidates are found by the end of their file's path, because the kernel shows no more than that
    for a device bound in a container that is gone. Comparing the file itself decides.
    """
    end = f"/{image.parent.name}/{image.name}"
    for directory in _BLOCK_DEVICES.glob("loop*"):
        try:
            path = os.fsdecode((directory / "loop" / "backing_file").read_bytes())
        except OSError:
            continue  # not bound
        if not path.rstrip("\n").endswith(end):
            continue
        device = f"/dev/{directory.name}"
        try:
            device_fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:  # it is being freed
                raise
            continue
        # It may have been freed and bound to another file before it was opened.
        if _file_of(device_fd) == _identity(image_fd):
            return device, device_fd
        os.close(device_fd)
    return None


def _file_of(device_fd: int) -> tuple[int, int] | None:
    info = bytearray(_INFO_BYTES)
    try:
        fcntl.ioctl(device_fd, _GET_STATUS64, info)
    except OSError as error:
        if error.errno != errno.ENXIO:  # not bound
            raise
        return None
    device, inode = struct.unpack_from("Q", info, 0)[0], struct.unpack_from("Q", info, 8)[0]
    return int(device), int(inode)


def _identity(image_fd: int) -> tuple[int, int]:
    facts = os.fstat(image_fd)
    return facts.st_dev, facts.st_ino
