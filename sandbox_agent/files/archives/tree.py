"""Writes the entries of an archive beneath a directory.

Every directory is opened in its parent without following links, so that neither a link of the
archive nor one that a command makes meanwhile leads anywhere else. Each file appears as a whole.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.enforce.syscalls import open_beneath
from sandbox_agent.files.archives import names
from sandbox_agent.files.archives.tally import Tally
from sandbox_agent.files.directories import make_directory, replaceable
from sandbox_agent.files.draft import Draft, hidden_name
from sandbox_agent.files.places import Place, open_in
from sandbox_agent.files.refusals import refusal

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_MODE = 0o755


class Tree:
    """The directory at a path, which is created with the first entry.

    All methods raise AgentError that names the entry.
    """

    def __init__(self, place: Place, path: str, most_bytes: int, cut: Callable[[str], str]) -> None:
        """`most_bytes` is the limit for all files together."""
        self._place, self._path = place, path
        self._root: int | None = None
        self._most = self._left = most_bytes
        # The directory of the latest entry, because the next one is usually in it, too.
        self._near: tuple[str, int] | None = None
        # Modes and times of new directories, which are set last.
        self._new: dict[str, tuple[int, int]] = {}
        self.tally = Tally(cut)

    def _opened_root(self) -> int:
        if self._root is None:
            if self._path != ".":
                make_directory(self._place, self._path)
            self._root = open_in(self._place, self._path, _DIRECTORY)
        return self._root

    def _directory(self, path: str) -> int:
        """A directory beneath the root, created if missing. Raises: OSError."""
        if self._near is not None and self._near[0] == path:
            return self._near[1]
        root = self._opened_root()
        try:
            found = open_beneath(root, path, _DIRECTORY, links=False)
        except FileNotFoundError:
            found = _made(root, path, self.tally.imply)
        if self._near is not None:
            os.close(self._near[1])
        self._near = path, found
        return found

    def _parent(self, path: str) -> tuple[int, str]:
        """The directory of an entry, and the entry's name in it."""
        above, _, name = path.rpartition("/")
        try:
            return self._directory(above or "."), name
        except OSError as error:
            raise _refusal(error, path, on_the_way=True) from None

    def directory(self, path: str, mode: int, modified: int) -> None:
        """Creates a directory; an existing one keeps its mode and time.

        A new one gets its mode and time at the end, because files are still created in it.
        """
        self.tally.check()
        if path != ".":
            above, name = self._parent(path)
            try:
                os.mkdir(name, _NEW_MODE, dir_fd=above)
                self._new[path] = mode & 0o777, modified
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode):
                    raise _taken(path) from None
            except OSError as error:
                raise _refusal(error, path) from None
            self.tally.add("directory", path)

    def file(self, path: str, mode: int, modified: int) -> "NewFile":
        """Begins a file. It replaces an existing file unless the mode of that file forbids it."""
        self.tally.check()
        if path == ".":
            raise names.refused(path, "names the directory itself")
        above, name = self._parent(path)
        try:
            _check_free(above, name, path)
            draft = Draft(Place(above))
        except OSError as error:
            raise _refusal(error, path) from None
        return NewFile(self, path, draft, mode & 0o777, modified)

    def put(self, path: str, draft: Draft, size: int) -> None:
        """Gives a new file its name; called by `NewFile`."""
        above, name = self._parent(path)
        try:
            _put(above, name, lambda at: draft.link(above, at))
        except OSError as error:
            raise _refusal(error, path) from None
        self.tally.add("file", path, size)

    def spend(self, path: str, size: int) -> None:
        """Counts bytes of a file that is written; called by `NewFile`."""
        self._left -= size
        if self._left < 0:
            text = f"{names.entry(path)}: a workspace of this session may hold"
            raise AgentError("too_large", f"{text} {self._most} bytes")

    def symlink(self, path: str, target: bytes, modified: int) -> None:
        """Creates a symbolic link that leads to something in the directory.

        A link with an absolute target, such as a virtual environment's interpreter, is left out and
        named in the summary.
        """
        self.tally.check()
        if target.startswith(b"/"):
            self.tally.skip(path)
            return
        leads_to = names.link_target(path, target)

        def make(at: str) -> None:
            os.symlink(leads_to, at, dir_fd=above)
            os.utime(at, ns=(modified, modified), dir_fd=above, follow_symlinks=False)

        above, name = self._parent(path)
        try:
            _check_free(above, name, path)
            _put(above, name, make)
        except OSError as error:
            raise _refusal(error, path) from None
        self.tally.add("symlink", path)

    def link(self, path: str, source: str) -> None:
        """Creates a hard link to a file that is already in the directory."""
        self.tally.check()
        above, name = self._parent(path)
        found = None
        try:
            found = open_beneath(
                self._opened_root(), source, os.O_PATH | os.O_NOFOLLOW, links=False
            )
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise names.refused(path, "is a hard link to something that is not a file")
            _check_free(above, name, path)
            _put(above, name, lambda at: os.link(f"/proc/self/fd/{found}", at, dst_dir_fd=above))
        except OSError as error:
            raise _refusal(error, path) from None
        finally:
            if found is not None:
                os.close(found)
        self.tally.add("link", path)

    def finish(self) -> None:
        """Sets the modes and times of new directories, the innermost first."""
        self._opened_root()
        self.settle()

    def settle(self) -> None:
        """Does the same without creating the root; it is used after a failure, too."""
        for path in sorted(self._new, reverse=True):
            mode, modified = self._new.pop(path)
            try:
                found = open_beneath(self._opened_root(), path, _DIRECTORY, links=False)
                try:
                    os.chmod(f"/proc/self/fd/{found}", mode)
                    os.utime(f"/proc/self/fd/{found}", ns=(modified, modified))
                finally:
                    os.close(found)
            except OSError as error:
                raise _refusal(error, path) from None

    def close(self) -> None:
        """Releases the directories."""
        for opened in (self._root, self._near and self._near[1]):
            if opened is not None:
                os.close(opened)


