"""Regular files that are opened and read. Runs in a file worker."""

import errno
import os
import stat

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import ranges
from sandbox_agent.enforce.syscalls import open_beneath
from sandbox_agent.files.places import Place, open_in


def open_regular(workspace: Place, path: str, flags: int) -> int:
    """Opens a regular file. FIFOs, sockets and devices are refused without blocking on them.

    Raises: AgentError conflict if it is not a regular file; OSError.
    """
    fd = open_in(workspace, path, flags | os.O_NONBLOCK | os.O_NOCTTY, _mode(flags))
    return _checked_regular(fd, path)


def _open_unlinked(workspace: Place, path: str) -> int:
    """Opens a regular file for reading. Raises: AgentError if a link leads to it; OSError."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        fd = open_beneath(workspace.directory, path, flags, links=False)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise AgentError("conflict", f"a symbolic link leads to it: {path}") from None
    return _checked_regular(fd, path)


def _checked_regular(fd: int, path: str) -> int:
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise not_regular(mode, path)
    return fd


def not_regular(mode: int, path: str) -> AgentError:
    """The refusal of something of this mode."""
    if stat.S_ISDIR(mode):
        return AgentError("conflict", f"is a directory, not a file: {path}; list it instead")
    return AgentError("conflict", f"not a regular file: {path}")


def _mode(flags: int) -> int:
    return 0o644 if flags & os.O_CREAT else 0


class Reader:
    """A file that is read in chunks. Without `links`, a path through a symbolic link is refused."""

    def __init__(self, workspace: Place, path: str, *, links: bool = True) -> None:
        if links:
            self._fd = open_regular(workspace, path, os.O_RDONLY)
        else:
            self._fd = _open_unlinked(workspace, path)
        status = os.fstat(self._fd)
        self.size = status.st_size
        self.identity = status.st_dev, status.st_ino
        self.permissions = stat.S_IMODE(status.st_mode) & 0o777
        self.modified = int(status.st_mtime)
        self.version = ranges.version(status)
        self._left: int | None = None

    def choose(self, first: int | None, last: int | None) -> tuple[int, int]:
        """Reads only a range of the file; where it begins, and its length. Raises: AgentError."""
        found = ranges.part(self.size, first, last)
        if found is None:
            text = f"the file has {self.size} bytes"
            raise AgentError("range_not_satisfiable", text)
        os.lseek(self._fd, found[0], os.SEEK_SET)
        self._left = found[1]
        return found

    def pull(self, limit: int) -> bytes:
        """The next bytes; empty at the end of the file, or of its range."""
        if self._left is None:
            return os.read(self._fd, limit)
        data = os.read(self._fd, min(limit, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        """Closes the file; a worker that ends need not close it."""
        os.close(self._fd)
