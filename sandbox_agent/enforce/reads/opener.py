"""Opens files for the processes of a session that may read its manifest's files only.

It runs in a Landlock domain with the rules of the commands and as their user, so the kernel decides
here as it would for them. Unlike them it looks at a path once: what it has opened is what the
caller gets. It also has the right to read /proc, which it needs to see through its callers' eyes;
what callers read there is decided here.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sandbox_agent.decide.denials import Denials
from sandbox_agent.decide.manifest import ReadManifest
from sandbox_agent.decide.protocol import WORKSPACE_DIR
from sandbox_agent.enforce import resolve
from sandbox_agent.enforce.filters.substitutes import truncates_unseen
from sandbox_agent.enforce.reads.contents import Contents

# An open must neither wait nor make a terminal the controlling one.
_ADDED = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What a change of an open file's flags can set.
_STATUS_FLAGS = os.O_APPEND | os.O_DIRECT | os.O_NOATIME | os.O_NONBLOCK | os.O_ASYNC
_KNOWN = (
    _STATUS_FLAGS
    | os.O_ACCMODE
    | os.O_CREAT
    | os.O_EXCL
    | os.O_NOCTTY
    | os.O_TRUNC
    | os.O_DSYNC
    | os.O_SYNC
    | os.O_DIRECTORY
    | os.O_NOFOLLOW
    | os.O_TMPFILE
    | os.O_CLOEXEC
)
_INTO_WORKSPACE = WORKSPACE_DIR.encode() + b"/"
# Without these, an open changes nothing.
_TRUNCATING = os.O_TRUNC | os.O_CREAT | os.O_ACCMODE
_UNNAMED = os.O_TMPFILE & ~os.O_DIRECTORY
_PERMISSION_BITS = 0o7777


class Asked(NamedTuple):
    """One call of open: by which thread, where its path begins (None: its directory), and how."""

    task: int
    directory: int | None
    path: bytes
    flags: int = 0
    mode: int = 0

    @property
    def creates(self) -> bool:
        """Whether the file may be created under the path's name."""
        return bool(self.flags & os.O_CREAT)

    @property
    def follows(self) -> bool:
        """Whether a link as the path's last component is followed."""
        exclusive = self.creates and bool(self.flags & os.O_EXCL)
        return not exclusive and not self.flags & os.O_NOFOLLOW


class Missed(OSError):  # noqa: N818 - not only an error: it is what a broker reports
    """The read is a context miss; `path` is the resolved file, as far as it could be resolved.

    `changed`: the manifest has the path, but not with this content.
    """

    def __init__(self, number: int, path: bytes, *, changed: bool = False) -> None:
        super().__init__(number, os.strerror(number))
        self.number = number
        self.path = path
        self.changed = changed


class Hidden(Missed):
    """What is asked for can't be seen: the caller has asked the kernel to hide it, or is ending."""


class Waits(Exception):  # noqa: N818 - it is no error
    """The open waits until somebody writes to the FIFO, which `pin` is an O_PATH descriptor of."""

    def __init__(self, pin: int) -> None:
        super().__init__()
        self.pin = pin


class Opened(NamedTuple):
    """A descriptor for the caller; `outside` is the file's path if it is not in the manifest."""

    descriptor: int
    outside: bytes | None


