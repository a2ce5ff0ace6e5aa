"""A sandbox's processes and resource use, read from the host so that a hung agent is visible.

The sandbox's control group lists its processes. Processes can change their own argv, so it is
limited in size and treated as plain text.
"""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.host.node.control_groups import Group, Groups, HostPaths, find_groups, members

# The shortest time for a percentage, because the kernel counts a process's time in ticks.
LEAST_SECONDS = 0.1
_MOST_ARGV_BYTES = 2048
# Above this number, the totals are still right but the list is incomplete.
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
    """One process. `pid` is its pid in the sandbox, `host_pid` its pid on the host.

    `host_parent_pid` is its parent's pid on the host; the parent of the first process is outside of
    the sandbox. `cpu_percent` is of one core, since an earlier measurement; `memory_bytes` is
    resident. `argv` is cut after 2 KiB, and empty for a zombie.
    """

    pid: int
    host_pid: int
    host_parent_pid: int
    name: str
    argv: list[str]
    state: str
    cpu_seconds: float
    cpu_percent: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The whole sandbox's resource use; `cpu_seconds` since its start."""

    cpu_seconds: float
    cpu_percent: float
    memory_bytes: int
    pids: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A sandbox's processes by pid, and their use of the host.

    `frozen`: whether the engine has paused them; None if unknown.
    """

    processes: list[Process]
    usage: Usage
    frozen: bool | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """CPU seconds of a sandbox `at` a time, which is in seconds since the boot.

    `used` is keyed by host pid and start of the process, also in seconds since the boot.
    """

    at: float
    total: float
    used: dict[tuple[int, float], float]

    @property
    def began(self) -> float:
        """The start of its first process."""
        return min((started for _, started in self.used), default=self.at)


@dataclass(frozen=True, slots=True)
class Earlier:
    """The last two measurements at a distance: one of them is old enough to compare with."""

    last: Times | None = None
    before: Times | None = None

    def base(self, at: float) -> Times | None:
        """The measurement to compare with at that time; None: the beginning."""
        if self.last is not None and at - self.last.at < LEAST_SECONDS:
            return self.before
        return self.last

    def followed_by(self, times: Times) -> "Earlier":
        """The measurements to compare with from now on."""
        if self.last is not None and times.at - self.last.at < LEAST_SECONDS:
            return self
        return Earlier(times, self.last)


def measure(
    container_id: str, pid: int | None, earlier: Earlier, host: HostPaths
) -> tuple[Measured, Earlier] | None:
    """Measures now; also returns the data for the next call. None: not visible.

    Blocks, so call it in a thread. `pid` is that of the container's first process, if known.
    """
    groups = find_groups(container_id, pid, host)
    if groups is None:
        return None
    try:
        measured, times = _look(groups, host)
        found = compared(measured, times, earlier.base(times.at))
    except (OSError, ValueError):
        return None  # it ended meanwhile
    return found, earlier.followed_by(times)


def compared(measured: Measured, times: Times, base: Times | None) -> Measured:
    """With percentages since the earlier measurement, or since the start without one."""

    def percent(used: float, since: float) -> float:
        return round(max(0.0, used) / max(times.at - since, LEAST_SECONDS) * 100, 1)

    began, total, known = (base.at, base.total, base.used) if base else (times.began, 0.0, {})
    processes = []
    for process, (key, used) in zip(measured.processes, times.used.items(), strict=True):
        # For a new process, the time since its start.
        share = percent(used - known.get(key, 0.0), began if key in known else max(began, key[1]))
        processes.append(replace(process, cpu_percent=share))
    usage = replace(measured.usage, cpu_percent=percent(times.total - total, began))
    return replace(measured, processes=processes, usage=usage)


def _look(groups: Groups, host: HostPaths) -> tuple[Measured, Times]:
    # The kernel may list one twice.
    pids = set(members(groups.pids.directory))
    looks = (_process(host.proc / str(pid)) for pid in sorted(pids)[:_MOST_PROCESSES] if pid)
    found = sorted((look for look in looks if look is not None), key=lambda look: look[0].pid)
    usage = read_usage(groups, len(pids))
    measured = Measured([process for process, _ in found], usage, _frozen(groups))
    used = {(process.host_pid, started): process.cpu_seconds for process, started in found}
    return measured, Times(time.clock_gettime(time.CLOCK_BOOTTIME), usage.cpu_seconds, used)


def _frozen(groups: Groups) -> bool | None:
    version, directory = groups.freezer
    try:
        if version == 2:
            return _keyed(directory / "cgroup.events")["frozen"] == 1
        return (directory / "freezer.state").read_text().strip() != "THAWED"
    except (OSError, KeyError):
        return None


def read_usage(groups: Groups, processes: int) -> Usage:
    """The usage without a percentage; `processes` if they are not counted. Raises: OSError."""
    version, directory = groups.cpu
    if version == 2:
        used = _keyed(directory / "cpu.stat")["usage_usec"] / 1e6
    else:
        used = int((directory / "cpuacct.usage").read_text()) / 1e9
    try:
        count = int((groups.pids.directory / "pids.current").read_text())
    except FileNotFoundError:
        count = processes
    return Usage(round(used, 6), 0.0, _memory(groups.memory), count)


def _memory(group: Group) -> int:
    if group.version == 2:
        total, cache = "memory.current", "inactive_file"
    else:
        total, cache = "memory.usage_in_bytes", "total_inactive_file"
    held = int((group.directory / total).read_text())
    # Pages that the kernel can drop on demand do not count as use.
    return max(0, held - _keyed(group.directory / "memory.stat").get(cache, 0))


def _keyed(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(value) for name, value in lines}


def _process(directory: Path) -> tuple[Process, float] | None:
    """The process of a /proc directory and its start, or None if it has ended."""
    try:
        stat = (directory / "stat").read_bytes()
        status = (directory / "status").read_bytes()
        with open(directory / "cmdline", "rb") as file:
            command = file.read(_MOST_ARGV_BYTES)
        return parse_process(int(directory.name), stat, status, command)
    except (OSError, ValueError, IndexError):  # an unreadable process must not hide the others
        return None


def parse_process(
    host_pid: int, stat: bytes, status: bytes, command: bytes
) -> tuple[Process, float]:
    """Parses `stat`, `status` and `cmdline`; also returns the start in seconds since the boot.

    Its name may contain anything. Raises: ValueError if they are not in the kernel's format.
    """
    name = stat[stat.index(b"(") + 1 : stat.rindex(b")")]
    fields = stat[stat.rindex(b")") + 2 :].split()
    argv = command.removesuffix(b"\0").split(b"\0") if command else []
    process = Process(
        pid=inner_pid(status) or host_pid,
        host_pid=host_pid,
        host_parent_pid=int(fields[1]),
        name=_text(name),
        argv=[_text(word) for word in argv],
        state=_STATES.get(fields[0].decode("ascii", "replace"), "ended"),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        cpu_percent=0.0,
        memory_bytes=max(0, int(fields[21])) * _PAGE_BYTES,
    )
    return process, int(fields[19]) / _TICKS


def inner_pid(status: bytes) -> int | None:
    """A process's pid in its own namespace, from its `status`; None if it is missing.

    The kernel escapes newlines in the name, but nothing else that could be mistaken for one.
    Raises: ValueError.
    """
    for line in status.split(b"\n"):
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
