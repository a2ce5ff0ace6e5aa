"""What this host has left, and what its sandboxes use. Every call blocks."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from orchestrator.host.node.base import Gauged, Load, Resources
from orchestrator.host.node.control_groups import HostPaths, find_groups
from orchestrator.host.node.processes import Usage, read_usage

_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def resources(state_dir: Path) -> Resources:
    """The available memory, and the free space where workspaces are kept. Raises: OSError."""
    return Resources(psutil.virtual_memory().available, psutil.disk_usage(str(state_dir)).free)


def load(state_dir: Path) -> Load:
    """The host's load; the disk is that of the state directory. Raises: OSError."""
    times, memory = psutil.cpu_times(), psutil.virtual_memory()
    disk = psutil.disk_usage(str(state_dir))
    return Load(
        cpu_seconds={mode: getattr(times, mode, 0.0) for mode in _CPU_MODES},
        cpus=psutil.cpu_count() or 1,
        memory_bytes=memory.total,
        free_memory_bytes=memory.available,
        disk_bytes=disk.total,
        free_disk_bytes=disk.free,
    )


def free_bytes(directory: Path) -> int:
    """The free bytes on the directory's disk. Raises: OSError."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def gauge(containers: Mapping[str, int | None], state_dir: Path, host: HostPaths) -> Gauged:
    """Reads the control groups of containers, given with their first pid where it is known.

    Blocks, so call it in a thread. Raises: OSError if the host can't be read.
    """
    found = {container: _usage(container, pid, host) for container, pid in containers.items()}
    usages = {container: usage for container, usage in found.items() if usage is not None}
    return Gauged(time.monotonic(), load(state_dir), usages)


def _usage(container_id: str, pid: int | None, host: HostPaths) -> Usage | None:
    groups = find_groups(container_id, pid, host)
    try:
        return None if groups is None else read_usage(groups, 0)
    except (OSError, ValueError, KeyError):
        return None  # it ended meanwhile
