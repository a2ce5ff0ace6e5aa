"""A local directory whose links are never followed: its content may come from a sandbox."""

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import dropwhile
from pathlib import Path
from typing import BinaryIO, NamedTuple, ParamSpec, TypeVar

from paddock.client.loop_thread import on_loop

P = ParamSpec("P")
T = TypeVar("T")

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Errors of opening a file that is a link, has become one, has vanished, or is a socket.
_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.ENXIO)


class Names(NamedTuple):
    """The content of a directory, by relative path with `/`.

    `innermost` are the directories without subdirectories; `links` are symbolic links that stay in
    the directory, with their targets; `skipped` lists what can't be sent.
    """

    files: list[str]
    innermost: list[str]
    skipped: list[str]
    links: list[tuple[str, str]]


async def off_loop(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Runs `function` in a thread, because the caller's disk may be slow.

    There is no time limit, as for any program that uses its own disk.
    """
    await on_loop()
    return await asyncio.to_thread(function, *args, **options)


async def finally_off_loop(function: Callable[[], None]) -> None:
    """Runs `function` in a thread, even if the caller is cancelled, because it releases."""
    await on_loop()
    await asyncio.shield(off_loop(function))


def draft_of(path: Path) -> Path:
    """A new name beside the file, for what is written before it takes its place.

    Raises: IsADirectoryError for a path without a name.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def walk(root: Path) -> Names:
    """The content of a directory, links not followed. Raises: OSError if it can't be read."""
    names = Names([], [], [], [])
    for directory, below, files in os.walk(root, onerror=_raise):
        base = Path(directory).relative_to(root)
        kept = [name for name in below if not (Path(directory) / name).is_symlink()]
        for name in sorted({*below, *files} - set(kept)):
            _sort_in(names, (base / name).as_posix(), Path(directory) / name)
        below[:] = sorted(kept)
        if not below:
            names.innermost.append(base.as_posix())
    return names


def _sort_in(names: Names, name: str, path: Path) -> None:
    kind = path.lstat().st_mode
    if stat.S_ISREG(kind):
        names.files.append(name)
    elif stat.S_ISLNK(kind) and leads_inside(name, target := os.readlink(path)):
        names.links.append((name, target))
    else:
        names.skipped.append(name)


def leads_inside(name: str, target: str) -> bool:
    """Whether a link of that name in a directory leads to something in the directory.

    This holds whatever other such links exist: `..` is accepted only at the beginning, because
    after another link it would not lead where it seems to.
    """
    steps = [step for step in target.split("/") if step not in ("", ".")]
    down = list(dropwhile(lambda step: step == "..", steps))
    return (
        bool(target)
        and not target.startswith("/")
        and ".." not in down
        and len(steps) - len(down) <= name.count("/")
    )


class Directory:
    """An open directory. All access is beneath it by descriptors; links are refused."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Raises: OSError."""
        if make:
            path.mkdir(parents=True, exist_ok=True)
        self._root = os.open(path, _DIRECTORY)

    def close(self) -> None:
        """Closes the directory."""
        os.close(self._root)

    def make(self, name: str) -> None:
        """Creates a directory and its parents. Raises: OSError if something else is there."""
        with self._beneath(name.split("/"), make=True):
            pass

    def modified(self, name: str) -> int:
        """When something was changed last, in seconds; no link is followed. Raises: OSError."""
        *above, leaf = name.split("/")
        with self._beneath(above) as parent:
            return int(os.stat(leaf, dir_fd=parent, follow_symlinks=False).st_mtime)

    def set_modified(self, name: str, modified: int) -> None:
        """Sets a directory's time, in nanoseconds. Raises: OSError."""
        with self._beneath(name.split("/")) as directory:
            os.utime(directory, ns=(modified, modified))

    def open_file(self, name: str) -> BinaryIO | None:
        """Opens a regular file for reading; None for anything else. Raises: OSError."""
        *above, leaf = name.split("/")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with self._beneath(above) as parent:
                descriptor = os.open(leaf, flags, dir_fd=parent)
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
        return None

    @contextmanager
    def replacement(
        self, name: str, permissions: int, modified: int
    ) -> Iterator[Callable[[bytes], int]]:
        """Writes a file that appears completely at the end, or not at all.

        It gets the permissions that the umask allows, and the time of its last change, in
        nanoseconds. Raises: OSError.
        """
        *above, leaf = name.split("/")
        temporary = _temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._beneath(above, make=True) as parent:
            descriptor = os.open(temporary, flags, permissions & 0o777, dir_fd=parent)
            with _put_in_place(parent, temporary, leaf), os.fdopen(descriptor, "wb") as file:
                yield file.write
                file.flush()
                os.utime(descriptor, ns=(modified, modified))

    def link(self, name: str, target: str, modified: int) -> None:
        """Creates a symbolic link, replacing a file or link of that name. Raises: OSError."""
        *above, leaf = name.split("/")
        temporary = _temporary_name()
        with self._beneath(above, make=True) as parent:
            os.symlink(target, temporary, dir_fd=parent)
            with _put_in_place(parent, temporary, leaf):
                times = (modified, modified)
                os.utime(temporary, ns=times, dir_fd=parent, follow_symlinks=False)

    @contextmanager
    def _beneath(self, parts: list[str], *, make: bool = False) -> Iterator[int]:
        """The descriptor of a directory, opened step by step."""
        current = os.dup(self._root)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)


@contextmanager
def _put_in_place(directory: int, temporary: str, name: str) -> Iterator[None]:
    """Renames what the block has made, or removes it. A link of that name is replaced."""
    try:
        yield
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _temporary_name() -> str:
    return f".paddock-{secrets.token_hex(8)}"


def _raise(error: OSError) -> None:
    raise error
