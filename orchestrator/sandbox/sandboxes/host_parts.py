"""Parts of a sandbox on the host: network, directory, workspace, the operator's mounts, volumes."""

from pathlib import Path

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.ground.task_scope import together
from orchestrator.host.engine.base import Bind, Container
from orchestrator.sandbox.sandboxes.open_network import OpenNetworkUse
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.sandbox.sandboxes.restrictions import Restrictions
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories
from orchestrator.sandbox.sandboxes.workspace_paths import moved
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sandbox.volumes.volumes import Volumes
from orchestrator.settings.operator_mounts import OperatorMount, real_source
from orchestrator.settings.settings import Settings
from orchestrator.state.directory import Shared
from sandbox_agent.decide.protocol import (
    CA_DIR,
    EGRESS_DIR,
    PORTS_DIR,
    QUESTIONS_DIR,
    RUN_DIR,
    WORKSPACE_DIR,
)

LABEL_NETWORK = "paddock.network"
LABEL_MOUNTS = "paddock.mounts"  # names separated by spaces


class NetworkPart(Part):
    """The open network, if the level has one; it stays for other sandboxes."""

    name = "network"

    def __init__(self, network: OpenNetworkUse) -> None:
        self._network = network

    async def open(self, plan: Plan) -> None:
        """Raises EngineUnavailableError if its rules can't be installed."""
        if plan.level.network == "open":
            opened = await self._network.ensure()
            plan.network, plan.resolvers = opened.name, opened.resolvers
        plan.labels[LABEL_NETWORK] = plan.network or ""

    async def adopt(self, plan: Plan, container: Container) -> None:
        """The network's name is in a label."""
        plan.network = container.labels.get(LABEL_NETWORK) or None


class RulesPart(Part):
    """The rules of the open network, which may be gone since the sandbox was started."""

    name = "network's rules"

    def __init__(self, network: OpenNetworkUse) -> None:
        self._network = network

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError; SandboxUnavailableError if the network is another."""
        if plan.network is None:
            return
        opened = await self._network.ensure()
        if (opened.name, opened.resolvers) != (plan.network, plan.resolvers):
            raise SandboxUnavailableError("the open network is not the one it was started with")


class DirectoryPart(Part):
    """The directory with the control socket and files for /etc."""

    name = "directory"

    def __init__(self, directories: SandboxDirectories) -> None:
        self._directories = directories

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError, OSError."""
        directory = plan.directory
        await self._directories.make(directory, lambda: _make(plan))
        plan.binds += [
            Bind(str(directory.run), RUN_DIR, read_only=True),
            Bind(str(directory.passwd), "/etc/passwd", read_only=True),
            Bind(str(directory.group), "/etc/group", read_only=True),
            Bind(str(directory.resolv_conf), "/etc/resolv.conf", read_only=True),
        ]
        plan.binds += [
            Bind(str(directory.ports), PORTS_DIR, read_only=True),
            Bind(str(directory.questions), QUESTIONS_DIR, read_only=True),
        ]
        if plan.level.network == "egress":
            plan.binds.append(Bind(str(directory.egress), EGRESS_DIR, read_only=True))

    async def close(self, plan: Plan) -> None:
        """Raises: OSError, TimeoutError."""
        await self._directories.remove(plan.directory, plan.directory.remove)


class TrustPart(Part):
    """The certificates of the way out, at levels whose rules inspect TLS."""

    name = "certificates"

    def __init__(self, directory: Path) -> None:
        """`directory` has the files; sandboxes that use it see new ones."""
        self._directory = directory

    async def open(self, plan: Plan) -> None:
        """Adds the mount."""
        if plan.level.network == "egress" and plan.level.egress.inspect:
            plan.binds.append(Bind(str(self._directory), CA_DIR, read_only=True))


class QuotaPart(Part):
    """The workspace at its size, and its device; it outlives the sandbox.

    A child that reads its parent's workspace leaves it as it is.
    """

    name = "workspace"

    def __init__(self, workspaces: Workspaces, restrictions: Restrictions) -> None:
        self._workspaces = workspaces
        self._restrictions = restrictions

    async def open(self, plan: Plan) -> None:
        """Raises UnmetError, EngineUnavailableError, OSError, errors of `Workspaces.prepare`."""
        await self.prepare(plan)
        await self.look(plan)

    async def prepare(self, plan: Plan) -> None:
        """Prepares the workspace itself. Raises: the errors of `Workspaces.prepare`."""
        workspace = plan.session.workspace
        if plan.session.family.shares:
            plan.data = self._workspaces.data(workspace)
            return
        stages = plan.session.key if plan.session.stages else None
        size = plan.limits.workspace_bytes
        plan.data = await self._workspaces.prepare(workspace, size, stages)
        if stages is not None:
            plan.staging = await self._workspaces.stage(workspace, stages)

    async def look(self, plan: Plan) -> None:
        """Finds its device. Raises: UnmetError, EngineUnavailableError, OSError."""
        plan.disk = await self._restrictions.disk(plan.session.workspace, plan.level, plan.data)


