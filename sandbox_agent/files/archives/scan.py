"""Finds the entries of a directory that go into an archive; links are not followed."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.outside_paths import is_file_of_image
from sandbox_agent.decide.protocol import CHUNK_BYTES
from sandbox_agent.enforce.syscalls import open_beneath
from sandbox_agent.files.archives import names
from sandbox_agent.files.archives.tally import Skipped, Tally
from sandbox_agent.files.places import RULE, Place, open_in

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


class Found(NamedTuple):
    """One entry. `target` is a symbolic link's; `modified` is in nanoseconds since the epoch."""

    path: str
    kind: str
    target: str = ""
    modified: int = 0


def content(opened: int, found: Found, size: int) -> Iterator[bytes]:
    """The file's first `size` bytes, in pieces. Raises: AgentError if it has fewer; OSError."""
    left = size
    while left:
        data = os.read(opened, min(left, CHUNK_BYTES))
        if not data:
            raise AgentError("conflict", f"it became shorter while it was read: {found.path}")
        left -= len(data)
        yield data


class Scan:
    """The entries beneath a directory, in order: each directory comes before its entries.

    The scan leaves out links that lead out of the directory, FIFOs, sockets, devices, and what it
    may not read; with `texts`, also names that are not UTF-8, for which some formats have no form.
    So everything in an archive can be unpacked again.
    """

    def __init__(self, place: Place, path: str, tally: Tally, *, texts: bool = False) -> None:
        """Raises: AgentError, OSError."""
        self.root = open_in(place, path, os.O_RDONLY | os.O_DIRECTORY)
        self._image = place.image
        self._tally = tally
        self._texts = texts
        self.skipped = Skipped()
        self.entries: list[Found] = list(self._walk())

    def open(self, path: str, flags: int) -> int:
        """Opens something beneath the directory. Raises: OSError, AgentError."""
        found = open_beneath(self.root, path, flags, links=False)
        # The kernel's views of itself do not belong to the image.
        if self._image and not is_file_of_image(os.readlink(f"/proc/self/fd/{found}")):
            os.close(found)
            raise AgentError("permission_denied", f"not a file of the image: {path}", RULE)
        return found

    @contextmanager
    def reopened(self, found: Found) -> Iterator[tuple[int, os.stat_result] | None]:
        """The opened file or directory, and its status; None if it is gone or has another type."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        try:
            opened = self.open(found.path, flags)
        except (OSError, AgentError):
            yield None
            return
        try:
            status = os.fstat(opened)
            same = _KINDS.get(stat.S_IFMT(status.st_mode)) == found.kind
            yield (opened, status) if same else None
        finally:
            os.close(opened)

    def _walk(self) -> Iterator[Found]:
        directories = ["."]
        while directories:
            directory = directories.pop()
            below = []
            try:
                opened = self.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            except (OSError, AgentError):
                if directory == ".":
                    raise
                continue  # it was removed or replaced
            try:
                for entry in sorted(os.scandir(opened), key=lambda each: each.name):
                    path = entry.name if directory == "." else f"{directory}/{entry.name}"
                    found = self._entry(path, entry, opened)
                    if found is None:
                        self.skipped.add(path)
                        continue
                    if found.kind == "directory":
                        below.append(path)
                    yield found
            finally:
                os.close(opened)
            directories += below[::-1]

    def _entry(self, path: str, entry: "os.DirEntry[str]", directory: int) -> Found | None:
        """The entry, or None if it is left out."""
        if self._texts and not names.is_text(path):
            return None
        try:
            names.entry_path(os.fsencode(path))
            status = entry.stat(follow_symlinks=False)
            kind = _KINDS.get(stat.S_IFMT(status.st_mode))
            target = os.readlink(entry.name, dir_fd=directory) if kind == "symlink" else ""
        except (AgentError, OSError):
            return None
        if kind is None:
            return None
        if kind == "symlink":
            if self._texts and not names.is_text(target):
                return None
            if not names.leads_inside(path, target):
                return None
        elif not os.access(
            entry.name, os.R_OK | (os.X_OK if kind == "directory" else 0), dir_fd=directory
        ):
            return None
        self._tally.add(kind, path, status.st_size if kind == "file" else 0)
        return Found(path, kind, target, status.st_mtime_ns)
