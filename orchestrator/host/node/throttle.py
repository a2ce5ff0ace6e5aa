"""Whether this host's kernel can limit the rate of a sandbox's use of one block device.

| control groups | how the rate is set                                                           |
|----------------|-------------------------------------------------------------------------------| |
version 2      | `io.max` of the container's group, which includes writes of the page cache    | |
version 1      | the device's rates in the root group, which contains the sandbox's processes  |

In version 1 the kernel itself, in the root group, writes back the page cache. One rate therefore
covers all use of a device only if its users are in the root group, too.
"""

import os
from pathlib import Path

from orchestrator.host.node.control_groups import UNIFIED, Mounts, root_of, this_host

_READ, _WRITE = "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"
_DEVICES = Path("/sys/dev/block")


def can_throttle(mounts: Mounts | None = None) -> bool:
    """Whether such rates exist: for a device, in the root group or in the groups below it.

    `mounts` are those of control groups, None for this host's.
    """
    known = _known(mounts)
    if root_group(known) is not None:
        return True
    unified = known.get(UNIFIED)
    if unified is None:
        return False
    try:
        controllers = (unified.point / "cgroup.controllers").read_text().split()
        enabled = (unified.point / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    if "io" not in controllers:
        return False
    # Some kernels count only. Until the controller is enabled for a group, nothing shows whether
    # this one does; an engine that then finds no `io.max` starts no container with a rate.
    return "io" not in enabled or any(unified.point.glob("*/io.max"))


def root_group(mounts: Mounts | None = None) -> Path | None:
    """The root group of block devices in version 1, if it is in use."""
    group = root_of(_known(mounts), "blkio")
    return group if group is not None and (group / _WRITE).exists() else None


def _known(mounts: Mounts | None) -> Mounts:
    return this_host().mounts if mounts is None else mounts


def device_of(path: Path) -> str:
    """The block device of the file system that contains `path`, as `major:minor`.

    Raises: OSError.
    """
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def node_of(device: str, devices: Path = _DEVICES) -> str:
    """The device's file in /dev. Raises: OSError if it is not a block device."""
    return f"/dev/{os.path.basename(os.readlink(devices / device))}"


def held(device: str, mounts: Mounts | None = None) -> bool:
    """Whether the root group has a rate for it, even one of a sandbox that is gone."""
    group = root_group(mounts)
    if group is None:
        return False
    lines = [line for name in (_READ, _WRITE) for line in (group / name).read_text().splitlines()]
    return any(line.split()[0] == device for line in lines)