class WorkspacePart(Part):
    """The mount of the workspace's files with the level's flags."""

    name = "workspace's mount"

    def __init__(self, directories: SandboxDirectories) -> None:
        self._directories = directories

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError, MountError."""
        await self._directories.make(plan.directory, lambda: _mount(plan))
        target = plan.session.workspace_path
        plan.binds.append(Bind(str(plan.directory.workspace), target, read_only=False))

    async def close(self, plan: Plan) -> None:
        """Raises: MountError, TimeoutError."""
        await self._directories.remove(plan.directory, plan.directory.unmount_workspace)


class PointPart(WorkspacePart):
    """The mount point of a workspace that is not known yet; it is read-only."""

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError, MountError."""
        directory = plan.directory
        await self._directories.make(directory, directory.prepare_workspace)
        point = Bind(str(directory.workspace), WORKSPACE_DIR, read_only=False, follows=True)
        plan.binds.append(point)


class AttachPart(Part):
    """The session's workspace and names, in a sandbox that was started without them.

    Their mount and files are removed with its mount point and its directory, after the container.
    """

    name = "session's workspace"

    def __init__(self, quota: QuotaPart, directories: SandboxDirectories) -> None:
        self._quota = quota
        self._directories = directories

    async def open(self, plan: Plan) -> None:
        """Does independent steps at the same time, because a caller waits for them.

        Raises: the errors of `QuotaPart.open`; MountError.
        """
        async with together() as begin:
            begin(self._directories.make(plan.directory, lambda: _name(plan)))
            await self._quota.prepare(plan)
            begin(self._quota.look(plan))
            await self._directories.make(plan.directory, lambda: _mount(plan))


class MountsPart(Part):
    """The mounts of the operator's list that the session and its level use."""

    name = "mounts"

    def __init__(self, settings: Settings, directories: SandboxDirectories) -> None:
        self._settings = settings
        self._directories = directories

    async def open(self, plan: Plan) -> None:
        """Raises EngineUnavailableError, also for a forbidden directory; MountError, OSError."""
        plan.mount_names = tuple(plan.mounts)
        plan.labels[LABEL_MOUNTS] = " ".join(plan.mounts)
        if not plan.mounts:
            return
        await self._directories.make(plan.directory, lambda: self._share(plan))
        # They are already read-only where required. If the engine made them read-only, it would
        # remove their other flags.
        plan.binds += [
            Bind(str(plan.directory.mounts / name), mount.target, read_only=False)
            for name, mount in plan.mounts.items()
        ]

    def _share(self, plan: Plan) -> None:
        """Runs in a thread. Follows the links again, because they may have changed."""
        shared = {
            name: Shared(self._source(name, mount), mount.read_only)
            for name, mount in plan.mounts.items()
        }
        plan.directory.share(shared)

    def _source(self, name: str, mount: OperatorMount) -> str:
        return real_source(name, mount, self._settings.own_dirs, self._settings.docker_host)

    async def adopt(self, plan: Plan, container: Container) -> None:
        """The mounts' names are in a label."""
        plan.mount_names = tuple(container.labels.get(LABEL_MOUNTS, "").split())

    async def close(self, plan: Plan) -> None:
        """Raises: MountError, OSError, TimeoutError."""
        if plan.mount_names:
            await self._directories.remove(plan.directory, plan.directory.unshare)


class VolumesPart(Part):
    """The mounts of the session's volumes, with the flags of its workspace."""

    name = "volumes"

    def __init__(self, volumes: Volumes, directories: SandboxDirectories) -> None:
        self._volumes = volumes
        self._directories = directories

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError, MountError, NotFoundError, StorageError, OSError."""
        if not plan.session.terms.volumes:
            return
        directory, noexec = plan.directory, plan.level.noexec
        found = await self._volumes.mounted(plan.session)

        def mount() -> None:
            for _, volume in found:
                directory.mount_volume(volume, noexec=noexec)

        await self._directories.make(directory, mount)
        # They are already read-only where required. If the engine made them read-only, it would
        # remove their other flags.
        plan.binds += [
            Bind(str(directory.volumes / volume.slot), path, read_only=False)
            for path, volume in found
        ]

    async def close(self, plan: Plan) -> None:
        """Raises: MountError, OSError, TimeoutError."""
        if not plan.tenancy.vacant and plan.session.terms.volumes:
            await self._directories.remove(plan.directory, plan.directory.unmount_volumes)


def _make(plan: Plan) -> None:
    """Runs in a thread."""
    plan.directory.make(resolvers=plan.resolvers)
    if not plan.tenancy.vacant:
        _name(plan)


def _mount(plan: Plan) -> None:
    """Runs in a thread."""
    if plan.staging is None:
        shares = plan.session.family.shares
        plan.directory.mount_workspace(plan.data, noexec=plan.level.noexec, read_only=shares)
    else:
        plan.directory.mount_staged(plan.data, plan.staging, noexec=plan.level.noexec)


def _name(plan: Plan) -> None:
    """Runs in a thread."""
    session = plan.session
    home = moved(plan.level.home, session.workspace_path)
    plan.directory.name_session(session.workspace.uid, home)
