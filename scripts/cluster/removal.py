"""Removes a cluster: found by what there is, not by what anybody has written down.

So it works whatever ended before it, and can be run again and again.
"""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from orchestrator.host.workspace.mounts import mounts_under, unmount
from scripts.cluster import gateways, network
from scripts.cluster.database import Database
from scripts.cluster.layout import ClusterError, Layout
from scripts.cluster.machines import starting

_GROUPS = Path("/sys/fs/cgroup")
_LOOPS = Path("/sys/block")
# A busy kernel ends hundreds of processes and frees their control groups and devices.
_SECONDS = 300


def remove(layout: Layout) -> None:
    """Ends every process of the cluster and removes all that it has made.

    Raises: ClusterError naming what is still there.
    """
    for process in gateways.processes(layout.gateways):
        process.kill()
    end_machines(layout, layout.directory)
    Database(layout.database_directory, "", 0).remove()
    network.remove(layout)
    for mount in sorted(mounts_under(str(layout.directory)), key=len, reverse=True):
        unmount(mount)
    _until_none(lambda: _detached(layout.directory))
    _until_none(lambda: _removed_groups(layout))
    if layout.directory.exists():
        command = ["rm", "-rf", "--one-file-system", "--", str(layout.directory)]
        subprocess.run(command, check=False, timeout=_SECONDS)
    still = left(layout)
    if still:
        raise ClusterError(f"still there: {', '.join(still)}; run it again")


def end_machines(layout: Layout, directory: Path) -> None:
    """Ends the machines in this directory, as a loss of power would. Raises: ClusterError."""

    def ended() -> list[str]:
        found = starting(directory)
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        # The first version of control groups lets no signal through to what is frozen.
        for state in _GROUPS.glob(f"freezer/{layout.control_group}/**/freezer.state"):
            try:
                state.write_text("THAWED")
            except OSError:
                continue  # it ended
        psutil.wait_procs(found, timeout=1)
        return [str(process.pid) for process in found if process.is_running()]

    _until_none(ended)


def left(layout: Layout) -> list[str]:
    """Everything of the cluster that exists, each in a few words."""
    directory, database = layout.directory, layout.database_directory
    processes = [
        *starting(directory),
        *gateways.processes(layout.gateways),
        *Database(database, "", 0).processes(),
    ]
    return [
        *(f"process {process.pid}" for process in processes),
        *network.left(layout),
        *mounts_under(str(directory)),
        *(f"/dev/{path.name}" for path in _devices(directory)),
        *(str(path) for path in _groups(layout)),
        *(str(path) for path in (directory, database) if path.exists()),
    ]


def _detached(directory: Path) -> list[str]:
    """Asks for the end of the loop devices of files there, and returns those that are in use."""
    found = [f"/dev/{path.name}" for path in _devices(directory)]
    for device in found:
        command = ["losetup", "--detach", device]
        subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
    return [f"/dev/{path.name}" for path in _devices(directory)]


def _devices(directory: Path) -> list[Path]:
    found = []
    for device in _LOOPS.glob("loop*"):
        try:
            file = (device / "loop/backing_file").read_text().strip()
        except OSError:
            continue  # it has none
        if Path(file.removesuffix(" (deleted)")).is_relative_to(directory):
            found.append(device)
    return found


def _removed_groups(layout: Layout) -> list[str]:
    """Removes the control groups that have no process, and returns the others."""
    for top in _groups(layout):
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                continue  # its last process is ending
    return [str(path) for path in _groups(layout)]


def _groups(layout: Layout) -> list[Path]:
    """In each hierarchy of the first version of control groups, or in the only one."""
    name = layout.control_group
    return [path for path in (_GROUPS / name, *_GROUPS.glob(f"*/{name}")) if path.is_dir()]


def _until_none(step: Callable[[], list[str]]) -> None:
    """Repeats a step that returns what is left to do. Raises: ClusterError."""
    deadline = time.monotonic() + _SECONDS
    while still := step():
        if time.monotonic() > deadline:
            raise ClusterError(f"still there after {_SECONDS} s: {', '.join(still)}")
        time.sleep(0.05)  # the kernel frees them when it comes to it
