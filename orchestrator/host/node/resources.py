"""Memory, disk and CPU time of this host. Blocks for as long as the disk takes."""

import os
from pathlib import Path

import psutil

from orchestrator.host.node.base import Load, Resources

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
