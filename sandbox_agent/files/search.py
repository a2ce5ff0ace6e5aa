"""Searches the lines of files below a directory. Runs in a file worker."""

import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files.names import shown
from sandbox_agent.decide.files.patterns import Pattern
from sandbox_agent.decide.globs import Globs
from sandbox_agent.decide.protocol import MAX_FRAME_BYTES
from sandbox_agent.files.places import Place, open_in
from sandbox_agent.files.trees import Deadline

# Of one search.
_SECONDS = 10.0
_MOST_FILES = 50_000
_MOST_BYTES = 256 * 1024 * 1024
_MOST_FILE_BYTES = 16 * 1024 * 1024
_DEEPEST = 64
_MOST_ANSWER = MAX_FRAME_BYTES // 8
# Of a line: what a pattern looks at, and what is returned.
_LONGEST_LOOKED = 10_000
_LONGEST_SHOWN = 500
_BINARY_BYTES = 8192
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
# The histories of version control are not searched unless they are named.
_SKIPPED = frozenset({".git", ".hg", ".svn"})


class Wanted(NamedTuple):
    """What is looked for: a text, or a pattern if there is one; `globs` choose the files."""

    text: str
    pattern: Pattern | None
    ignore_case: bool
    globs: Globs | None
    limit: int

    def lines(self, content: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines that match, with their numbers from 1."""
        if self.pattern is not None or self.ignore_case:
            yield from self._compared(content)
            return
        text = self.text.encode("utf-8", "surrogateescape")
        place, line, counted = content.find(text), 1, 0
        while place >= 0:
            begin = content.rfind(b"\n", 0, place) + 1
            end = content.find(b"\n", place)
            end = len(content) if end < 0 else end
            line += content.count(b"\n", counted, begin)
            counted = begin
            yield line, content[begin:end]
            place = content.find(text, end + 1)

    def _compared(self, content: bytes) -> Iterator[tuple[int, bytes]]:
        folded = self.text.casefold()
        for number, line in enumerate(content.split(b"\n"), 1):
            text = line[:_LONGEST_LOOKED].decode("utf-8", "surrogateescape").removesuffix("\r")
            if self.pattern is None:
                if folded in text.casefold():
                    yield number, line
            elif self.pattern.found_in(text):
                yield number, line


class Search:
    """One search; `run` returns its answer."""

    def __init__(self, place: Place, path: str, wanted: Wanted) -> None:
        self._place, self._path, self._wanted = place, path, wanted
        self._deadline = Deadline(_SECONDS)
        self._matches: list[dict[str, Any]] = []
        self._left = _MOST_BYTES
        self._room = _MOST_ANSWER
        self._files = self._seen = self._skipped = 0
        self._truncated = False

    def run(self) -> dict[str, Any]:
        """The matches in the order of the paths. Raises: OSError, AgentError."""
        fd = open_in(self._place, self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            kind = os.fstat(fd).st_mode
        finally:
            os.close(fd)
        if stat.S_ISREG(kind):
            self._look(self._path)
        elif stat.S_ISDIR(kind):
            self._walk(self._path, "", 1)
        else:
            raise AgentError("conflict", f"not a file or directory: {self._path}")
        return {
            "matches": self._matches,
            "files": self._files,
            "skipped": self._skipped,
            "truncated": self._truncated,
        }

    @property
    def _over(self) -> bool:
        """Whether a bound is reached; there may be more then."""
        if (
            self._deadline.over
            or self._seen >= _MOST_FILES
            or self._left <= 0
            or self._room <= 0
            or len(self._matches) >= self._wanted.limit
        ):
            self._truncated = True
        return self._truncated

    def _walk(self, directory: str, within: str, depth: int) -> None:
        """Looks at what is in a directory; `within` is its path below the searched one."""
        try:
            found = sorted(self._scan(directory))
        except (OSError, AgentError):
            if depth == 1:
                raise
            self._skipped += 1
            return
        for name, is_directory in found:
            if self._over:
                return
            path = name if directory in ("", ".") else f"{directory.rstrip('/')}/{name}"
            below = f"{within}{name}"
            if not is_directory:
                self._seen += 1
                if self._wanted.globs is None or self._wanted.globs.match(below):
                    self._look(path)
            elif depth < _DEEPEST and name not in _SKIPPED:
                if self._wanted.globs is None or self._wanted.globs.leads(below):
                    self._walk(path, f"{below}/", depth + 1)
            elif depth >= _DEEPEST:
                self._truncated = True

    def _scan(self, directory: str) -> Iterator[tuple[str, bool]]:
        fd = open_in(self._place, directory or ".", _DIRECTORY)
        try:
            with os.scandir(fd) as names:
                for each in names:
                    is_directory = each.is_dir(follow_symlinks=False)
                    if is_directory or each.is_file(follow_symlinks=False):
                        yield each.name, is_directory
        finally:
            os.close(fd)

    def _look(self, path: str) -> None:
        try:
            content = self._content(path)
        except (OSError, AgentError):
            content = None
        if content is None or b"\0" in content[:_BINARY_BYTES]:
            self._skipped += 1
            return
        self._files += 1
        for number, line in self._wanted.lines(content):
            text = line.decode("utf-8", "replace").removesuffix("\r")[:_LONGEST_SHOWN]
            name = shown("/" + path.lstrip("/") if self._place.image else path)
            self._matches.append({"path": name, "line": number, "text": text})
            self._room -= len(text.encode()) + len(name) + 50
            if self._over:
                return

    def _content(self, path: str) -> bytes | None:
        """A file's bytes; None for one that is too long, or that is no file any more."""
        fd = open_in(self._place, path, _FILE)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_FILE_BYTES:
                return None
            pieces = []
            left = _MOST_FILE_BYTES
            while left > 0 and (piece := os.read(fd, min(left, 1024 * 1024))):
                pieces.append(piece)
                left -= len(piece)
            content = b"".join(pieces)
            self._left -= len(content)
            return content
        finally:
            os.close(fd)
