"""The part of a sandbox that mounts the volumes of its session."""

from orchestrator.host.engine.base import Bind
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories
from orchestrator.sandbox.volumes.volumes import Volumes


class VolumesPart(Part):
    """The mounts of the session's volumes, with the flags of its workspace."""

    name = "volumes"

    def __init__(self, volumes: Volumes, directories: SandboxDirectories) -> None:
        self._volumes = volumes
        self._directories = directories

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError, MountError, NotFoundError, StorageError, OSError."""
        directory, noexec = plan.directory, plan.level.noexec
        found = await self._volumes.mounted(plan.session)
        if not found:
            return

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
