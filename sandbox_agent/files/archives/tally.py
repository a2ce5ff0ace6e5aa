"""Counts what an archive holds, for the answer and the record."""

import hashlib
from collections.abc import Callable
from typing import Any

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.excerpts import LONGEST_PATHS, MOST_PATHS, json_size, text
from sandbox_agent.files.archives import names

# Entries of one archive.
MOST_ENTRIES = 200_000
_MOST_SKIPPED = 64
_LONGEST_SKIPPED = 4096
_KINDS = {"file": "files", "directory": "directories", "symlink": "links", "link": "links"}


class Skipped:
    """What is left out: how much, and the first names, escaped where they are not printable."""

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []
        self._room = _LONGEST_SKIPPED

    def add(self, path: str) -> None:
        """Notes an entry."""
        self.count += 1
        name = names.shown(path)
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
        self._digest = hashlib.sha256()
        self._told = 0
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
        """Counts a directory that no entry names, but the path of one. Raises: AgentError."""
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
        told = self._cut(path).encode("utf-8", "backslashreplace")
        self._digest.update(told + b"\0")
        kept = text(told.decode())
        # Once a path has been left out, so are all that follow: it is the list's beginning.
        self._room -= json_size(kept)
        if self._room >= 0 and len(self._paths) < MOST_PATHS:
            self._paths.append(kept)

    def news(self) -> dict[str, Any]:
        """Like `members`, but only with the paths that no earlier call returned."""
        paths, self._told = self._paths[self._told :], len(self._paths)
        return {**self.members(), "paths": paths}

    def before(self) -> str:
        """What was written before a failure: each entry up to the last, completely."""
        said = f"{self.entries} entries with {self.bytes} bytes were written before"
        return f"{said}, the last of them {names.entry(self._last)}" if self.entries else said

    def members(self) -> dict[str, Any]:
        """The counts, and the paths' beginning, number and digest, as events have them."""
        return {
            **self._counts,
            "bytes": self.bytes,
            "paths": self._paths,
            "paths_words": self.entries,
            "paths_sha256": self._digest.hexdigest(),
        }
