"""File operations beneath a directory, by file descriptor, as the session's user.

Everything here runs in a helper process that has become the session's user. If it hangs or dies,
only the current request fails. The kernel resolves each path beneath the directory's descriptor, so
no `..`, symbolic link or race leads out of it.
"""

import contextlib
import errno
import os
import stat

from sandbox_agent.decide import ranges
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import CHUNK_BYTES
from sandbox_agent.enforce.syscalls import open_beneath
from sandbox_agent.files import listing
from sandbox_agent.files.condition import UNCONDITIONAL, Condition, not_met
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
        raise _not_regular(mode, path)
    return fd


def _not_regular(mode: int, path: str) -> AgentError:
    if stat.S_ISDIR(mode):
        return AgentError("conflict", f"is a directory, not a file: {path}; list it instead")
    return AgentError("conflict", f"not a regular file: {path}")


def _mode(flags: int) -> int:
    return 0o644 if flags & os.O_CREAT else 0


def split(path: str) -> tuple[str, str]:
    """The parent directory of `path` and the name in it. Raises: AgentError."""
    parent, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        raise AgentError(
            "validation_error", f"path must name something inside the workspace: {path}"
        )
    return parent or ".", name


def open_parent(workspace: Place, path: str) -> tuple[int, str]:
    """Opens the parent of `path`; returns it and the name in it. Raises: AgentError, OSError."""
    parent, name = split(path)
    return open_in(workspace, parent, os.O_PATH | os.O_DIRECTORY), name


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


class _Upload:
    """New content that is collected in an unnamed file of the directory until it is committed.

    With `parents`, the commit creates missing parent directories; until then the unnamed file is in
    the lowest directory that exists. If this process ends without a commit, the kernel frees the
    unnamed file and nothing has changed.
    """

    def __init__(self, workspace: Place, path: str, *, parents: bool) -> None:
        self._workspace, self._path = workspace, path
        self._parent, self._name = split(path)
        above = self._parent
        while True:
            try:
                directory = open_in(workspace, above, os.O_PATH | os.O_DIRECTORY)
                break
            except FileNotFoundError:
                if not parents or above == ".":
                    raise
                above = above.rpartition("/")[0] or "."
        try:
            self._fd = open_in(Place(directory), ".", os.O_TMPFILE | os.O_RDWR, 0o600)
        finally:
            os.close(directory)
        self._missing = above != self._parent
        self.size = 0

    def push(self, data: bytes) -> None:
        """Adds bytes."""
        write_all(self._fd, data)
        self.size += len(data)

    def _make_parents(self) -> None:
        if self._missing:
            make_directory(self._workspace, self._parent)


class Writer(_Upload):
    """New content for a file; it appears as a whole at `commit`, or not at all."""

    def __init__(
        self,
        workspace: Place,
        path: str,
        permissions: int | None = None,
        *,
        parents: bool = False,
        modified: int | None = None,
        condition: Condition | None = None,
    ) -> None:
        """`modified` is in seconds since the epoch; None means now.

        `condition` is what must hold for the file that is replaced; it is checked now, and once
        more in one step with the commit.
        """
        super().__init__(workspace, path, parents=parents)
        self._modified = modified
        self._condition = condition or UNCONDITIONAL
        self.version = ""
        if not self._missing:
            self._condition.check(workspace, path)
        elif self._condition.match is not None:
            raise not_met(path)
        mode = 0o644 if self._missing else self._current_mode()
        os.fchmod(self._fd, mode if permissions is None else permissions & 0o777)

    def _current_mode(self) -> int:
        """The mode of the file to replace. Raises: AgentError; OSError if the mode protects it."""
        directory, name = open_parent(self._workspace, self._path)
        try:
            current = replaceable(directory, name)
            if current is None:
                return 0o644
            if not stat.S_ISREG(current):
                raise _not_regular(current, self._path)
            return stat.S_IMODE(current) & 0o777
        finally:
            os.close(directory)

    def commit(self) -> None:
        """Puts the content in place in one step. Raises: AgentError, OSError."""
        self._make_parents()
        if self._modified is not None:
            os.utime(self._fd, (self._modified, self._modified))
        directory, name = open_parent(self._workspace, self._path)
        try:
            with self._condition.held():
                self._condition.check(self._workspace, self._path)
                self._put(directory, name)
            self.version = ranges.version(os.fstat(self._fd))
        finally:
            os.close(directory)

    def _put(self, directory: int, name: str) -> None:
        """Gives the content its name, in place of what has it now."""
        # /proc/self/fd is the only way to name an O_TMPFILE without a capability.
        content = f"/proc/self/fd/{self._fd}"
        try:
            os.link(content, name, dst_dir_fd=directory)
        except FileExistsError:
            temporary = f".paddock-{os.urandom(8).hex()}"
            os.link(content, temporary, dst_dir_fd=directory)
            try:
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(temporary, dir_fd=directory)
                raise


