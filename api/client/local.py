"""A local directory, whose links are never followed: what is in it may come from a sandbox."""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# What opening a file says that is a link, has become one, has vanished, or is a socket.
_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.ENXIO)


class Names(NamedTuple):
    """What a directory holds, by path relative to it with `/`.

    `innermost` are the directories without directories in them; `skipped` is what can't
    be sent.
    """

    files: list[str]
    innermost: list[str]
    skipped: list[str]


def walk(root: Path) -> Names:
    """What a directory holds, links not followed. Raises: OSError where it can't be read."""
    names = Names([], [], [])
    for directory, below, files in os.walk(root, onerror=_raise):
        base = Path(directory).relative_to(root)
        kept = [name for name in below if not (Path(directory) / name).is_symlink()]
        for name in sorted({*below, *files} - set(kept)):
            whole = Path(directory) / name
            proper = _is_text(name) and stat.S_ISREG(whole.lstat().st_mode)
            (names.files if proper else names.skipped).append((base / name).as_posix())
        names.skipped.extend((base / name).as_posix() for name in kept if not _is_text(name))
        below[:] = sorted(name for name in kept if _is_text(name))
        if not below:
            names.innermost.append(base.as_posix())
    return names


class Directory:
    """An open directory. Everything is found beneath it by descriptors; links are refused."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Raises: OSError."""
        if make:
            path.mkdir(parents=True, exist_ok=True)
        self._root = os.open(path, _DIRECTORY)

    def close(self) -> None:
        """Lets go of it."""
        os.close(self._root)

    def make(self, name: str) -> None:
        """Makes a directory and those above it. Raises: OSError where something else is there."""
        with self._beneath(name.split("/"), make=True):
            pass

    def open_file(self, name: str) -> BinaryIO | None:
        """A regular file to read, None for anything else. Raises: OSError."""
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
    def replacement(self, name: str) -> Iterator[Callable[[bytes], int]]:
        """Writes a file that takes its place whole at the end, or not at all. Raises: OSError."""
        *above, leaf = name.split("/")
        temporary = f".paddock-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._beneath(above, make=True) as parent:
            descriptor = os.open(temporary, flags, 0o666, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    yield file.write
                # A link of that name is replaced, not followed.
                os.rename(temporary, leaf, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise

    @contextmanager
    def _beneath(self, parts: list[str], *, make: bool = False) -> Iterator[int]:
        """The descriptor of a directory, step by step."""
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


def _is_text(name: str) -> bool:
    """Bytes that are not UTF-8 arrive as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _raise(error: OSError) -> None:
    raise error
