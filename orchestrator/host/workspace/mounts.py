"""Mounts with their own flags, made by system calls.

A bind mount gets its flags while detached and is attached afterwards. With `mount --bind` and a
remount it would be visible without them for a moment, and permanently in other namespaces.
"""

import ctypes
import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ground.errors import PaddockError

# These numbers are the same on every architecture.
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_MOUNT_SETATTR = 442

AT_EMPTY_PATH = 0x1000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MOUNT_ATTR_RDONLY = 0x01
MOUNT_ATTR_NOSUID = 0x02
MOUNT_ATTR_NODEV = 0x04
MOUNT_ATTR_NOEXEC = 0x08
MOUNT_ATTR_IDMAP = 0x00100000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MS_NOSUID = 0x02
MS_NODEV = 0x04
MS_NOATIME = 0x400
MNT_DETACH = 0x02
UMOUNT_NOFOLLOW = 0x08


class MountError(PaddockError):
    """A mount can't be made or removed."""

    code = "sandbox_unavailable"


class _MountAttr(ctypes.Structure):
    """The kernel's `struct mount_attr`."""

    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def bind(
    source: str,
    target: str,
    *,
    noexec: bool,
    read_only: bool = False,
    shared: bool = False,
    users: int | None = None,
) -> None:
    """Bind-mounts the directory `source` at `target`: nosuid, nodev, and the requested flags.

    Neither may be a symbolic link. Mounts below `source` are not included. With `shared`, what is
    mounted on `target` later also appears where `target` itself is mounted. `users` is a user
    namespace that says as whose the files appear. Raises: MountError.
    """
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    attributes |= (MOUNT_ATTR_NOEXEC if noexec else 0) | (MOUNT_ATTR_RDONLY if read_only else 0)
    try:
        with opened(source, target) as (source_fd, target_fd):
            propagation = MS_SHARED if shared else 0
            _bind(source_fd, target_fd, _MountAttr(attributes, 0, propagation), users)
    except OSError as error:
        raise explained("a directory can't be mounted", error) from error


@contextmanager
def opened(*paths: str | Path) -> Iterator[tuple[int, ...]]:
    """Provides open directories, of which none may be a symbolic link. Raises: OSError."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handles: list[int] = []
    try:
        for path in paths:
            handles.append(os.open(path, flags))
        yield tuple(handles)
    finally:
        for handle in handles:
            os.close(handle)


def mount_device(device: str, target: str, file_system: str, options: str) -> None:
    """Mounts a block device, or an overlay, at the directory `target`: nosuid, nodev, noatime.

    Raises: MountError.
    """
    flags = MS_NOSUID | MS_NODEV | MS_NOATIME
    libc = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(device), os.fsencode(target), file_system.encode())
    if libc.mount(*names, ctypes.c_ulong(flags), options.encode()) != 0:
        code = ctypes.get_errno()
        raise explained("a workspace can't be mounted", OSError(code, os.strerror(code)))


def remount_as(target: str, users: int) -> None:
    """Replaces a mount by one of the same files in which the user namespace `users` applies.

    Raises: MountError; nothing may be mounted then.
    """
    try:
        with opened(target) as (mounted,):
            tree = _cloned(mounted)
        try:
            _set_attributes(tree, _MountAttr(attr_set=MOUNT_ATTR_IDMAP, userns_fd=users))
            unmount(target)
            with opened(target) as (target_fd,):
                attach(tree, target_fd)
        finally:
            os.close(tree)
    except OSError as error:
        raise explained("a workspace can't be mounted for its user", error) from error


def cloned_as(source: str, users: int) -> int:
    """A read-only mount of the directory `source` in which the user namespace `users` applies.

    Returns its descriptor; it is mounted nowhere yet. Raises: OSError.
    """
    with opened(source) as (source_fd,):
        tree = _cloned(source_fd)
    try:
        attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY | MOUNT_ATTR_IDMAP
        _set_attributes(tree, _MountAttr(attr_set=attributes, userns_fd=users))
    except OSError:
        os.close(tree)
        raise
    return tree


def is_mounted(target: str) -> bool:
    """Whether `target` is a mount point. Raises: OSError."""
    return os.lstat(target).st_dev != os.lstat(os.path.dirname(target)).st_dev


def unmount(target: str, *, busy: bool = True) -> None:
    """Unmounts `target`; does nothing if nothing is mounted there.

    `busy` also unmounts it while its files are open. The file system then lives on, invisibly,
    until they are closed. Raises: MountError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    flags = UMOUNT_NOFOLLOW | (MNT_DETACH if busy else 0)
    while libc.umount2(os.fsencode(target), flags) == 0:
        continue
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOENT):  # not a mount point, or it does not exist
        raise explained("a workspace can't be unmounted", OSError(code, os.strerror(code)))


def mounts_under(directory: str) -> list[str]:
    """Mount points below `directory`; the innermost and latest come first."""
    with open("/proc/self/mountinfo", "rb") as file:
        return mount_points(file.read(), os.path.realpath(directory))


def mount_points(mountinfo: bytes, directory: str) -> list[str]:
    """The mount points below `directory` in the text of a mountinfo file."""
    prefix = os.fsencode(directory).rstrip(b"/") + b"/"
    points = [unescape(line.split(b" ")[4]) for line in lines_of(mountinfo)]
    return [os.fsdecode(point) for point in reversed(points) if point.startswith(prefix)]


def lines_of(mountinfo: bytes) -> list[bytes]:
    """The lines of a mountinfo file. Names in it may contain a carriage return."""
    return mountinfo.removesuffix(b"\n").split(b"\n") if mountinfo else []


def _bind(source_fd: int, target_fd: int, wanted: _MountAttr, users: int | None) -> None:
    tree = _cloned(source_fd)
    try:
        _set_attributes(tree, wanted)
        if users is not None:
            _set_attributes(tree, _MountAttr(attr_set=MOUNT_ATTR_IDMAP, userns_fd=users))
        attach(tree, target_fd)
    finally:
        os.close(tree)


def _cloned(source_fd: int) -> int:
    """A detached and private copy of the mount, with its flags. Raises: OSError."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH
    tree = syscall(SYS_OPEN_TREE, source_fd, b"", flags)
    try:
        # A copy of a shared mount receives what the host mounts below the source, without the
        # attributes of the copy, until it is private. Made shared after that, it has a group of
        # its own.
        _set_attributes(tree, _MountAttr(propagation=MS_PRIVATE))
    except BaseException:
        os.close(tree)
        raise
    return tree


def attach(tree: int, target_fd: int) -> None:
    """Mounts a detached mount at an open directory. Raises: OSError."""
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    syscall(SYS_MOVE_MOUNT, tree, b"", target_fd, b"", flags)


def _set_attributes(tree: int, attributes: _MountAttr) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    syscall(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attributes), size)


def syscall(number: int, *arguments: object) -> int:
    """The result of a system call. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result: int = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def unescape(text: bytes) -> bytes:
    """Decodes mountinfo's octal escapes and drops its mark of a deleted source."""
    point = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), text)
    return point.removesuffix(b"//deleted")


def explained(what: str, error: OSError) -> MountError:
    """The error of a mount, with a hint at what may be missing."""
    hint = {
        errno.EPERM: "the control plane needs CAP_SYS_ADMIN, and AppArmor must allow mounts",
        errno.ENOSYS: "the kernel must be 5.12 or later",
    }.get(error.errno or 0)
    return MountError(f"{what}: {error.strerror}" + (f"; {hint}" if hint else ""))
