"""Checks that this process can mount workspaces with flags that take effect in sandboxes."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.check import Check, failure, ok
from orchestrator.ground.errors import PaddockError
from orchestrator.host.workspace import mounts

MOUNTS = "mounts"
PROPAGATION = "propagation"
_FLAGS = frozenset({"noexec", "nosuid", "nodev"})
_UNSEEN = (
    "run it on the machine itself, or mount the chroot's directory onto itself before "
    "(`mount --bind DIR DIR`)"
)


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A line of a mountinfo file."""

    point: str
    options: frozenset[str]
    shared: bool
    type: str


class UnseenMountsError(PaddockError):
    """This process does not see the mounts that it has."""


def own_mounts() -> bytes:
    """This process's mountinfo file; empty where there is none, as without `/proc`."""
    try:
        return Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return b""


def check_proc(proc: Path = Path("/proc")) -> Check:
    """Whether this process sees the machine's processes, without which nothing can be examined."""
    if (proc / "self").exists():
        return ok(MOUNTS, f"{proc} is mounted")
    return failure(
        MOUNTS, f"{proc} is not mounted, so nothing can be examined", f"mount -t proc proc {proc}"
    )


def check_mounts(state_dir: Path) -> Check:
    """Mounts a test directory like a workspace, checks its flags, and removes it."""
    remedy = "run as root, or give the control plane's container SYS_ADMIN and apparmor:unconfined"
    try:
        with tempfile.TemporaryDirectory(dir=existing(state_dir), prefix=".doctor-") as name:
            source, target = Path(name, "source"), Path(name, "target")
            source.mkdir()
            target.mkdir()
            try:
                mounts.bind(str(source), str(target), noexec=True)
                made = mount_of(own_mounts(), str(target))
            finally:
                mounts.unmount(str(target))
    except UnseenMountsError as error:
        return failure(MOUNTS, error.detail, _UNSEEN)
    except PaddockError as error:
        return failure(MOUNTS, error.detail, remedy)
    except OSError as error:
        return failure(MOUNTS, f"{state_dir}: {error.strerror}", remedy)
    missing = sorted(_FLAGS - made.options)
    if missing:
        return failure(MOUNTS, f"a mount was made without {', '.join(missing)}", remedy)
    return ok(MOUNTS, "workspaces can be mounted with noexec, nosuid and nodev")


def check_propagation(state_dir: Path) -> Check:
    """Whether the engine sees mounts made in the state directory."""
    mountinfo = own_mounts()
    path = os.path.realpath(existing(state_dir))
    try:
        return propagation_check(mount_of(mountinfo, path), apart=apart(mountinfo))
    except UnseenMountsError as error:
        return failure(PROPAGATION, error.detail, _UNSEEN)


def starts_programs(directory: Path) -> bool:
    """Whether programs there can be started: not on a file system that is mounted noexec."""
    return not os.statvfs(directory).f_flag & os.ST_NOEXEC


def apart(mountinfo: bytes) -> bool:
    """Whether this process sees other files than the host: in a container, or in a chroot."""
    root = _mount_of(mountinfo, "/")
    return _own_namespace() or root is None or root.type == "overlay"


def propagation_check(mount: MountPoint, *, apart: bool) -> Check:
    """`apart` is as the function of that name says."""
    if not apart:
        return ok(PROPAGATION, "the engine has the same mounts as this process")
    if mount.shared:
        return ok(PROPAGATION, f"{mount.point} is a shared mount: the engine sees what is mounted")
    return failure(
        PROPAGATION,
        f"{mount.point} is not a shared mount: sandboxes would not see their workspaces' flags",
        "bind the state directory with rshared propagation, from a shared mount on the host "
        "(`mount --bind DIR DIR; mount --make-shared DIR`)",
    )


def mount_of(mountinfo: bytes, path: str) -> MountPoint:
    """The mount that contains a path. Raises: UnseenMountsError if the file lists none."""
    found = _mount_of(mountinfo, path)
    if found is None:
        raise UnseenMountsError(f"no mount contains {path}: this is a chroot without its mounts")
    return found


def _mount_of(mountinfo: bytes, path: str) -> MountPoint | None:
    best = None
    for line in mounts.lines_of(mountinfo):
        mount = _parse(line)
        below = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # The last of several mounts at one point covers the others.
        if below and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _parse(line: bytes) -> MountPoint:
    before, _, after = line.partition(b" - ")
    fields = before.split(b" ")
    return MountPoint(
        os.fsdecode(mounts.unescape(fields[4])),
        frozenset(fields[5].decode("ascii", "replace").split(",")),
        any(field.startswith(b"shared:") for field in fields[6:]),
        after.split(b" ")[0].decode("ascii", "replace"),
    )


def existing(path: Path) -> Path:
    """The path, or its nearest existing parent directory."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _own_namespace() -> bool:
    """Whether the first process that this one sees has other mounts."""
    try:
        return os.readlink("/proc/self/ns/mnt") != os.readlink("/proc/1/ns/mnt")
    except OSError:
        return False
