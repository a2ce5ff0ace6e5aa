"""The parts of the host's kernel that a container can't see, and limits of those that it uses."""

import resource
from typing import Any

from orchestrator.host.engine.base import Limits

# The paths that engines mask by default. A list in the request replaces them.
_USUAL = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
# The kernel's reports on all block devices and file systems: they would reveal every workspace's
# path and its reads and writes. Also the host's command line, modules, users and pressure.
_HOST_WIDE = (
    "/proc/cmdline",
    "/proc/diskstats",
    "/proc/fs",
    "/proc/key-users",
    "/proc/locks",
    "/proc/mdstat",
    "/proc/modules",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/swaps",
    "/sys/block",
    "/sys/class/bdi",
    "/sys/class/block",
    "/sys/dev/block",
    "/sys/devices/virtual/bdi",
    "/sys/devices/virtual/block",
    "/sys/fs/btrfs",
    "/sys/fs/ext4",
    "/sys/fs/f2fs",
    "/sys/fs/xfs",
    "/sys/kernel/debug",
    "/sys/kernel/slab",
)
HIDDEN = (*_USUAL, *_HOST_WIDE)
# The host has 4,096 pseudo-terminals, of which all sandboxes together can use three quarters.
MOST_TERMINALS = 32


def kernel_objects(limits: Limits) -> dict[str, str]:
    """Settings of the container's IPC namespace, whose objects would outlive their command.

    Segments disappear with their last process, and use no more than the shared memory limit.
    """
    return {
        "kernel.shm_rmid_forced": "1",
        "kernel.shmall": str(limits.shm_bytes // resource.getpagesize()),
        "kernel.msgmni": "32",
        "kernel.sem": "250 8000 32 32",
    }


def terminals() -> dict[str, Any]:
    """The mount of the container's pseudo-terminals; it disappears with the container."""
    options = f"newinstance,ptmxmode=0666,mode=0620,gid=5,max={MOST_TERMINALS},nosuid,noexec"
    return {
        "Type": "volume",
        "Target": "/dev/pts",
        "VolumeOptions": {
            "NoCopy": True,
            "DriverConfig": {
                "Name": "local",
                "Options": {"type": "devpts", "device": "devpts", "o": options},
            },
        },
    }
