"""What a sandbox's processes are and use, read from the host: a hung agent is seen as well.

The sandbox's control group says which processes it has. Processes write their own argv, so
it is bounded and never taken for anything but text.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

# Between the two looks that a percentage is made from.
WINDOW_SECONDS = 0.1
_MOST_ARGV_BYTES = 2048
# Beyond it the sum is right, the list is not whole.
_MOST_PROCESSES = 1024
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting",  # for a device; it can't be interrupted
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "I": "idle",
}


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `pid` is as the sandbox sees it, `host_pid` as the host does.

    `cpu_percent` is of one core, during the last 100 ms; `memory_bytes` is resident.
    `argv` is cut after 2 KiB, and empty for a zombie.
    """

    pid: int
    host_pid: int
    name: str
    argv: list[str]
    state: str
    cpu_seconds: float
    cpu_percent: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What the sandbox uses as a whole; `cpu_seconds` since it was started."""

    cpu_seconds: float
    cpu_percent: float
    memory_bytes: int
    pids: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A sandbox's processes, by pid, and their use of the host."""

    processes: list[Process]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Host:
    """Where the kernel shows processes and control groups; another root for tests."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")


THIS_HOST = Host()


def measure(
    container_id: str,
    pid: int | None,
    host: Host = THIS_HOST,
    window: float = WINDOW_SECONDS,
) -> Measured | None:
    """Looks twice, `window` seconds apart; None where the control group can't be seen.

    Blocks: call it in a thread. `pid` is that of the container's first process, where it
    is known.
    """
    groups = find_groups(container_id, pid, host)
    if groups is None:
        return None
    try:
        began = time.monotonic()
        before = _look(groups, host)
        time.sleep(window)
        after = _look(groups, host)
    except (OSError, ValueError):
        return None  # it ended meanwhile
    return compared(before, after, time.monotonic() - began)


def compared(before: Measured, after: Measured, seconds: float) -> Measured:
    """The second look, with the percentages of the time between the two."""

    def percent(earlier: float, later: float) -> float:
        return round(max(0.0, later - earlier) / seconds * 100, 1) if seconds > 0 else 0.0

    known = {process.host_pid: process for process in before.processes}
    processes = []
    for process in after.processes:
        # A process that is new has used all of its time since the first look.
        earlier = known.get(process.host_pid)
        used = percent(earlier.cpu_seconds if earlier else 0.0, process.cpu_seconds)
        processes.append(replace(process, cpu_percent=used))
    total = percent(before.usage.cpu_seconds, after.usage.cpu_seconds)
    return Measured(processes, replace(after.usage, cpu_percent=total))


@dataclass(frozen=True, slots=True)
class Groups:
    """The directories of a sandbox's control group; all the same one with version 2."""

    version: int
    cpu: Path
    memory: Path
    pids: Path


def find_groups(container_id: str, pid: int | None, host: Host) -> Groups | None:
    """The control group of a container: where its first process is, or where engines put it."""
    version = 2 if (host.cgroup / "cgroup.controllers").exists() else 1
    for paths in _candidates(container_id, pid, host):
        if version == 2:
            directory = host.cgroup / paths.get("", "").lstrip("/")
            groups = Groups(2, directory, directory, directory)
        else:
            groups = Groups(
                1, *(host.cgroup / c / paths.get(c, "").lstrip("/") for c in _CONTROLLERS)
            )
        named = container_id in groups.pids.name
        if named and all((d / "cgroup.procs").exists() for d in (groups.cpu, groups.pids)):
            return groups
    return None


_CONTROLLERS = ("cpuacct", "memory", "pids")


def _candidates(container_id: str, pid: int | None, host: Host) -> Iterator[dict[str, str]]:
    if pid:
        # It may have ended, or be in a namespace that is not shown here.
        with suppress(OSError):
            yield group_paths((host.proc / str(pid) / "cgroup").read_text())
    for path in (f"/docker/{container_id}", f"/system.slice/docker-{container_id}.scope"):
        yield dict.fromkeys(("", *_CONTROLLERS), path)


def group_paths(text: str) -> dict[str, str]:
    """A process's control groups by controller, from its `cgroup` file; version 2's is ''.

    Paths that lead out of this process's own view are left out.
    """
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if ".." not in path.split("/"):
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _look(groups: Groups, host: Host) -> Measured:
    pids = [int(line) for line in (groups.pids / "cgroup.procs").read_text().split()]
    found = (_process(host.proc / str(pid)) for pid in sorted(pids)[:_MOST_PROCESSES] if pid)
    processes = sorted((p for p in found if p is not None), key=lambda process: process.pid)
    return Measured(processes, _usage(groups, len(pids)))


def _usage(groups: Groups, processes: int) -> Usage:
    if groups.version == 2:
        used = _keyed(groups.cpu / "cpu.stat")["usage_usec"] / 1e6
        memory, cache, pids = "memory.current", "inactive_file", "pids.current"
    else:
        used = int((groups.cpu / "cpuacct.usage").read_text()) / 1e9
        memory, cache, pids = "memory.usage_in_bytes", "total_inactive_file", "pids.current"
    # Pages that the kernel drops as soon as somebody needs them are not the sandbox's use.
    held = int((groups.memory / memory).read_text())
    held -= _keyed(groups.memory / "memory.stat").get(cache, 0)
    try:
        count = int((groups.pids / pids).read_text())
    except FileNotFoundError:
        count = processes
    return Usage(round(used, 6), 0.0, max(0, held), count)


def _keyed(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(value) for name, value in lines}


def _process(directory: Path) -> Process | None:
    """The process of a /proc directory, or None when it has ended."""
    try:
        stat = (directory / "stat").read_bytes()
        status = (directory / "status").read_bytes()
        with open(directory / "cmdline", "rb") as file:
            command = file.read(_MOST_ARGV_BYTES)
    except OSError:
        return None
    return parse_process(int(directory.name), stat, status, command)


def parse_process(host_pid: int, stat: bytes, status: bytes, command: bytes) -> Process:
    """A process from its `stat`, `status` and `cmdline`. Its name may hold anything."""
    name = stat[stat.index(b"(") + 1 : stat.rindex(b")")]
    fields = stat[stat.rindex(b")") + 2 :].split()
    pid = host_pid
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            pid = int(line.split()[-1])
    argv = command.removesuffix(b"\0").split(b"\0") if command else []
    return Process(
        pid=pid,
        host_pid=host_pid,
        name=_text(name),
        argv=[_text(word) for word in argv],
        state=_STATES.get(fields[0].decode("ascii", "replace"), "ended"),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        cpu_percent=0.0,
        memory_bytes=max(0, int(fields[21])) * _PAGE_BYTES,
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
