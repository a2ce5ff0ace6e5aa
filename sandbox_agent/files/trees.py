"""Whole trees of a workspace: removed and copied, without following a link. Runs in a file worker.

Each directory is opened in its parent, so neither a link nor a rename leads anywhere else.
"""

import contextlib
import os
import stat
import time
from typing import NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.outside_paths import is_file_of_image
from sandbox_agent.files.directories import make_directory, replaceable
from sandbox_agent.files.draft import hidden_name
from sandbox_agent.files.places import RULE, Place, open_in, open_parent, split

# A worker that answers later is killed.
SECONDS = 20.0
# Levels of a tree that are open at once.
_DEEPEST = 128
_COPIED_AT_ONCE = 64 * 1024 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Deadline:
    """Ends work that takes too long."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._until = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return time.monotonic() > self._until


def remove(place: Place, path: str) -> int:
    """Removes a file, a link, or a directory with all that is in it; how many things there were.

    Raises: OSError; AgentError busy if it takes too long, after which the rest is still there.
    """
    directory, name = open_parent(place, path)
    try:
        return _Removal().remove(directory, name)
    finally:
        os.close(directory)


class _Removal:
    def __init__(self) -> None:
        self._deadline = Deadline()
        self._removed = 0
        # The outermost directory, into which directories that are too deep are moved.
        self._top: int | None = None

    def remove(self, directory: int, name: str) -> int:
        """Removes that name and what is below it."""
        try:
            os.unlink(name, dir_fd=directory)
        except (IsADirectoryError, PermissionError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                raise
            self._top = os.open(name, _DIRECTORY, dir_fd=directory)
            try:
                self._empty(self._top, 1)
            finally:
                os.close(self._top)
            os.rmdir(name, dir_fd=directory)
        return self._removed + 1

    def _empty(self, directory: int, depth: int) -> None:
        """Removes everything in this directory; what was moved into it meanwhile, too."""
        while names := os.listdir(directory):
            for name in names:
                self._check()
                self._one(directory, name, depth)

    def _one(self, directory: int, name: str, depth: int) -> None:
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                raise
            if depth >= _DEEPEST:
                unique = hidden_name()
                os.rename(name, unique, src_dir_fd=directory, dst_dir_fd=self._top)
                return
            below = os.open(name, _DIRECTORY, dir_fd=directory)
            try:
                self._empty(below, depth + 1)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=directory)
        self._removed += 1

    def _check(self) -> None:
        if self._deadline.over:
            text = f"{self._removed} are removed, and there are more: repeat the request"
            raise AgentError("busy", text)


class Copied(NamedTuple):
    """What was copied; `skipped` are FIFOs, sockets and devices."""

    files: int
    directories: int
    links: int
    bytes: int
    skipped: int


def copy(
    source: tuple[Place, str], destination: tuple[Place, str], most_bytes: int, *, parents: bool
) -> Copied:
    """Copies a file, a link or a directory with all that is in it, as a whole or not at all.

    Links are copied as links. Permissions and times are kept. An existing file is replaced unless
    its mode protects it; a directory is not. `most_bytes`: the limit for all files together.

    Raises: OSError, AgentError.
    """
    place, path = source
    to_place, to_path = destination
    above, name = split(to_path)
    if parents:
        make_directory(to_place, above)
    into = open_in(to_place, above, os.O_PATH | os.O_DIRECTORY)
    temporary = hidden_name()
    try:
        from_directory, from_name = _opened(place, path)
        copying = _Copying(place, most_bytes)
        existing = replaceable(into, name)
        if existing is not None and stat.S_ISDIR(existing):
            raise AgentError("conflict", f"is a directory: {to_path}; remove it first")
        try:
            copying.copy(from_directory, from_name, into, temporary)
            if existing is not None and copying.directories:
                raise AgentError("conflict", f"a file has that name: {to_path}; remove it first")
            _put(into, temporary, name, fresh=existing is None and not copying.directories)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                _Removal().remove(into, temporary)
            raise
        finally:
            os.close(from_directory)
        return copying.result()
    finally:
        os.close(into)


def _put(directory: int, temporary: str, name: str, *, fresh: bool) -> None:
    """Gives the copy its name; a `fresh` one appears as something new. Raises: OSError."""
    if fresh:
        at = {"src_dir_fd": directory, "dst_dir_fd": directory}
        os.link(temporary, name, **at, follow_symlinks=False)
        os.unlink(temporary, dir_fd=directory)
    else:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def _opened(place: Place, path: str) -> tuple[int, str]:
    """The directory of what is copied, and its name there; `.` for the place itself."""
    if path.strip("/") in ("", "."):
        return open_in(place, ".", os.O_PATH | os.O_DIRECTORY), "."
    return open_parent(place, path)


class _Copying:
    def __init__(self, place: Place, most_bytes: int) -> None:
        self._image = place.image
        self._left = self._most = most_bytes
        self._deadline = Deadline()
        self._root: tuple[int, int] | None = None
        self.directories = 0
        self._files = self._links = self._bytes = self._skipped = 0

    def result(self) -> Copied:
        return Copied(self._files, self.directories, self._links, self._bytes, self._skipped)

    def copy(self, source: int, name: str, into: int, to: str, depth: int = 1) -> None:
        """Copies one name of a directory into another directory."""
        if self._deadline.over:
            raise AgentError("too_large", "copying takes too long: copy parts of it")
        status = os.lstat(name, dir_fd=source)
        if stat.S_ISDIR(status.st_mode):
            self._directory(source, name, into, to, depth)
        elif stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), to, dir_fd=into)
            self._links += 1
        elif stat.S_ISREG(status.st_mode):
            self._file(source, name, into, to)
        else:
            self._skipped += 1
            if depth == 1:
                raise AgentError("conflict", f"not a file or directory: {name}")

    def _file(self, source: int, name: str, into: int, to: str) -> None:
        opened = os.open(name, _FILE, dir_fd=source)
        try:
            self._check_image(opened)
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                raise AgentError("conflict", f"changed while it was copied: {name}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            made = os.open(to, flags, 0o600, dir_fd=into)
            try:
                self._bytes += self._content(opened, made)
                os.fchmod(made, stat.S_IMODE(status.st_mode) & 0o777)
                os.utime(made, ns=(status.st_mtime_ns, status.st_mtime_ns))
            finally:
                os.close(made)
        finally:
            os.close(opened)
        self._files += 1

    def _content(self, opened: int, made: int) -> int:
        size = 0
        while count := os.sendfile(made, opened, None, _COPIED_AT_ONCE):
            size += count
            self._left -= count
            if self._left < 0:
                raise AgentError("too_large", f"a workspace may hold {self._most} bytes")
            if self._deadline.over:
                raise AgentError("too_large", "copying takes too long: copy parts of it")
        return size

    def _directory(self, source: int, name: str, into: int, to: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise AgentError("too_large", f"directories are more than {_DEEPEST} deep")
        opened = os.open(name, _DIRECTORY, dir_fd=source)
        try:
            self._check_image(opened)
            status = os.fstat(opened)
            if (status.st_dev, status.st_ino) == self._root:
                raise AgentError("conflict", "the destination is in what is copied")
            os.mkdir(to, 0o700, dir_fd=into)
            made = os.open(to, _DIRECTORY, dir_fd=into)
            try:
                if self._root is None:
                    own = os.fstat(made)
                    self._root = own.st_dev, own.st_ino
                for each in os.listdir(opened):
                    with contextlib.suppress(FileNotFoundError):
                        self.copy(opened, each, made, each, depth + 1)
                os.fchmod(made, stat.S_IMODE(status.st_mode) & 0o777)
                os.utime(made, ns=(status.st_mtime_ns, status.st_mtime_ns))
            finally:
                os.close(made)
        finally:
            os.close(opened)
        self.directories += 1

    def _check_image(self, opened: int) -> None:
        """Raises: AgentError for views of the kernel and devices, which are not files."""
        if self._image and not is_file_of_image(os.readlink(f"/proc/self/fd/{opened}")):
            raise AgentError("permission_denied", "not a file of the image", RULE)
