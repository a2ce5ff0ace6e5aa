"""The directory of one sandbox on the host: control socket, mount points, files for /etc."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from orchestrator.host.workspace import mounts, overlay, root_layer
from orchestrator.host.workspace.id_map import namespace
from orchestrator.host.workspace.staging_area import StagingArea
from orchestrator.settings.resolvers import resolv_conf
from sandbox_agent.decide.protocol import (
    EGRESS_SOCKET_NAME,
    PORTS_SOCKET_NAME,
    QUESTIONS_SOCKET_NAME,
)

# The only files in a run directory; nothing else is ever removed from it. Earlier versions created
# boot.json.
RUN_FILES = ("control.sock", "boot.json")


class Shared(NamedTuple):
    """A host directory for the sandbox, at its real path."""

    source: str
    read_only: bool


class MountedVolume(NamedTuple):
    """A volume for the sandbox: its files belong to `stored_uid`, and appear as those of `uid`."""

    slot: str
    data: Path
    stored_uid: int
    uid: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class SandboxDirectory:
    """Paths below `<state>/sandboxes/<16 hex>`; the name is also the sandbox's."""

    path: Path

    @property
    def name(self) -> str:
        """16 hex digits: short, because a socket's path may have 107 bytes only."""
        return self.path.name

    @property
    def run(self) -> Path:
        """Only root may enter it; it is read-only at /run/paddock in the sandbox."""
        return self.path / "run"

    @property
    def socket(self) -> Path:
        """The socket on which the control plane listens and to which the agent connects."""
        return self.run / "control.sock"

    @property
    def egress(self) -> Path:
        """Only the forwarder's user may enter it; it has the socket of the proxy."""
        return self.path / "egress"

    @property
    def ports(self) -> Path:
        """Only the user of the ports' process may enter it; it has the socket for the ports."""
        return self.path / "ports"

    @property
    def questions(self) -> Path:
        """Only the session's user may enter it; it has the socket of the `session` program."""
        return self.path / "questions"

    @property
    def workspace(self) -> Path:
        """The mount point of the workspace's data, with the session's flags."""
        return self.path / "workspace"

    @property
    def mounts(self) -> Path:
        """The mount points of the operator's mounts with their own flags, by name."""
        return self.path / "mounts"

    @property
    def volumes(self) -> Path:
        """The mount points of the session's volumes with their own flags, by slot."""
        return self.path / "volumes"

    @property
    def layer(self) -> Path:
        """The writable layer over the image, if its commands are root inside and have one."""
        return self.path / "layer"

    @property
    def passwd(self) -> Path:
        """Names the session's uid; read-only at /etc/passwd in the sandbox."""
        return self.path / "passwd"

    @property
    def group(self) -> Path:
        """Names the session's gid; read-only at /etc/group in the sandbox."""
        return self.path / "group"

    @property
    def resolv_conf(self) -> Path:
        """Lists the name servers; read-only at /etc/resolv.conf in the sandbox."""
        return self.path / "resolv.conf"

    @classmethod
    def fresh(cls, state_dir: Path) -> Self:
        """A directory that does not exist yet."""
        return cls(state_dir / "sandboxes" / secrets.token_hex(8))

    def make(self, *, resolvers: tuple[str, ...] = ()) -> None:
        """Creates it with its files, which name no session yet. Raises: OSError."""
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        for directory in (self.path, *self._directories):
            directory.mkdir(mode=0o700)
        _write(self.passwd, passwd_text())
        _write(self.group, group_text())
        _write(self.resolv_conf, resolv_conf(resolvers))

    @property
    def _directories(self) -> tuple[Path, ...]:
        private = (self.run, self.egress, self.ports, self.questions)
        return (self.mounts, self.volumes, self.workspace, *private)

    def name_session(self, uid: int, home: str) -> None:
        """Adds the session's account and group; the files stay the same ones. Raises: OSError."""
        _write(self.passwd, passwd_text() + session_account(uid, home))
        _write(self.group, group_text() + session_group(uid))

    def prepare_workspace(self) -> None:
        """Makes the mount point shared, for a workspace that is mounted later. Raises: MountError.

        What is mounted on it afterwards appears in a container that was started before. Until then
        it is read-only, also for the sandbox's root, so `remove` finds it empty.
        """
        point = str(self.workspace)
        mounts.bind(point, point, noexec=True, read_only=True, shared=True)

    def mount_workspace(self, data: Path, *, noexec: bool, read_only: bool = False) -> None:
        """Mounts a workspace's files in it. Raises: MountError."""
        mounts.bind(str(data), str(self.workspace), noexec=noexec, read_only=read_only)

    def mount_staged(self, data: Path, area: StagingArea, *, noexec: bool) -> None:
        """Mounts a workspace's files below what its session has staged. Raises: MountError."""
        overlay.mount(data, area.upper, area.work, self.workspace, noexec=noexec)

    def unmount_workspace(self) -> None:
        """Unmounts them; may be called again. Raises: MountError."""
        mounts.unmount(str(self.workspace))

    def share(self, shared: Mapping[str, Shared]) -> None:
        """Mounts host directories in it, by name. Raises: MountError, OSError."""
        for name, (source, read_only) in shared.items():
            point = self.mounts / name
            point.mkdir(mode=0o700)
            mounts.bind(source, str(point), noexec=True, read_only=read_only)

    def unshare(self) -> None:
        """Unmounts them; may be called again. Raises: MountError, OSError."""
        _unmount_all(self.mounts)

    def mount_volume(self, volume: MountedVolume, *, noexec: bool) -> Path:
        """Mounts a volume's files in it; returns where. Raises: MountError, OSError."""
        point = self.volumes / volume.slot
        point.mkdir(mode=0o700)
        with namespace({volume.stored_uid: volume.uid}) as users:
            mounts.bind(
                str(volume.data),
                str(point),
                noexec=noexec,
                read_only=volume.read_only,
                users=users,
            )
        return point

    def unmount_volumes(self) -> None:
        """Unmounts them; may be called again. Raises: MountError, OSError."""
        _unmount_all(self.volumes)

    def make_layer(
        self,
        layers: Sequence[str],
        over: str,
        uid: int,
        size: int,
        start: root_layer.Start | None = None,
    ) -> Mapping[str, Path]:
        """Makes the writable layer; returns what of the image it covers, and where that is.

        Raises: the errors of `root_layer.make`.
        """
        paths = root_layer.make(self.layer, layers, over, uid, size, start)
        return {path: root_layer.covered(self.layer, path) for path in paths}

    def thaw_layer(self) -> None:
        """Thaws the layer that a copy has left frozen, if there is one. Raises: OSError."""
        root_layer.thaw_left(self.layer)

    def remove_layer(self) -> None:
        """Removes it with its content; may be called again. Raises: MountError, OSError."""
        root_layer.remove(self.layer)

    def remove(self) -> None:
        """Removes it once nothing is mounted in it; may be called again.

        Nothing is deleted recursively, so files of a workspace that is still mounted are safe.
        Raises: OSError if it contains an unknown file.
        """
        files = (self.passwd, self.group, self.resolv_conf)
        sockets = (
            self.egress / EGRESS_SOCKET_NAME,
            self.ports / PORTS_SOCKET_NAME,
            self.questions / QUESTIONS_SOCKET_NAME,
        )
        for file in (*(self.run / name for name in RUN_FILES), *files, *sockets):
            file.unlink(missing_ok=True)
        for directory in (*self._directories, self.path):
            with suppress(FileNotFoundError):
                directory.rmdir()

    def release(self) -> None:
        """Unmounts everything and removes it; may be called again.

        Raises: MountError; OSError if it contains an unknown file.
        """
        self.unmount_workspace()
        self.unshare()
        self.unmount_volumes()
        self.remove_layer()
        self.remove()


def left_over(state_dir: Path) -> list[SandboxDirectory]:
    """Every existing sandbox directory."""
    try:
        return sorted(
            (SandboxDirectory(path) for path in (state_dir / "sandboxes").iterdir()),
            key=lambda directory: directory.name,
        )
    except FileNotFoundError:
        return []


def _unmount_all(directory: Path) -> None:
    points = sorted(directory.iterdir()) if directory.exists() else []
    for point in points:
        mounts.unmount(str(point))
        point.rmdir()


def passwd_text() -> str:
    """Accounts of root and nobody."""
    return (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )


def group_text() -> str:
    """Groups of root and nobody."""
    return "root:x:0:\nnogroup:x:65534:\n"


def session_account(uid: int, home: str) -> str:
    """The session's line in /etc/passwd."""
    return f"sandbox:x:{uid}:{uid}::{home}:/usr/sbin/nologin\n"


def session_group(gid: int) -> str:
    """The session's line in /etc/group."""
    return f"sandbox:x:{gid}:\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
    path.chmod(0o644)  # regardless of the umask, because commands read it
