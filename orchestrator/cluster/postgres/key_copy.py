"""The last good copy of the cluster's keys on this node, for when the database is away."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.store.directories import write_file
from orchestrator.host.node.boot import boottime


@dataclass(frozen=True, slots=True)
class Clocks:
    """What tells how old a copy is: the machine's start, the seconds since then, the time of day.

    The time of day counts only after a restart of the machine, because it may be set.
    """

    boot: str
    since_boot: Callable[[], float] = boottime
    of_day: Callable[[], float] = time.time


class KeyCopy:
    """A file with the entries of the keys by digest, for its owner only.

    Its methods block, so they are called in a thread.
    """

    def __init__(self, path: Path, cluster: str, clocks: Clocks) -> None:
        self._path = path
        self._cluster = cluster
        self._clocks = clocks

    def write(self, entries: Mapping[str, str]) -> None:
        """Replaces the copy by what the database has said just now. Raises: OSError."""
        content = {
            "cluster": self._cluster,
            "boot": self._clocks.boot,
            "since_boot": self._clocks.since_boot(),
            "at": self._clocks.of_day(),
            "entries": dict(entries),
        }
        write_file(self._path, json.dumps(content).encode())

    def read(self) -> tuple[float, dict[str, str]] | None:
        """The age of the copy in seconds, and its entries; None: there is none of this cluster.

        Raises: OSError, ValueError.
        """
        try:
            content = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        try:
            if content["cluster"] != self._cluster:
                return None
            if content["boot"] == self._clocks.boot:
                age = self._clocks.since_boot() - float(content["since_boot"])
            else:
                age = self._clocks.of_day() - float(content["at"])
            entries = {str(sha256): str(entry) for sha256, entry in content["entries"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is none: {error}") from None
        # A clock that was set back would make it young again.
        return (age if age >= 0 else float("inf")), entries
