"""A file that has no name until its content is complete. Runs in a file worker.

If this process ends before, the kernel frees the file, and nothing has changed. The overlays of
kernels before 6.10, in which sessions stage changes, have no files that begin without a name: there
the name is taken away at once, and the complete content is copied to a file that can get one.
"""

import errno
import os
import stat

from sandbox_agent.decide.protocol import CHUNK_BYTES
from sandbox_agent.files.places import Place, open_in

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def hidden_name() -> str:
    """A name for a moment, which watches do not tell."""
    return f".paddock-{os.urandom(8).hex()}"


class Draft:
    """A new file for the directory; `fd` is its descriptor, which the owner closes."""

    def __init__(self, directory: Place) -> None:
        """Raises: OSError."""
        self._can_be_linked = True
        try:
            self.fd = open_in(directory, ".", os.O_TMPFILE | os.O_RDWR, 0o600)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._can_be_linked = False
            name = hidden_name()
            self.fd = open_in(directory, name, _NEW, 0o600)
            os.unlink(name, dir_fd=directory.directory)

    def write(self, data: bytes) -> None:
        """Adds bytes. Raises: OSError."""
        write_all(self.fd, data)

    def link(self, directory: int, name: str) -> None:
        """Gives it a name in a directory of the same file system.

        Raises: FileExistsError if something has that name; OSError.
        """
        if self._can_be_linked:
            # /proc/self/fd is the only way to name such a file without a capability.
            os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=directory)
        elif _exists(directory, name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        else:
            self._link_copy(directory, name)

    def _link_copy(self, directory: int, name: str) -> None:
        """Links a copy, which takes the place of this file."""
        hidden = hidden_name()
        copy = os.open(hidden, _NEW, 0o600, dir_fd=directory)
        try:
            status = os.fstat(self.fd)
            at = 0
            while count := os.sendfile(copy, self.fd, at, CHUNK_BYTES):
                at += count
            os.fchmod(copy, stat.S_IMODE(status.st_mode))
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            both = {"src_dir_fd": directory, "dst_dir_fd": directory}
            os.link(hidden, name, **both, follow_symlinks=False)
            os.dup2(copy, self.fd, inheritable=False)
        finally:
            os.close(copy)
            os.unlink(hidden, dir_fd=directory)


def _exists(directory: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def write_all(fd: int, data: bytes) -> None:
    """Writes all of the bytes. Raises: OSError."""
    while data:
        data = data[os.write(fd, data) :]
