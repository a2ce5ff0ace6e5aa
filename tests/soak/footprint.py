"""What a control plane and its sessions occupy on the host."""

import os
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.support.leaks import containers, left_behind, workspaces_left

_MB = 1_000_000
# How much more there may be at the end, however long the run was. Threads and the descriptors of
# connections appear when they are first needed; memory includes the allocator's slack.
SLACK = {"memory_mb": 24, "descriptors": 12, "threads": 8, "disk_mb": 64}


class Footprint(NamedTuple):
    """Figures of one moment. `record_mb` grows by design: it is the record of what was done."""

    memory_mb: float
    descriptors: int
    threads: int
    containers: int
    mounts: int
    loop_devices: int
    directories: int
    disk_mb: float
    record_mb: float


def footprint(state_dir: Path, pid: int) -> Footprint:
    """Measures it; blocks until the kernel has freed the loop devices that nothing uses."""
    own = psutil.Process(pid)
    sandboxes, workspaces = left_behind(state_dir), workspaces_left(state_dir)
    return Footprint(
        memory_mb=own.memory_info().rss / _MB,
        descriptors=own.num_fds(),
        threads=own.num_threads(),
        containers=len(containers(state_dir)),
        mounts=len(sandboxes["mounts"]) + len(workspaces["mounts"]),
        loop_devices=len(workspaces["loop devices"]),
        directories=len(sandboxes["directories"] + workspaces["slots"] + workspaces["links"]),
        disk_mb=_disk(state_dir, record=False) / _MB,
        record_mb=_disk(state_dir, record=True) / _MB,
    )


def grown(start: Footprint, end: Footprint) -> list[str]:
    """What there is more of at the end, beyond the slack; `record_mb` does not count."""
    found = []
    for name, before, after in zip(Footprint._fields, start, end, strict=True):
        if name != "record_mb" and after > before + SLACK.get(name, 0):
            found.append(f"{name}: {before:.4g} at the start, {after:.4g} at the end")
    return found


def _disk(state_dir: Path, *, record: bool) -> int:
    """Bytes allocated in the state directory: of the record with its index, or of all else."""
    total = 0
    for directory, names, files in os.walk(state_dir):
        names[:] = [name for name in names if not os.path.ismount(os.path.join(directory, name))]
        for name in files:
            if name.startswith(("paddock.db", "search.db")) == record:
                try:
                    total += 512 * os.lstat(os.path.join(directory, name)).st_blocks
                except FileNotFoundError:  # removed meanwhile
                    continue
    return total