class NewFile:
    """A file without a name, which the kernel frees unless `done` gives it one."""

    def __init__(self, tree: Tree, path: str, draft: Draft, mode: int, modified: int) -> None:
        self._tree, self._path = tree, path
        self._draft, self._mode, self._modified = draft, mode, modified
        self._size = 0

    def write(self, data: bytes) -> None:
        """Adds content."""
        self._tree.spend(self._path, len(data))
        try:
            self._draft.write(data)
        except OSError as error:
            raise _refusal(error, self._path) from None
        self._size += len(data)

    def done(self) -> None:
        """Gives the file its mode, its time and its name."""
        os.fchmod(self._draft.fd, self._mode)
        os.utime(self._draft.fd, ns=(self._modified, self._modified))
        self._tree.put(self._path, self._draft, self._size)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._draft.fd)


def _made(root: int, path: str, note: Callable[[], None]) -> int:
    """Creates a directory beneath the root, and its parents; calls `note` for each new one.

    Returns a descriptor of the directory. Raises: OSError.
    """
    current = os.dup(root)
    try:
        for part in path.split("/"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, _NEW_MODE, dir_fd=current)
                note()
            below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = below
        return os.dup(current)
    finally:
        os.close(current)


def _check_free(directory: int, name: str, path: str) -> None:
    """Raises: AgentError, OSError if something has that name and can't be replaced."""
    mode = replaceable(directory, name)
    if mode is not None and not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise _taken(path)


def _taken(path: str) -> AgentError:
    """The refusal of an entry whose name belongs to something of another type."""
    text = f"{names.entry(path)}: something of another type has that name"
    return AgentError("conflict", text)


def _put(directory: int, name: str, make: Callable[[str], None]) -> None:
    """Makes something under this name, in place of what has the name now. Raises: OSError."""
    try:
        make(name)
    except FileExistsError:
        temporary = hidden_name()
        make(temporary)
        try:
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            # It still exists after a failure, or if both names are links to one file.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)


def _refusal(error: OSError, path: str, *, on_the_way: bool = False) -> AgentError:
    name = names.entry(path)
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and on_the_way:
        return AgentError("conflict", f"{name}: a link or a file is on the way to it")
    refused = refusal(error, names.printable(path))
    return AgentError(refused.code, f"{name}: {os.strerror(error.errno or 0)}", refused.rule)
