"""Resolves a path as the process that passed it.

A path may lead through the caller's own directory, descriptors and /proc/self, so it must be
resolved as the caller would see it. The user of these functions first takes on the file identity of
that process's user.
"""

import errno
import os
import stat

from sandbox_agent.enforce import syscalls

_PROC_ROOT_INODE = 1
# Limits on the components that are resolved one by one, and on those of links among them.
_MOST_STEPS = 256
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class TooManySteps(OSError):  # noqa: N818 - it is the kernel's error for too many links
    """The path has too many components to be resolved here."""

    def __init__(self) -> None:
        super().__init__(errno.ELOOP, os.strerror(errno.ELOOP))


def start(task: int, directory: int | None, path: bytes) -> int:
    """Where the thread's path begins, as an O_PATH descriptor.

    `directory` is one of the thread's descriptors; None is its working directory. All processes of
    a sandbox have the same root: no command can change it. Raises: OSError.
    """
    if path[:1] == b"/":
        return os.open("/", _FLAGS)
    own = b"/proc/%d/cwd" % task if directory is None else b"/proc/%d/fd/%d" % (task, directory)
    try:
        return os.open(own, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        if directory is None:
            raise
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None


def opened(task: int, begin: int, path: bytes, *, follow: bool = True) -> int:
    """The file as an O_PATH descriptor; a link as the last component is followed with `follow`.

    Raises: OSError as the kernel would; TooManySteps.
    """
    try:
        return opened_at_once(begin, path, os.O_PATH if follow else os.O_PATH | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.ELOOP, errno.EAGAIN):
            raise
    return _walked(task, begin, path, follow)


def opened_at_once(begin: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Opens a path that means the same for every process: it stays on one mount, and not on /proc.

    Raises: OSError, with EXDEV or ELOOP if it is no such path.
    """
    if _in_proc(os.fstat(begin)):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return syscalls.open_on_mount(begin, path, flags, mode)


def _walked(task: int, begin: int, path: bytes, follow: bool) -> int:
    """Resolves the path component by component, as the caller would."""
    at = os.dup(begin)
    # A path that ends in a slash names a directory, also behind a link.
    follow = follow or path[-1:] == b"/"
    rest = path.split(b"/")[::-1]
    steps = 0
    try:
        while rest:
            name = rest.pop()
            if name in (b"", b"."):
                continue
            steps += 1
            if steps > _MOST_STEPS:
                raise TooManySteps
            found, more = _entered(task, at, name, follow or any(rest))
            os.close(at)
            at = found
            rest += more
        return os.dup(at)
    finally:
        os.close(at)


def _entered(task: int, at: int, name: bytes, follow: bool) -> tuple[int, list[bytes]]:
    """Resolves one name in a directory; returns the file and the components still to resolve.

    The components are in reverse order.
    """
    found = os.open(name, _FLAGS, dir_fd=at)
    if not follow or not stat.S_ISLNK(os.fstat(found).st_mode):
        return found, []
    try:
        where = os.fstat(at)
        in_proc = _in_proc(where)
        if in_proc and where.st_ino != _PROC_ROOT_INODE:
            check_foreign(at)
            # The link has no text that shows its target, so let the kernel follow it.
            return os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=at), []
        target = _target(task, name if in_proc else b"", found)
    finally:
        os.close(found)
    begin = os.open("/", _FLAGS) if target[:1] == b"/" else os.dup(at)
    return begin, target.split(b"/")[::-1]


def check_foreign(file: int) -> None:
    """Raises: PermissionError for a file in /proc about this process: it may not be shown."""
    process = os.readlink(b"/proc/self/fd/%d" % file).split(b"/")[2:3]
    if process and process[0].isdigit() and leader(int(process[0])) == os.getpid():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _in_proc(status: os.stat_result) -> bool:
    return status.st_dev == os.stat("/proc").st_dev


def _target(task: int, name: bytes, link: int) -> bytes:
    """The target of a link; `name` is set in /proc's root, where links depend on the caller."""
    if name == b"self":
        return b"%d" % leader(task)
    if name == b"thread-self":
        return b"%d/task/%d" % (leader(task), task)
    return os.readlink(b"", dir_fd=link)


def leader(task: int) -> int:
    """The pid of the thread's process. Raises: OSError."""
    status = read(b"/proc/%d/status" % task)
    return int(status.partition(b"\nTgid:")[2].split(maxsplit=1)[0])


def read(path: bytes) -> bytes:
    """The beginning of a file that is never empty. Raises: OSError, also if its process is gone."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(file, 4096)
    finally:
        os.close(file)
    if not data:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return data
