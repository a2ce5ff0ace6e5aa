"""The kernel's inotify: watches of directories, and the events in its queue."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sandbox_agent.enforce.syscalls import checked

MODIFY = 0x2
ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
OVERFLOW = 0x4000
IGNORED = 0x8000
ON_DIRECTORY = 0x4000_0000
_ONLY_DIRECTORIES = 0x0100_0000
# Nothing of files without a name, in which new content waits.
_ONLY_NAMED = 0x0400_0000
_WATCHED = (
    *(MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF),
    *(_ONLY_DIRECTORIES, _ONLY_NAMED),
)
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


class KernelEvent(NamedTuple):
    """One event; `name` is a name in the watched directory, or empty for the directory itself."""

    watch: int
    mask: int
    cookie: int
    name: str

    @property
    def on_directory(self) -> bool:
        """Whether the name is a directory's."""
        return bool(self.mask & ON_DIRECTORY)


class Inotify:
    """One queue of events, which the kernel bounds."""

    def __init__(self) -> None:
        """Raises: OSError."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch(self, directory: int) -> int:
        """Watches an open directory; returns the number of the watch. Raises: OSError."""
        path = f"/proc/self/fd/{directory}".encode()
        return checked(self._libc.inotify_add_watch(self.fd, path, sum(_WATCHED)))

    def forget(self, watch: int) -> None:
        """Ends a watch, which may have ended by itself."""
        self._libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[KernelEvent]:
        """The events that are in the queue, some of them. Raises: OSError."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, cookie, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            yield KernelEvent(
                watch, mask, cookie, os.fsdecode(data[at : at + length].rstrip(b"\0"))
            )
            at += length

    def close(self) -> None:
        """Ends all watches."""
        os.close(self.fd)


def is_exhausted(error: OSError) -> bool:
    """Whether the host has no room for another watch."""
    return error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM)