def replaceable(directory: int, name: str) -> int | None:
    """The mode of the file that a new file or link would replace; None if there is none.

    Raises: OSError if the file's mode forbids writing. The directory's mode would allow replacing
    the file, but a read-only mode states the owner's intent.
    """
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode) and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode


class Appender(_Upload):
    """Bytes for the end of a file, added at `commit`; a missing file is created."""

    def __init__(self, workspace: Place, path: str, *, parents: bool = False) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.close(open_regular(workspace, path, os.O_WRONLY))
        super().__init__(workspace, path, parents=parents)

    def commit(self) -> None:
        """Appends the bytes, or removes them again if there is no room for all."""
        self._make_parents()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        target = open_regular(self._workspace, self._path, flags)
        start = os.fstat(target).st_size
        os.lseek(self._fd, 0, os.SEEK_SET)
        try:
            while data := os.read(self._fd, CHUNK_BYTES):
                write_all(target, data)
        except OSError:
            os.ftruncate(target, start)
            raise


def write_all(fd: int, data: bytes) -> None:
    """Writes all of the bytes. Raises: OSError."""
    while data:
        data = data[os.write(fd, data) :]


def make_directory(workspace: Place, path: str) -> None:
    """Creates a directory and its parents; an existing one is no error. Raises: OSError."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for count in range(1, len(parts) + 1):
        directory, name = open_parent(workspace, "/".join(parts[:count]))
        try:
            os.mkdir(name, 0o755, dir_fd=directory)
        except FileExistsError:
            if (
                count == len(parts)
                and listing.stat_entry(Place(directory), name).type != "directory"
            ):
                raise
        finally:
            os.close(directory)


def change_mode(place: Place, path: str, permissions: int) -> None:
    """Sets the nine permission bits of a file or directory; a link is followed. Raises: OSError."""
    fd = open_in(place, path, os.O_PATH)
    try:
        os.chmod(f"/proc/self/fd/{fd}", permissions & 0o777)
    finally:
        os.close(fd)


def delete(workspace: Place, path: str) -> None:
    """Removes a file, a link, or an empty directory. Raises: OSError."""
    directory, name = open_parent(workspace, path)
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=directory)


def move(source: tuple[Place, str], destination: tuple[Place, str]) -> None:
    """Renames a file; an existing destination is replaced unless its mode protects it.

    Raises: AgentError, OSError.
    """
    from_directory, from_name = open_parent(*source)
    to_directory, to_name = open_parent(*destination)
    replaceable(to_directory, to_name)
    try:
        os.rename(from_name, to_name, src_dir_fd=from_directory, dst_dir_fd=to_directory)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        text = f"is on another file system than {source[1]}: {destination[1]}; copy it instead"
        raise AgentError("conflict", text) from None


def make_link(workspace: Place, path: str, target: str) -> None:
    """Creates a symbolic link; replaces an existing file or link unless its mode protects it.

    Raises: OSError.
    """
    directory, name = open_parent(workspace, path)
    replaceable(directory, name)
    temporary = f".paddock-{os.urandom(8).hex()}"
    os.symlink(target, temporary, dir_fd=directory)
    try:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(temporary, dir_fd=directory)
        raise


def refusal(error: OSError, path: str) -> AgentError:
    """Translates an operating system error for the caller."""
    number = error.errno or errno.EIO
    if number in (errno.EXDEV, errno.ELOOP):
        return AgentError(
            "permission_denied", f"path escapes workspace: {path}", "path-outside-workspace"
        )
    code = _CODES.get(number, "conflict")
    rule = "file-permissions" if code == "permission_denied" else None
    return AgentError(code, f"{os.strerror(number)}: {path}", rule)


_CODES = {
    errno.ENOENT: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ENAMETOOLONG: "validation_error",
    errno.EINVAL: "validation_error",
    errno.EFBIG: "too_large",
    errno.ENOSPC: "too_large",
    errno.EDQUOT: "too_large",
}
