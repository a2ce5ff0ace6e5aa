"""CPU time of everything that serves a contender, from the processes' own accounts.

A process's account has what it used itself and what its ended children used. So the sum over a
process and its living descendants misses nothing that has ended meanwhile, and counts nothing
twice.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import docker

_ENGINE = ("dockerd", "containerd")
# It passes bytes on to published ports; a child of dockerd.
_PROXY = "docker-proxy"
_PROC = Path("/proc")


class Process(NamedTuple):
    """A line of the table of processes; `ticks` are its own and those of its ended children."""

    parent: int
    name: str
    ticks: int


Table = Mapping[int, Process]


class Accounts:
    """The processes of one contender: a server of its own, the engine, and its containers.

    A container's processes are below its shim, which starts the engine's `exec`s too. The client's
    process does not count.
    """

    def __init__(self, client: docker.APIClient, server: int | None = None) -> None:
        """`server` is the pid of a process besides the engine that serves the contender."""
        self._client = client
        self._server = server
        self._shims: dict[str, int] = {}

    def add(self, container: str) -> None:
        """Counts a container's processes from now on."""
        first = int(self._client.inspect_container(container)["State"]["Pid"])
        if first in (table := read_table()):
            self._shims[container] = table[first].parent

    def forget(self, container: str) -> None:
        """No longer counts a container that is removed."""
        self._shims.pop(container, None)

    def seconds(self) -> float | None:
        """What all of them used since they began; None if the engine is on another machine."""
        table = read_table()
        engine = [pid for pid, process in table.items() if process.name in _ENGINE]
        if not engine:
            return None
        alone = [*engine, *(p for p in table if _is_proxy(table, p))]
        roots = [*self._shims.values(), *([] if self._server is None else [self._server])]
        return used_ticks(table, alone, roots) / os.sysconf("SC_CLK_TCK")


def used_ticks(table: Table, alone: Iterable[int], roots: Iterable[int]) -> int:
    """The ticks of some processes, and of others with all their descendants; each counts once."""
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found, waiting = set(alone), list(roots)
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, ())
    return sum(table[pid].ticks for pid in found if pid in table)


def read_table() -> dict[int, Process]:
    """All processes of this machine, by pid."""
    table = {}
    for directory in _PROC.iterdir():
        if directory.name.isdigit():
            # It may end meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                table[int(directory.name)] = parse_stat((directory / "stat").read_text())
    return table


def parse_stat(text: str) -> Process:
    """A line of `/proc/PID/stat`; the name in it may contain anything, parentheses too."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(int(fields[1]), head.partition("(")[2], sum(map(int, fields[11:15])))


def _is_proxy(table: Table, pid: int) -> bool:
    return table[pid].name == _PROXY
