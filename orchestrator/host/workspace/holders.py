"""The users of a workspace's file system on the host: errors name them, so that they can be ended.

A container that starts has copies of all mounts for a moment. A shell, a backup program or another
mount namespace may have one for longer.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from orchestrator.ground.errors import ConflictError
from orchestrator.host.workspace.mounts import lines_of, unescape

_PROC = Path("/proc")
# The most that are named, and the most processes and descriptors of each that are examined.
_MOST_NAMED, _MOST_PROCESSES, _MOST_DESCRIPTORS = 3, 4096, 512


class WorkspaceInUseError(ConflictError):
    """The workspace can't be resized, because something on the host uses its file system."""

    def __init__(self, holders: list[str]) -> None:
        """`holders` is what `holders_of` returned."""
        named = ", ".join(holders) or "a process that can't be seen from here"
        super().__init__(
            "the workspace's size can't be changed while something on the host uses its files: "
            f"{named}"
        )


def holders_of(device: int, proc: Path = _PROC) -> list[str]:
    """The processes that use the file system with this `st_dev`, or have it mounted elsewhere.

    One process stands for all of its mount namespace. Blocks; this process is left out.
    """
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    own = _link(proc / "self/ns/mnt")
    seen, found = {own}, list(_mounted_elsewhere(proc / "self/mountinfo", number))
    for pid in _pids(proc):
        process = proc / str(pid)
        namespace = _link(process / "ns/mnt")
        mounted = namespace is not None and namespace not in seen
        seen.add(namespace)
        if (mounted and _has_mount(process / "mountinfo", number)) or _uses(process, device):
            found.append(f"{_name(process)} (process {pid})")
        if len(found) >= _MOST_NAMED:
            break
    return found


def _pids(proc: Path) -> list[int]:
    numbers = sorted(int(each.name) for each in proc.iterdir() if each.name.isdigit())
    return [pid for pid in numbers if pid != os.getpid()][-_MOST_PROCESSES:]


def _uses(process: Path, device: int) -> bool:
    """Whether its directory or one of its files is there."""
    return any(_device(each) == device for each in (process / "cwd", *_files(process / "fd")))


def _files(directory: Path) -> Iterator[Path]:
    try:
        yield from list(directory.iterdir())[:_MOST_DESCRIPTORS]
    except OSError:  # it has ended
        return


def _device(path: Path) -> int | None:
    try:
        return path.stat().st_dev
    except OSError:
        return None


def _has_mount(mountinfo: Path, number: bytes) -> bool:
    return any(True for _ in _lines_with(mountinfo, number))


def _mounted_elsewhere(mountinfo: Path, number: bytes) -> Iterator[str]:
    """Other mount points of it in this process's own namespace."""
    for line in _lines_with(mountinfo, number):
        yield f"the mount at {os.fsdecode(unescape(line[4]))}"


def _lines_with(mountinfo: Path, number: bytes) -> Iterator[list[bytes]]:
    try:
        text = mountinfo.read_bytes()
    except OSError:
        return
    for line in lines_of(text):
        fields = line.split(b" ")
        if len(fields) > 4 and fields[2] == number:
            yield fields


def _link(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()[:64] or "a process"
    except OSError:
        return "a process"
