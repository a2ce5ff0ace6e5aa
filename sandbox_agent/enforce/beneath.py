"""Resolves paths that must stay in a directory, one component at a time.

A guard can't use openat2, which does this in one call: it runs under the command's own filter,
which denies that call. Each component is opened in its parent without following links.
"""

import errno
import os
import stat

# The kernel's own limit.
_MOST_LINKS = 40
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_path(directory: int, path: str, follow: bool = True) -> int:
    """Opens `path` relative to `directory` as an O_PATH descriptor.

    Links are followed, but the last component's only with `follow`. Raises: OSError, with EXDEV if
    the path would leave the directory and ELOOP for too many links.
    """
    entered = [os.dup(directory)]
    rest = path.split("/")[::-1]
    links = 0
    try:
        while rest:
            name = rest.pop()
            if name == "..":
                if len(entered) == 1:
                    raise _error(errno.EXDEV, path)
                os.close(entered.pop())
            elif name not in ("", "."):
                entered.append(os.open(name, _FLAGS, dir_fd=entered[-1]))
                if (rest or follow) and _is_link(entered[-1]):
                    links += 1
                    rest += _target(entered.pop(), path)[::-1]
                    if links > _MOST_LINKS:
                        raise _error(errno.ELOOP, path)
        return entered.pop()
    finally:
        for fd in entered:
            os.close(fd)


def create(directory: int, path: str) -> int:
    """Opens a regular file for writing, emptied, or makes it; its directory must exist.

    No link is followed: a rule about the path holds for the file. Raises: OSError; EINVAL for
    something other than a regular file.
    """
    *above, name = path.split("/")
    parent = os.dup(directory)
    try:
        for step in above:
            entered = os.open(step, _FLAGS | os.O_DIRECTORY, dir_fd=parent)
            os.close(parent)
            parent = entered
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, 0o644, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise _error(errno.EINVAL, path)
        os.ftruncate(file, 0)
        os.set_blocking(file, True)
    except OSError:
        os.close(file)
        raise
    return file


def _is_link(fd: int) -> bool:
    return stat.S_ISLNK(os.fstat(fd).st_mode)


def _target(link: int, path: str) -> list[str]:
    """The components of a link's target; closes the link."""
    try:
        target = os.readlink("", dir_fd=link)
    finally:
        os.close(link)
    if target.startswith("/"):
        raise _error(errno.EXDEV, path)
    return target.split("/")


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