class Opener:
    """Opens for reading, and checks executions.

    If reads are not `enforced`, those outside the manifest succeed, and only their paths tell.
    Without `truncation`, the kernel does not know the right to truncate.
    """

    def __init__(
        self, manifest: ReadManifest, denials: Denials, *, enforced: bool, truncation: bool = True
    ) -> None:
        self._manifest = manifest
        self._denials = denials
        self._enforced = enforced
        self._truncation = truncation
        self._contents = Contents(manifest.digests)
        self._proc = os.stat("/proc").st_dev
        self._root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        self._workspace = os.open(WORKSPACE_DIR, os.O_PATH | os.O_CLOEXEC)

    def open(self, asked: Asked) -> Opened:
        """Opens a file for the caller. Raises: Missed; Waits; OSError, the kernel's."""
        if not self._truncation and truncates_unseen(asked.flags):
            # What could not be read either is a miss.
            os.close(self.open(asked._replace(flags=asked.flags & ~_TRUNCATING)).descriptor)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with self._begun(asked) as (begin, path):
            try:
                pin = self._pinned(asked, begin, path, follow=asked.follows)
            except FileNotFoundError:
                if not asked.creates:
                    raise
                return self._finished(self._created(asked, begin, path), asked)
        if _blocks(pin, asked.flags):
            raise Waits(pin)
        try:
            return self._of(pin, asked, _ADDED)
        finally:
            os.close(pin)

    def wait(self, fifo: int, asked: Asked) -> Opened:
        """Opens a FIFO once it has a writer. Raises: Missed; OSError."""
        return self._of(fifo, asked, _ADDED & ~os.O_NONBLOCK)

    def check_execution(self, asked: Asked) -> bytes | None:
        """Checks whether the file may be executed, as far as its content is concerned.

        Returns its path if it is not in the manifest. Raises: Missed; OSError if there is no such
        file.
        """
        with self._begun(asked) as (begin, path):
            pin = self._pinned(asked, begin, path, follow=True)
        try:
            opened = self._of(pin, asked._replace(flags=os.O_RDONLY), _ADDED)
        except Missed:
            raise
        except OSError:
            return None  # the kernel decides by the same rules, and tells the caller
        finally:
            os.close(pin)
        os.close(opened.descriptor)
        return opened.outside

    @contextmanager
    def _begun(self, asked: Asked) -> Iterator[tuple[int, bytes]]:
        """Where the path begins, as an O_PATH descriptor, and the path from there.

        A path into the workspace begins there, so that it stays on one mount. Raises: Missed;
        OSError.
        """
        if asked.path.startswith(_INTO_WORKSPACE):
            yield self._workspace, asked.path[len(_INTO_WORKSPACE) :].lstrip(b"/") or b"."
        elif asked.path[:1] == b"/":
            yield self._root, asked.path
        else:
            try:
                begin = resolve.start(asked.task, asked.directory, asked.path)
            except PermissionError as error:
                raise Hidden(error.errno or errno.EACCES, asked.path) from None
            try:
                yield begin, asked.path
            finally:
                os.close(begin)

    def _of(self, pin: int, asked: Asked, added: int) -> Opened:
        """Opens the file that was found, which can't become another one any more."""
        flags = asked.flags & _KNOWN & ~os.O_NOFOLLOW | added
        if asked.creates:
            if flags & os.O_EXCL:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            flags &= ~os.O_CREAT
        mode = _mode(asked) if flags & _UNNAMED else 0
        own = b"/proc/self/fd/%d" % pin
        try:
            form = stat.S_IFMT(os.fstat(pin).st_mode)
            if form == stat.S_IFLNK:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if form == stat.S_IFREG:
                self._check_content(pin, own)
            fd = os.open(own, flags, mode)
        except Missed:
            raise
        except OSError as error:
            permitted = os.access(own, os.R_OK, effective_ids=True)
            raise self._judged(_real(pin), error, permitted=permitted) from None
        return self._finished(fd, asked)

    def _check_content(self, pin: int, own: bytes) -> None:
        """Compares a file of the workspace with the manifest.

        Landlock knows files only, and somebody outside may have given another one a listed name.
        Raises: Missed; OSError if it can't be read.
        """
        path = _real(pin)
        if not path.startswith(_INTO_WORKSPACE):
            return
        name = os.fsdecode(path)
        if self._enforced and not self._manifest.is_entry(name):
            os.close(os.open(own, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            raise Missed(errno.EACCES, path)
        if not self._contents.right(name, own):
            raise Missed(errno.EACCES, path, changed=True)

    def _finished(self, fd: int, asked: Asked) -> Opened:
        try:
            outside = self._check(fd, asked)
            fcntl.fcntl(fd, fcntl.F_SETFL, asked.flags & _STATUS_FLAGS)
        except OSError:
            os.close(fd)
            raise
        return Opened(fd, outside)

    def _pinned(self, asked: Asked, begin: int, path: bytes, *, follow: bool) -> int:
        try:
            return resolve.opened(asked.task, begin, path, follow=follow)
        except OSError as error:
            if asked.creates and error.errno == errno.ENOENT:
                raise
            raise self._judged(_text(begin, path), error) from None

    def _created(self, asked: Asked, begin: int, path: bytes) -> int:
        head, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        text = _text(begin, path)
        try:
            parent = resolve.opened(asked.task, begin, head or (b"/" if b"/" in path else b"."))
        except OSError as error:
            raise self._judged(text, error) from None
        try:
            flags = asked.flags & _KNOWN | _ADDED
            return resolve.opened_at_once(parent, name, flags, _mode(asked))
        except OSError as error:
            raise self._judged(text, error) from None
        finally:
            os.close(parent)

    def _judged(self, path: bytes, error: OSError, *, permitted: bool = True) -> OSError:
        number = error.errno or errno.EACCES
        name = os.fsdecode(path)
        parent = _existing_parent(name)
        if self._denials.is_miss(name, number, parent, permitted=permitted):
            return Missed(number, path)
        return error

    def _check(self, fd: int, asked: Asked) -> bytes | None:
        """Decides what Landlock does not: files in /proc, and single directories.

        Landlock's right to list a directory includes all below it. Returns the file's path if it is
        not in the manifest and reads are not enforced. Raises: Missed; OSError.
        """
        status = os.fstat(fd)
        directory, in_proc = stat.S_ISDIR(status.st_mode), status.st_dev == self._proc
        if self._enforced and not directory and not in_proc:
            return None
        path = _real(fd)
        if in_proc:
            try:
                resolve.check_foreign(fd)
            except PermissionError:
                raise Missed(errno.EACCES, path) from None
        named = os.fsdecode(_as_own(asked.task, path) if in_proc else path)
        if self._enforced and not in_proc and not named.startswith(WORKSPACE_DIR):
            return None
        if (self._manifest.may_list if directory else self._manifest.may_read)(named):
            return None
        if not self._enforced:
            return path
        if self._denials.is_miss(named, errno.EACCES, named):
            raise Missed(errno.EACCES, path)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _blocks(pin: int, flags: int) -> bool:
    """Whether the open would wait: for the writer of a FIFO."""
    if flags & (os.O_ACCMODE | os.O_NONBLOCK):
        return False
    return stat.S_ISFIFO(os.fstat(pin).st_mode)


def _mode(asked: Asked) -> int:
    """The permission bits of a created file. This process has no mask of its own."""
    status = resolve.read(b"/proc/%d/status" % asked.task)
    mask = int(status.partition(b"\nUmask:")[2].split(maxsplit=1)[0], 8)
    return asked.mode & _PERMISSION_BITS & ~mask


def _real(fd: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % fd)


def _text(begin: int, path: bytes) -> bytes:
    """The absolute path as far as its text tells."""
    whole = os.path.normpath(os.path.join(_real(begin), path))
    return b"/" + whole.lstrip(b"/")  # two slashes at the beginning are kept otherwise


def _existing_parent(path: str) -> str:
    """The nearest directory above the path that exists."""
    parent = os.path.dirname(path)
    while not os.path.lexists(parent) and parent != "/":
        parent = os.path.dirname(parent)
    return parent


def _as_own(task: int, path: bytes) -> bytes:
    """The path in /proc with the caller's own pid as `self`."""
    own = b"/proc/%d" % resolve.leader(task)
    if path == own or path.startswith(own + b"/"):
        return b"/proc/self" + path[len(own) :]
    return path
