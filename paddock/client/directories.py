"""Transfers whole directories to and from a workspace. The content of neither side is trusted."""

import asyncio
import os
import posixpath
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from paddock.client.errors import LimitError, NotFoundError
from paddock.client.local import Directory, leads_inside, off_loop, walk
from paddock.client.results import Transfer
from paddock.contract.files import FileEntry, FileList

T = TypeVar("T")

_WORKSPACE = "/workspace"
# The sandbox agent serves 8 file operations of a session at once.
_AT_ONCE = 6
# The depth of one listing.
_DEPTH = 64
_MOST_ENTRIES = 200_000


class Remote(Protocol):
    """The workspace side of a transfer."""

    def pieces(self, path: str) -> AsyncGenerator[bytes, None]:
        """A file's content."""

    async def put(self, path: str, content: BinaryIO, permissions: int) -> int:
        """Replaces a file; returns the bytes written."""

    async def link(self, path: str, target: str) -> None:
        """Creates a symbolic link."""

    async def mkdir(self, path: str) -> None:
        """Creates a directory and its parents."""

    async def list(self, path: str, depth: int) -> FileList:
        """The content of a directory."""


async def upload(remote: Remote, local: Path, path: str) -> Transfer:
    """Sends the files beneath `local`: regular files, links last.

    Raises: OSError, and the remote's errors.
    """
    names = await off_loop(walk, local)
    skipped = list(names.skipped)

    async def make(name: str) -> None:
        target = _relative(posixpath.join(path, name))
        if target != ".":
            await remote.mkdir(target)

    async def send(name: str) -> int | None:
        content = await off_loop(source.open_file, name)
        if content is None:
            skipped.append(name)
            return None
        with content:
            permissions = stat.S_IMODE(os.fstat(content.fileno()).st_mode)
            return await remote.put(posixpath.join(path, name), content, permissions)

    async def link(named: tuple[str, str]) -> None:
        name, target = named
        await remote.link(posixpath.join(path, name), target)

    source = await off_loop(Directory, local)
    try:
        await _some_at_a_time(make, names.innermost or ["."])
        sizes = await _some_at_a_time(send, names.files)
        await _some_at_a_time(link, names.links)
        return _transfer(sizes, skipped, len(names.links))
    finally:
        source.close()


async def download(remote: Remote, path: str, local: Path, max_bytes: int) -> Transfer:
    """Fetches the files beneath `path`: regular files, links last.

    Raises: LimitError, OSError, and the remote's errors.
    """
    base = _relative(path)
    entries, skipped = await _walk_remote(remote, path)
    budget = _Budget(path, max_bytes)
    links: list[tuple[str, str]] = []

    async def fetch(entry: FileEntry) -> int | None:
        name = _inside(base, entry.path)
        if name is not None and entry.target is not None and leads_inside(name, entry.target):
            links.append((name, entry.target))
            return None
        if name is None or entry.type not in ("file", "directory"):
            skipped.append(entry.path)
            return None
        if entry.type == "directory":
            await off_loop(target.make, name)
            return None
        try:
            return await _fetch(remote, entry, target, name, budget)
        except NotFoundError:  # it has vanished, or its shown name is escaped
            skipped.append(entry.path)
            return None

    target = await off_loop(Directory, local, make=True)
    try:
        sizes = await _some_at_a_time(fetch, entries)
        for name, leads_to in links:
            await off_loop(target.link, name, leads_to)
        return _transfer(sizes, skipped, len(links))
    finally:
        target.close()


async def _fetch(
    remote: Remote, entry: FileEntry, target: Directory, name: str, budget: "_Budget"
) -> int:
    size = 0
    async with aclosing(remote.pieces(entry.path)) as pieces:
        with target.replacement(name, entry.permissions) as write:
            async for piece in pieces:
                budget.take(len(piece))
                size += len(piece)
                await off_loop(write, piece)
    return size


async def _walk_remote(remote: Remote, path: str) -> tuple[list[FileEntry], list[str]]:
    """The content of a directory, and the directories that can't be listed.

    One listing returns some thousand entries; if there are more, each directory is listed
    separately. Raises: LimitError.
    """
    entries: list[FileEntry] = []
    skipped: list[str] = []
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        try:
            found, depth = await _list(remote, directory)
        except NotFoundError:
            if directory == path:
                raise
            skipped.append(directory)
            continue
        entries += found
        if len(entries) > _MOST_ENTRIES:
            raise LimitError(f"{path} has more than {_MOST_ENTRIES} entries")
        bottom = _depth(_relative(directory)) + depth
        waiting += [
            entry.path
            for entry in found
            if entry.type == "directory" and _depth(entry.path) == bottom
        ]
    return entries, skipped


async def _list(remote: Remote, path: str) -> tuple[list[FileEntry], int]:
    """The entries of a directory, and how many levels of it they cover."""
    for depth in (_DEPTH, 1):
        listing = await remote.list(path, depth)
        if not listing.truncated:
            return listing.items, depth
    raise LimitError(f"{path} has more entries than can be listed")


class _Budget:
    """The bytes that may still be transferred."""

    def __init__(self, path: str, most: int) -> None:
        self._path, self._most, self._left = path, most, most

    def take(self, count: int) -> None:
        """Takes `count` bytes. Raises: LimitError if too few are left."""
        self._left -= count
        if self._left < 0:
            raise LimitError(f"{self._path} has more than {self._most} bytes")


async def _some_at_a_time(work: Callable[[T], Awaitable[Any]], items: Iterable[T]) -> list[Any]:
    """Results of `work` for each item. Raises: the first failure, after cancelling the rest."""
    waiting, results = iter(items), []

    async def worker() -> None:
        for item in waiting:
            results.append(await work(item))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(worker())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return results


def _transfer(sizes: list[int | None], skipped: list[str], links: int) -> Transfer:
    done = [size for size in sizes if size is not None]
    skips = tuple(sorted(skipped))
    return Transfer(files=len(done), bytes=sum(done), skipped=skips, links=links)


def _relative(path: str) -> str:
    """A path in the API's form: relative to the workspace, `.` for the workspace itself."""
    return posixpath.relpath(posixpath.join(_WORKSPACE, path), _WORKSPACE)


def _depth(path: str) -> int:
    return 0 if path == "." else path.count("/") + 1


def _inside(base: str, path: str) -> str | None:
    """A listed path relative to the listed directory; None if it is not beneath it."""
    name = path if base == "." else path.removeprefix(base + "/")
    if base != "." and name == path:
        return None
    parts = name.split("/")
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    return None if "\0" in name or any(part in ("", ".", "..") for part in parts) else name
