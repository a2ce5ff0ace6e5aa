"""What a sandbox's container is held to besides its configuration: names, rates of its level."""

import logging
from pathlib import Path

from orchestrator.checks.throttle import device_of, held, root_group
from orchestrator.engine.base import NO_RATES, Engine
from orchestrator.errors import PaddockError
from orchestrator.policy.levels import Level
from orchestrator.policy.requirements import UnmetError
from orchestrator.workspace.quota import Quota
from orchestrator.workspace.sandbox_dir import SandboxDirectory
from orchestrator.workspace.slots import Workspace

log = logging.getLogger(__name__)


class Holding:
    """Holds sandboxes of one engine; `image` is the one whose programs do it."""

    def __init__(self, engine: Engine, image: str) -> None:
        self._engine = engine
        self._image = image

    async def disk(self, workspace: Workspace, level: Level, data: Path) -> str | None:
        """The workspace's device, `major:minor`, where the level has rates for it; else none has.

        Raises: UnmetError: others are on that device, too; EngineUnavailableError, OSError.
        """
        if workspace.quota is Quota.IMAGE:
            device = device_of(data)
            if held(device):  # for a sandbox that nobody could take it from
                await self._engine.hold_device(self._image, device, NO_RATES)
            return device if level.rates.disk else None
        if level.rates.disk:
            raise UnmetError(
                f"level {level.name} can't be enforced for this workspace: its disk can't be held "
                "to a rate, as it is no file system of its own"
            )
        return None

    async def begin(
        self, level: Level, container_id: str, network: str | None, disk: str | None
    ) -> None:
        """For a container that runs, before anything of the session's runs in it.

        Raises: EngineUnavailableError: it is not to be used then.
        """
        if network is not None:
            await self._engine.close_names(container_id, self._image)
        if level.rates.network:
            await self._engine.hold_link(self._image, container_id, level.rates)
        if disk is not None and root_group() is not None:
            await self._engine.hold_device(self._image, disk, level.rates, container_id)

    async def end(self, directory: SandboxDirectory) -> None:
        """Takes the rates from the workspace's device: another may have it next.

        It is done before the container is removed, which has to wait for what is written.
        """
        try:
            device = device_of(directory.workspace)
            # The disk that the state directory is on is not ours to change.
            if device != device_of(directory.path) and held(device):
                await self._engine.hold_device(self._image, device, NO_RATES)
        except FileNotFoundError:
            return  # the directory is removed already
        except (PaddockError, OSError) as error:
            # Who has the device next takes them.
            log.warning("the rates of %s are not lifted: %s", directory.name, error)
