"""Freezes and thaws a container by its control group, in a fiftieth of the time an engine takes.

The engine does not know of it, so only what ends soon is frozen so: a pause is the engine's, which
remembers it. The calls block, so use a thread.
"""

import select
import time
from pathlib import Path

from orchestrator.host.node.container_kill import FirstProcess
from orchestrator.host.node.control_groups import Group, HostPaths, find_groups

# Version 1 announces no change of the state, so it is looked at.
_LOOK_SECONDS = 0.001


def freeze(container_id: str, first: FirstProcess | None, host: HostPaths, seconds: float) -> bool:
    """Whether this call has frozen every process of the container, within that time.

    False if its control group can't be changed here, or was frozen by somebody else. What is not
    frozen in time goes on to be frozen until `thaw`. Raises: OSError.
    """
    group = _freezer(container_id, first, host)
    if group is None or is_frozen(group):
        return False
    try:
        _write(group, frozen=True)
    except PermissionError:
        return False  # as in a container that sees the hierarchy only
    return _await_frozen(group, time.monotonic() + seconds)


def thaw(container_id: str, first: FirstProcess | None, host: HostPaths) -> bool:
    """Lets every process of the container continue; whether any was frozen. Raises: OSError."""
    group = _freezer(container_id, first, host)
    if group is None or not is_frozen(group):
        return False
    _write(group, frozen=False)
    return True


def is_frozen(group: Group) -> bool:
    """Whether its processes are frozen, or about to be. Raises: OSError."""
    if group.version == 2:
        return _text(group.directory / "cgroup.freeze") == "1"
    return _text(group.directory / "freezer.state") != "THAWED"


def _freezer(container_id: str, first: FirstProcess | None, host: HostPaths) -> Group | None:
    groups = find_groups(container_id, None if first is None else first.pid, host)
    return None if groups is None or not groups.freezer.directory.is_dir() else groups.freezer


def _write(group: Group, *, frozen: bool) -> None:
    if group.version == 2:
        (group.directory / "cgroup.freeze").write_text("1" if frozen else "0")
    else:
        (group.directory / "freezer.state").write_text("FROZEN" if frozen else "THAWED")


def _await_frozen(group: Group, until: float) -> bool:
    if group.version == 2:
        return _await_event(group.directory / "cgroup.events", until)
    while _text(group.directory / "freezer.state") != "FROZEN":
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _await_event(events: Path, until: float) -> bool:
    with events.open() as file:
        changed = select.poll()
        changed.register(file, select.POLLPRI)
        while "frozen 1" not in file.read().splitlines():
            left = until - time.monotonic()
            if left < 0:
                return False
            changed.poll(left * 1000)
            file.seek(0)
    return True


def _text(file: Path) -> str:
    return file.read_text().strip()
