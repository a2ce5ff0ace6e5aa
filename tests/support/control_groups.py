"""Control groups as the kernel shows them, in each arrangement of hosts, below another root."""

from pathlib import Path

from orchestrator.host.node.control_groups import HostPaths, mounts_of

ID = "c" * 64
# Where the drivers cgroupfs and systemd put a container, and an operator's `cgroup-parent`.
CGROUPFS, SYSTEMD = f"/docker/{ID}", f"/system.slice/docker-{ID}.scope"
PARENTED = (f"/agents/{ID}", f"/agents.slice/agents-low.slice/docker-{ID}.scope")

_TOGETHER = ("cpu,cpuacct", "blkio", "memory", "pids", "freezer", "name=systemd")
# The mounts of version 1 by their options, and where version 2 is mounted, if it is.
ARRANGEMENTS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "version 2": ((), ""),
    "version 1, each apart": (tuple(",".join(_TOGETHER).split(",")), None),
    "version 1": (_TOGETHER, None),
    "hybrid": (_TOGETHER, "unified"),
    # As with the kernel's option `cgroup_no_v1=memory,pids`.
    "hybrid, memory and pids in version 2": (("cpu,cpuacct", "freezer", "name=systemd"), "unified"),
}
# The files of a group of each controller with what they say: version 2's, and version 1's.
_SAID = {
    "cpuacct": (
        {"cpu.stat": "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n"},
        {"cpuacct.usage": "1500000000\n"},
    ),
    "memory": (
        {"memory.current": "9000\n", "memory.stat": "anon 5000\ninactive_file 1000\n"},
        {
            "memory.usage_in_bytes": "9000\n",
            "memory.stat": "cache 1\ntotal_inactive_file 1000\n",
        },
    ),
    "pids": ({"pids.current": "3\n"}, {"pids.current": "3\n"}),
    "freezer": ({"cgroup.events": "populated 1\nfrozen 1\n"}, {"freezer.state": "FROZEN\n"}),
}


def write(path: Path, content: str | bytes) -> None:
    """Writes a file and makes its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


class ControlGroups:
    """The mounted hierarchies of one arrangement, and the host that has them."""

    def __init__(self, root: Path, arrangement: str, seen: str = "/") -> None:
        """`seen` is the group at the mount points, as a container sees its own on some hosts."""
        mounts, unified = ARRANGEMENTS[arrangement]
        self._seen = seen
        self._points = {mount: root / "cgroup" / mount.removeprefix("name=") for mount in mounts}
        self._unified = None if unified is None else root / "cgroup" / unified
        self.root = root / "cgroup"
        write(root / "proc/self/mountinfo", self._mountinfo())
        self.host = HostPaths(root / "proc", mounts_of(self._mountinfo().encode()))

    def _mountinfo(self) -> str:
        lines = ["31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755"]
        tail = "rw,nosuid,nodev,noexec,relatime shared:9 -"
        for number, (options, point) in enumerate(self._points.items(), 32):
            place = _escaped(point)
            lines.append(
                f"{number} 31 0:{number} {self._seen} {place} {tail} cgroup cgroup rw,{options}"
            )
        if self._unified is not None:
            place = _escaped(self._unified)
            lines.append(f"60 31 0:60 {self._seen} {place} {tail} cgroup2 cgroup2 rw,nsdelegate")
        return "\n".join(lines) + "\n"

    def version(self, controller: str) -> int:
        """The version that has this controller."""
        return 1 if self._point(controller) is not None else 2

    def group(self, controller: str, path: str) -> Path:
        """The directory of a group of this controller."""
        point = self._point(controller) or self._unified
        assert point is not None
        return point / path.lstrip("/")

    def membership(self, path: str) -> str:
        """The `cgroup` file of a process in this group of each hierarchy."""
        lines = [f"{number}:{options}:{path}" for number, options in enumerate(self._points, 1)]
        controls = self._unified is not None and self.version("memory") == 2
        if self._unified is not None:
            # Without controllers, engines leave a container's processes in the root group.
            lines.append(f"0::{path if controls else '/'}")
        return "\n".join(reversed(lines)) + "\n"

    def container(self, path: str, pids: list[int]) -> None:
        """Makes a container's groups, which are frozen and have used something."""
        for controller, said in _SAID.items():
            directory = self.group(controller, path)
            write(directory / "cgroup.procs", "".join(f"{pid}\n" for pid in pids))
            for name, text in said[self.version(controller) == 1].items():
                write(directory / name, text)

    def _point(self, controller: str) -> Path | None:
        found = (point for each, point in self._points.items() if controller in each.split(","))
        return next(found, None)


def _escaped(path: Path) -> str:
    return str(path).replace(" ", "\\040")
