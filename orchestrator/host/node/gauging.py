"""What many sandboxes and the host use, in one look that reads no process."""

import time
from collections.abc import Mapping
from pathlib import Path

from orchestrator.host.node.base import Gauged
from orchestrator.host.node.processes import THIS_HOST, HostPaths, Usage, find_groups, read_usage
from orchestrator.host.node.resources import load


def gauge(
    containers: Mapping[str, int | None], state_dir: Path, host: HostPaths = THIS_HOST
) -> Gauged:
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
