"""Whether the workspace was changed by somebody else since the session staged its changes.

Only the commits of the session change its workspace while it stages. Whatever else changed has a
later change time than the staging area, which no user can set, or is not what a commit left.
"""

import json
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.host.workspace.staged import descriptors
from orchestrator.host.workspace.staged.changes import Change

RECORD = "base.json"
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE, from which file systems take their times


class Base(NamedTuple):
    """What is known of the workspace as it was before the session changed it.

    Until `since`, in ns, nothing of it had changed. `ours` is what commits left there later, as
    [inode, change time in ns] by path. `committed` is the digest of the latest commit.
    """

    since: int
    ours: dict[str, list[int]]
    committed: str | None = None

    def changed(self, change: Change) -> bool:
        """Whether what the change replaces or deletes is not what it was when it was staged."""
        base, lower = change.base, change.lower
        if base is None:
            return False
        if change.base_kind != "directory":
            return self._is_new(change.ref, base)
        # Its own time changes with every entry in it.
        if change.removes_directory and lower is not None:
            return self._is_new_below(lower, change.name, change.ref)
        return False

    def _is_new(self, ref: str, facts: os.stat_result) -> bool:
        if facts.st_ctime_ns <= self.since:
            return False
        return self.ours.get(ref) != [facts.st_ino, facts.st_ctime_ns]

    def _is_new_below(self, parent: int, name: str, ref: str) -> bool:
        """Whether any file in that directory is new."""
        try:
            return any(
                not descriptors.is_directory(facts) and self._is_new(f"{ref}/{place}", facts)
                for place, facts in descriptors.below(parent, name)
            )
        except OSError:
            return True  # what can't be read counts as changed


def read(area: int) -> Base:
    """The record in the area's directory. Raises: OSError, ValueError."""
    found = json.loads(descriptors.read_file(area, RECORD))
    return Base(found["since"], found["ours"], found.get("committed"))


def now() -> int:
    """The present time, in the resolution of file systems, in ns."""
    return time.clock_gettime_ns(_COARSE_CLOCK)


def write(area: int, base: Base) -> None:
    """Replaces the record. Raises: OSError."""
    descriptors.write_file(area, RECORD, json.dumps(base._asdict()).encode())


def left(lower: int, refs: Iterable[str]) -> dict[str, list[int]]:
    """What a commit has left at these paths, as in `Base.ours`."""
    found = {}
    for ref in refs:
        try:
            with descriptors.parent_of(lower, ref) as (directory, name):
                facts = descriptors.facts(directory, name)
        except OSError:
            continue
        if facts is not None:
            found[ref] = [facts.st_ino, facts.st_ctime_ns]
    return found
