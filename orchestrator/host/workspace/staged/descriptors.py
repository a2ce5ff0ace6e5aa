"""Files by descriptor: no path leads out of its directory, and no link is followed."""

import ctypes
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.ground.file_handles import DIRECTORY, opened

# Reading must not wait for a FIFO that took the file's place.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SYS_OPENAT2 = 437
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_CHUNK = 1024 * 1024
# The most entries of a directory that is removed.
MOST_BELOW = 200_000
_MOST_OPEN = 512


class ChangedError(OSError):
    """A file changed while it was read."""


class _OpenHow(ctypes.Structure):
    """The kernel's `struct open_how`."""

    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


def open_beneath(top: int, ref: str, flags: int) -> int:
    """Opens a path below the directory `top`. Raises: OSError, also if a part of it is a link."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE)
    found: int = libc.syscall(
        ctypes.c_long(_SYS_OPENAT2),
        ctypes.c_int(top),
        os.fsencode(ref or "."),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


@contextmanager
def parent_of(top: int, ref: str) -> Iterator[tuple[int, str]]:
    """Provides the open directory in which `ref` is, and the last part of its name."""
    directory, _, name = ref.rpartition("/")
    handle = open_beneath(top, directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield handle, name
    finally:
        os.close(handle)


def facts(directory: int, name: str | bytes) -> os.stat_result | None:
    """The facts of an entry itself, whatever it is; None if there is none."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def is_directory(found: os.stat_result) -> bool:
    """Whether these are the facts of a directory."""
    return stat.S_ISDIR(found.st_mode)


def set_mode(directory: int, name: str, mode: int) -> None:
    """Sets the permissions of a directory's entry that is a directory. Raises: OSError."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with opened(name, flags, dir_fd=directory) as handle:
        os.chmod(f"/proc/self/fd/{handle}", mode)  # an O_PATH descriptor has no fchmod


def same(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether a file was not changed in between."""
    return (before.st_ino, before.st_size, before.st_mtime_ns, before.st_ctime_ns) == (
        *(after.st_ino, after.st_size),
        *(after.st_mtime_ns, after.st_ctime_ns),
    )


@contextmanager
def reading(directory: int, name: str, expected: os.stat_result) -> Iterator[int]:
    """Provides the open file that `expected` describes. Raises: OSError, ChangedError."""
    with opened(name, FILE, dir_fd=directory) as handle:
        _check_same(expected, handle)
        yield handle
        _check_same(expected, handle)


def _check_same(expected: os.stat_result, handle: int) -> None:
    if not same(expected, os.fstat(handle)):
        raise ChangedError("it changed while it was read")


def read_file(directory: int, name: str) -> bytes:
    """A file's content. Raises: OSError."""
    with opened(name, FILE, dir_fd=directory) as handle:
        return b"".join(chunks(handle))


def write_file(directory: int, name: str, content: bytes) -> None:
    """Replaces a file, durably. Raises: OSError."""
    draft = f"{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with opened(draft, flags, dir_fd=directory) as handle:
        write_all(handle, content)
        os.fsync(handle)
    os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def write_all(handle: int, content: bytes) -> None:
    """Writes all of it. Raises: OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def chunks(handle: int) -> Iterator[bytes]:
    """What is left of an open file, in pieces."""
    while data := os.read(handle, _CHUNK):
        yield data


def digest_of(handle: int) -> str:
    """The SHA-256 of what is left of an open file."""
    found = hashlib.sha256()
    for data in chunks(handle):
        found.update(data)
    return f"sha256:{found.hexdigest()}"


def digest_of_text(data: bytes) -> str:
    """The SHA-256 of these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def attributes(directory: int, name: str, kind: str) -> list[str]:
    """The names of an entry's extended attributes. Raises: OSError."""
    # A link has none: Linux lets users set them on files and directories only.
    if kind == "symlink":
        return []
    with opened(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory) as handle:
        return os.listxattr(f"/proc/self/fd/{handle}")


def below(parent: int, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every entry below a directory: its path in there, and its facts.

    Raises: OSError, also for more than `MOST_BELOW` entries, and for a tree that is too deep for
    all its directories to be open at once.
    """
    seen = 0
    stack = [(os.open(name, DIRECTORY, dir_fd=parent), "")]
    try:
        while stack:
            directory, prefix = stack.pop()
            try:
                for each in os.listdir(directory):
                    found = facts(directory, each)
                    if found is None:
                        continue
                    seen += 1
                    if seen > MOST_BELOW or len(stack) > _MOST_OPEN:
                        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
                    yield f"{prefix}{each}", found
                    if is_directory(found):
                        handle = os.open(each, DIRECTORY, dir_fd=directory)
                        stack.append((handle, f"{prefix}{each}/"))
            finally:
                os.close(directory)
    finally:
        for directory, _ in stack:
            os.close(directory)


def is_opaque(directory: int) -> bool:
    """Whether an open staged directory hides what the workspace has at its place."""
    try:
        return os.getxattr(directory, "user.overlay.opaque") == b"y"
    except OSError:
        return False


def sync_all(handle: int) -> None:
    """Writes the whole file system of `handle` to its disk. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(ctypes.c_int(handle)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
