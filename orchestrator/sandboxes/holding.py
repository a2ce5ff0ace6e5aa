"""What a sandbox's container is held to besides its configuration: names, rates of its level."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from orchestrator.checks.throttle import device_of, held, root_group
from orchestrator.engine.base import NO_RATES, Engine
from orchestrator.errors import EngineUnavailableError, PaddockError
from orchestrator.policy.levels import Level
from orchestrator.policy.requirements import UnmetError
from orchestrator.sandboxes.directory import SandboxDirectory
from orchestrator.threads import Threads
from orchestrator.workspace.quota import Quota
from orchestrator.workspace.slots import Workspace

log = logging.getLogger(__name__)

T = TypeVar("T")

_SECONDS = 10.0
# Of each kind: what hangs at the ends of sandboxes keeps no other from its start.
_MOST_LOOKS = 4


class Holding:
    """Holds sandboxes of one engine; `image` is the one whose programs do it.

    Disks and the kernel's files are looked at beside the event loop: what hangs there keeps its own
    sandbox from its start, as nobody knows what holds it, and no sandbox from its end.
    """

    def __init__(self, engine: Engine, image: str) -> None:
        self._engine = engine
        self._image = image
        self._starts = Threads("disks of sandboxes that start", _MOST_LOOKS)
        self._ends = Threads("disks of sandboxes that end", _MOST_LOOKS)

    async def disk(self, workspace: Workspace, level: Level, data: Path) -> str | None:
        """The workspace's device, `major:minor`, where the level has rates for it; else none has.

        Raises: UnmetError: others are on that device, too; EngineUnavailableError, also where
        the disk does not answer; OSError.
        """
        if workspace.quota is Quota.IMAGE:
            device, is_held = await self._look(lambda: _device(data))
            if is_held:  # for a sandbox that nobody could take it from
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

        Raises: EngineUnavailableError, also where the kernel's files can't be read in time: it is
        not to be used then.
        """
        if network is not None:
            await self._engine.close_names(container_id, self._image)
        if level.rates.network:
            await self._engine.hold_link(self._image, container_id, level.rates)
        if disk is not None and await self._look(root_group) is not None:
            await self._engine.hold_device(self._image, disk, level.rates, container_id)

    async def end(self, directory: SandboxDirectory) -> None:
        """Takes the rates from the workspace's device: another may have it next.

        It is done before the container is removed, which has to wait for what is written. Where
        the disk does not answer they stay, and whoever has the device next takes them.
        """
        try:
            device = await self._ends.call(lambda: _own_device(directory), _SECONDS)
            if device is not None:
                await self._engine.hold_device(self._image, device, NO_RATES)
        except FileNotFoundError:
            return  # the directory is removed already
        except (PaddockError, OSError) as error:
            why = "its disk does not answer" if isinstance(error, TimeoutError) else error
            log.warning("the rates of %s are not lifted: %s", directory.name, why)

    async def _look(self, function: Callable[[], T]) -> T:
        """For a sandbox that starts. Raises: EngineUnavailableError, and what `function` does."""
        try:
            return await self._starts.call(function, _SECONDS)
        except TimeoutError:
            raise EngineUnavailableError(
                f"the workspace's disk did not answer within {_SECONDS:g} s: it is not known what "
                "it is held to, so nothing is started on it"
            ) from None


def _device(data: Path) -> tuple[str, bool]:
    """In a thread: the device, and whether the root group has a rate for it."""
    device = device_of(data)
    return device, held(device)


def _own_device(directory: SandboxDirectory) -> str | None:
    """In a thread: the workspace's device, where it is its own and has rates."""
    device = device_of(directory.workspace)
    # The disk that the state directory is on is not ours to change.
    return device if device != device_of(directory.path) and held(device) else None
