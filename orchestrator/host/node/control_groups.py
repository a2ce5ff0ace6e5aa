"""Where the control groups of containers are, in each arrangement that hosts have.

| host      | mounts                                                                             |
|-----------|------------------------------------------------------------------------------------|
| version 2 | one, with all controllers                                                          |
| version 1 | one for each controller, or for several together                                   |
| hybrid    | those of version 1, and one of version 2 with the controllers that are not mounted |

The kernel's list of mounts decides, so no path is assumed: neither the mount points, nor the
parents that an engine's driver or the operator has chosen for a container.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from orchestrator.host.workspace.mounts import lines_of, unescape

# The key of version 2's hierarchy, as in a process's `cgroup` file.
UNIFIED = ""
_CONTROLLERS = ("cpuacct", "memory", "pids", "freezer")
_TYPES = {b"cgroup": 1, b"cgroup2": 2}
_ROOT = "/"


class Mount(NamedTuple):
    """A mounted hierarchy: its version, the group that is at the mount point, and that point."""

    version: int
    group: str
    point: Path


# The hierarchies by controller (version 1), by `name=…`, and by `UNIFIED`.
Mounts = Mapping[str, Mount]


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where the kernel shows processes and control groups; other places for tests."""

    proc: Path = Path("/proc")
    mounts: Mounts = field(default_factory=dict)


class Group(NamedTuple):
    """A directory of a control group, and the version that decides the names of its files."""

    version: int
    directory: Path


@dataclass(frozen=True, slots=True)
class Groups:
    """The directories of a sandbox's control group by what they say; some are the same."""

    cpu: Group
    memory: Group
    pids: Group
    freezer: Group


def this_host(proc: Path = Path("/proc")) -> HostPaths:
    """The host as this process sees it. Raises: OSError."""
    return HostPaths(proc, mounts_of((proc / "self" / "mountinfo").read_bytes()))


def mounts_of(mountinfo: bytes) -> dict[str, Mount]:
    """The mounts of control groups in a `mountinfo` file.

    If a hierarchy is mounted more than once, the mount with the most of it counts.
    """
    found: dict[str, Mount] = {}
    for line in lines_of(mountinfo):
        before, _, after = line.partition(b" - ")
        kind, _, more = after.partition(b" ")
        version = _TYPES.get(kind)
        if version is None:
            continue
        fields = before.split(b" ")
        group, point = (unescape(each).decode(errors="surrogateescape") for each in fields[3:5])
        mount = Mount(version, group, Path(point))
        options = more.rpartition(b" ")[2].decode(errors="replace").split(",")
        for controller in [UNIFIED] if version == 2 else options:
            known = found.get(controller)
            if known is None or len(group) <= len(known.group):
                found[controller] = mount
    return found


def directory_of(mount: Mount, path: str) -> Path | None:
    """The directory of a group, given by its path in the hierarchy; None if it is not mounted."""
    if mount.group == _ROOT:
        return mount.point / path.lstrip("/")
    if path == mount.group or path.startswith(f"{mount.group}/"):
        return mount.point / path[len(mount.group) :].lstrip("/")
    return None


def root_of(mounts: Mounts, controller: str) -> Path | None:
    """The root group of a controller of version 1; None if it is not mounted or only in part."""
    mount = mounts.get(controller)
    return mount.point if mount is not None and mount.group == _ROOT else None


def group_paths(text: str) -> dict[str, str]:
    """A process's control groups by controller, from its `cgroup` file; version 2's key is ''.

    Paths outside this process's own view are left out.
    """
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if ".." not in path.split("/"):
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def find_groups(container_id: str, pid: int | None, host: HostPaths) -> Groups | None:
    """A container's control group: its first process's, or one at the engines' usual paths."""
    for paths in _candidates(container_id, pid, host):
        found = [_group(controller, paths, host.mounts) for controller in _CONTROLLERS]
        cpu, memory, pids, freezer = found
        if cpu is None or memory is None or pids is None or freezer is None:
            continue
        if all((each.directory / "cgroup.procs").exists() for each in (cpu, pids)):
            return Groups(cpu, memory, pids, freezer)
    return None


def groups_of(container_id: str, paths: Mapping[str, str], host: HostPaths) -> Iterator[Path]:
    """The container's groups of which a process with these paths is a member, by hierarchy."""
    for controller, path in _named(container_id, paths).items():
        mount = host.mounts.get(controller)
        directory = None if mount is None else directory_of(mount, path)
        if directory is not None and (directory / "cgroup.procs").exists():
            yield directory


def members(directory: Path) -> Iterator[int]:
    """The processes of a control group and of its descendants. Raises: OSError, ValueError."""
    for file in (directory / "cgroup.procs", *directory.glob("*/**/cgroup.procs")):
        with suppress(FileNotFoundError):
            yield from map(int, file.read_text().split())


def _candidates(container_id: str, pid: int | None, host: HostPaths) -> Iterator[Mapping[str, str]]:
    if pid:
        # It may have ended, or be in a namespace that is not visible here.
        with suppress(OSError):
            text = (host.proc / str(pid) / "cgroup").read_text()
            yield _named(container_id, group_paths(text))
    # By the drivers cgroupfs and systemd.
    for path in (f"/docker/{container_id}", f"/system.slice/docker-{container_id}.scope"):
        yield dict.fromkeys((UNIFIED, *_CONTROLLERS), path)


def _named(container_id: str, paths: Mapping[str, str]) -> dict[str, str]:
    """The paths up to the part that names the container: below it are groups of its own."""
    found = {}
    for controller, path in paths.items():
        parts = path.split("/")
        named = next((n for n, part in enumerate(parts) if container_id in part), None)
        if named is not None:
            found[controller] = "/".join(parts[: named + 1])
    return found


def _group(controller: str, paths: Mapping[str, str], mounts: Mounts) -> Group | None:
    """A controller is in version 2 if version 1 has not mounted it."""
    key = controller if controller in mounts else UNIFIED
    mount, path = mounts.get(key), paths.get(key)
    if mount is None or path is None:
        return None
    directory = directory_of(mount, path)
    return None if directory is None else Group(mount.version, directory)
