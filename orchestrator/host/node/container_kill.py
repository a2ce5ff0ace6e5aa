"""Kills a container's processes without its engine: by its control group or its first process.

Both are looked up while the engine answers, and stay known. The calls block, so use a thread.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.host.node.control_groups import (
    HostPaths,
    find_groups,
    group_paths,
    groups_of,
    members,
)
from orchestrator.host.node.processes import inner_pid


@dataclass(frozen=True, slots=True)
class FirstProcess:
    """The first process of a container, with which all others end.

    `started` is in clock ticks since the boot; together with the pid it is unique. `groups` are the
    directories of its control groups, each of which has all its processes.
    """

    pid: int
    started: int
    groups: tuple[Path, ...]


def first_process(container_id: str, pid: int, host: HostPaths) -> FirstProcess | None:
    """The facts about a first process; None if it has ended or is not visible here.

    Its control group is looked up in the kernel, so the settings of engine and operator do not
    matter.
    """
    try:
        started = _started(pid, host)
        paths = group_paths((host.proc / str(pid) / "cgroup").read_text())
        if _started(pid, host) != started:
            return None
    except (OSError, ValueError):
        return None
    return FirstProcess(pid, started, tuple(groups_of(container_id, paths, host)))


def is_there(first: FirstProcess, host: HostPaths) -> bool:
    """Whether it still runs: no other process has got its number."""
    try:
        return _started(first.pid, host) == first.started
    except (OSError, ValueError):
        return False


def kill_all(
    container_id: str,
    first: FirstProcess | None,
    host: HostPaths,
    *,
    spare_first: bool = False,
) -> int:
    """Kills every known process of a container; returns how many. Raises: OSError.

    The container's first process is among them, and all others end with it, so none can be created
    meanwhile and survive. `spare_first` kills only the others. Only processes in a control group of
    the container, or its first process, are killed.
    """
    killed = 0
    for directory in _known_groups(container_id, first, host):
        pids = list(members(directory))
        for pid in filter(None, pids):  # 0: in a namespace that is not visible here
            if not (spare_first and _is_first(pid, first, host)):
                killed += _kill_member(pid, container_id, host)
        if pids:
            break
    if first is not None and not spare_first:
        killed += _kill_first(first, host)
    return killed


def _known_groups(container_id: str, first: FirstProcess | None, host: HostPaths) -> Iterator[Path]:
    if first is not None:
        yield from first.groups
    usual = find_groups(container_id, None, host)
    if usual is not None:
        yield usual.pids.directory


def _kill_member(pid: int, container_id: str, host: HostPaths) -> bool:
    """Kills a process if it is still in a control group of the container."""
    with suppress(ProcessLookupError, FileNotFoundError):
        descriptor = os.pidfd_open(pid)
        try:
            # Read after opening the descriptor: it refers to the same process, or the process has
            # ended.
            if container_id in (host.proc / str(pid) / "cgroup").read_text():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def _kill_first(first: FirstProcess, host: HostPaths) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        descriptor = os.pidfd_open(first.pid)
        try:
            if _started(first.pid, host) == first.started:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def _started(pid: int, host: HostPaths) -> int:
    """The start time of a process. Raises: OSError, ValueError."""
    stat = (host.proc / str(pid) / "stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _is_first(pid: int, first: FirstProcess | None, host: HostPaths) -> bool:
    """Whether it is process 1 in its namespace; unknown for an ended process."""
    if first is not None and first.pid == pid:
        return True
    try:
        return inner_pid((host.proc / str(pid) / "status").read_bytes()) == 1
    except (OSError, ValueError):
        return False
