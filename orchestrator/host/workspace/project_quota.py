"""Limits a workspace with the host file system's quotas; each workspace is a project.

The project id is the workspace's uid. ext4 (with CONFIG_QFMT_V2 in the kernel) and XFS support it
if they are mounted with `prjquota`.
"""

import ctypes
import errno
import fcntl
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace.mounts import syscall
from orchestrator.host.workspace.plain_directory import PlainDirectories
from orchestrator.host.workspace.quota import DiskUsage

# The number is the same on every architecture. Linux 5.14.
_SYS_QUOTACTL_FD = 443
_Q_GETQUOTA = 0x800007
_Q_SETQUOTA = 0x800008
_PROJECT = 2
_QIF_BLOCK_LIMITS = 1
_QIF_INODE_LIMITS = 4
# `struct if_dqblk`; its limits are in KiB, its usage is in bytes.
_DQBLK = struct.Struct("=8QI4x")
_KIB = 1024
_FS_IOC_FSGETXATTR = 0x801C581F
_FS_IOC_FSSETXATTR = 0x401C5820
# `struct fsxattr`: flags, extent size, extents, project, extent size for copies.
_FSXATTR = struct.Struct("=5I8x")
_INHERIT = 0x200
# The same number of files as an image of that size would hold.
_BYTES_PER_FILE = 8192


@dataclass(frozen=True, slots=True)
class ProjectUse:
    """A project's usage and limit, in bytes; a limit of 0 means none."""

    used: int
    limit: int


class ProjectCalls(Protocol):
    """The system calls on a directory of the file system. Each raises OSError."""

    def quota(self, directory: Path, project: int) -> ProjectUse:
        """The project's usage and limit."""

    def limit(self, directory: Path, project: int, size: int, files: int) -> None:
        """Sets the project's hard limits for bytes and files; 0 means no limit."""

    def assign(self, directory: Path, project: int) -> None:
        """Assigns the directory, and whatever is created in it from now on, to the project."""


class ProjectQuotas(PlainDirectories):
    """Plain directories, each limited as a project."""

    def __init__(self, calls: ProjectCalls) -> None:
        self._calls = calls

    def open(self, slot: Path, uid: int, size: int) -> Path:
        """Creates what is missing and sets the limits. Raises: OSError."""
        data = super().open(slot, uid, size)
        self._calls.assign(data, uid)
        self._calls.limit(slot, uid, size, size // _BYTES_PER_FILE)
        return data

    def count(self, directory: Path, uid: int) -> None:
        """Assigns the directory to the workspace's project. Raises: OSError."""
        self._calls.assign(directory, uid)

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        """The usage that the file system reports. Raises: OSError."""
        found = self._calls.quota(slot, uid)
        return DiskUsage(found.used, found.limit) if found.limit else None

    def remove(self, slot: Path, uid: int) -> None:
        """Removes the workspace's files and the project's limits. Raises: PurgeError, OSError."""
        if slot.exists():
            self._calls.limit(slot, uid, 0, 0)
        super().remove(slot, uid)


def refusal(directory: Path, calls: ProjectCalls) -> str | None:
    """Why `directory` can't use project quotas; None if it can."""
    try:
        calls.quota(directory, 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return "this kernel has no project quotas for the state directory's file system"
        if error.errno == errno.ESRCH:
            return "the state directory's file system is not mounted with prjquota"
        return f"the state directory's file system refused project quotas: {error.strerror}"
    return None


class KernelCalls:
    """The real system calls."""

    def quota(self, directory: Path, project: int) -> ProjectUse:
        """Uses quotactl_fd(Q_GETQUOTA)."""
        block = ctypes.create_string_buffer(_DQBLK.size)
        _quotactl(directory, _Q_GETQUOTA, project, block)
        hard, _, used, *_ = _DQBLK.unpack(block.raw)
        return ProjectUse(used, hard * _KIB)

    def limit(self, directory: Path, project: int, size: int, files: int) -> None:
        """Uses quotactl_fd(Q_SETQUOTA)."""
        kib = size // _KIB
        valid = _QIF_BLOCK_LIMITS | _QIF_INODE_LIMITS
        data = _DQBLK.pack(kib, kib, 0, files, files, 0, 0, 0, valid)
        _quotactl(directory, _Q_SETQUOTA, project, ctypes.create_string_buffer(data, _DQBLK.size))

    def assign(self, directory: Path, project: int) -> None:
        """Uses FS_IOC_FSSETXATTR."""
        with opened(directory) as descriptor:
            data = bytearray(_FSXATTR.size)
            fcntl.ioctl(descriptor, _FS_IOC_FSGETXATTR, data)
            flags, extent, extents, _, copy = _FSXATTR.unpack(data)
            wanted = _FSXATTR.pack(flags | _INHERIT, extent, extents, project, copy)
            fcntl.ioctl(descriptor, _FS_IOC_FSSETXATTR, wanted)


def _quotactl(
    directory: Path, command: int, project: int, block: ctypes.Array[ctypes.c_char]
) -> None:
    with opened(directory) as descriptor:
        code = ctypes.c_uint(command << 8 | _PROJECT)
        syscall(_SYS_QUOTACTL_FD, descriptor, code, ctypes.c_uint(project), block)
