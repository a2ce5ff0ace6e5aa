"""Counts what an archive holds, for the answer and the record."""

from collections.abc import Callable
from typing import Any

from sandbox_agent.decide.digest import sha256
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.excerpts import LONGEST_PATHS, MOST_PATHS, json_size, text
from sandbox_agent.decide.files.names import shown
from sandbox_agent.files.archives import names

# The most entries of one archive.
MOST_ENTRIES = 200_000
_MOST_SKIPPED = 64
_LONGEST_SKIPPED = 4096
_KINDS = {"file": "files", "directory": "directories", "symlink": "links", "link": "links"}


class Skipped:
    """The entries that are left out: their number, and the first names, made printable."""

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []
        self._room = _LONGEST_SKIPPED

    def add(self, path: str) -> None:
        """Notes an entry."""
        self.count += 1
        name = names.printable(path)
        self._room -= len(name.encode())
        if self._room >= 0 and len(self.names) < _MOST_SKIPPED:
            self.names.append(name)

    def members(self) -> dict[str, Any]:
        """The count and the names, as answers have them."""
        return {"skipped": self.count, "skipped_names": self.names}


class Tally:
    """The entries so far. `cut` removes secrets from paths before they are recorded."""

    def __init__(self, cut: Callable[[str], str]) -> None:
        self._cut = cut
        self._counts = {"files": 0, "directories": 0, "links": 0}
        self._paths: list[str] = []
        self._room = LONGEST_PATHS
        self._digest = sha256()
        # How many paths `news` has returned.
        self._reported = 0
        self._implied = 0
        self._last = ""
        self.skipped = Skipped()
        self.entries = 0
        self.bytes = 0

    def check(self) -> None:
        """Raises: AgentError if there can't be another entry."""
        if self.entries + self._implied >= MOST_ENTRIES:
            raise AgentError("too_large", f"an archive may have {MOST_ENTRIES} entries")

    def imply(self) -> None:
        """Counts a directory that is only part of an entry's path. Raises: AgentError."""
        self.check()
        self._implied += 1

    def skip(self, path: str) -> None:
        """Counts an entry that is left out. Raises: AgentError."""
        self.imply()
        self.skipped.add(path)

    def add(self, kind: str, path: str, size: int = 0) -> None:
        """Counts an entry: a file, directory, symlink or (hard) link. Raises: AgentError."""
        self.check()
        self.entries += 1
        self.bytes += size
        self._counts[_KINDS[kind]] += 1
        self._last = path
        recorded = self._cut(shown(path)).encode()
        self._digest.update(recorded + b"\0")
        kept = text(recorded.decode())
        # The list is the beginning of all paths: after one that was left out, it gets no more.
        self._room -= json_size(kept)
        if self._room >= 0 and len(self._paths) < MOST_PATHS:
            self._paths.append(kept)

    def news(self) -> dict[str, Any]:
        """Like `members`, but only with the paths that no earlier call returned."""
        paths, self._reported = self._paths[self._reported :], len(self._paths)
        return {**self.members(), "paths": paths}

    def before(self) -> str:
        """A message about what was written before a failure: all of these entries are complete."""
        message = f"{self.entries} entries with {self.bytes} bytes were written before"
        return f"{message}, the last of them {names.entry(self._last)}" if self.entries else message

    def members(self) -> dict[str, Any]:
        """The counts, and the first paths, their number and their digest, as events have them."""
        return {
            **self._counts,
            "bytes": self.bytes,
            "paths": self._paths,
            "paths_words": self.entries,
            "paths_sha256": self._digest.hexdigest(),
        }
