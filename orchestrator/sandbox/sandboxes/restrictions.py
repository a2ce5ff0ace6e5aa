"""Restrictions of a sandbox besides its container's configuration: name servers and rates."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from orchestrator.ground.errors import EngineUnavailableError, PaddockError
from orchestrator.ground.threads import Threads
from orchestrator.host.engine.base import NO_RATES, Engine
from orchestrator.host.node.requirements import UnmetError
from orchestrator.host.node.throttle import device_of, held, root_group
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.slots import Workspace
from orchestrator.rules.policy.levels import Level
from orchestrator.state.directory import SandboxDirectory

log = logging.getLogger(__name__)

T = TypeVar("T")

_SECONDS = 10.0
# Per kind, so that hanging disks of ending sandboxes do not delay the start of others.
_MOST_LOOKS = 4


class Restrictions:
    """Restricts sandboxes of one engine; `image` is the image whose programs are used.

    Disks and the kernel's files are read off the event loop. A disk that hangs prevents the start
    of its own sandbox, because its rates are unknown, but never a sandbox's end.
    """

    def __init__(self, engine: Engine, image: str) -> None:
        self._engine = engine
        self._image = image
        self._starts = Threads("disks of sandboxes that start", _MOST_LOOKS)
        self._ends = Threads("disks of sandboxes that end", _MOST_LOOKS)

    async def disk(self, workspace: Workspace, level: Level, data: Path) -> str | None:
        """The workspace's device, `major:minor`, if the level has rates; lifts leftover rates.

        Raises: UnmetError if the device is shared; EngineUnavailableError, also if the disk does
        not answer; OSError.
        """
        if workspace.quota is Quota.IMAGE:
            device, is_held = await self._look(lambda: _device(data))
            if is_held:  # left by a sandbox from which they could not be removed
                await self._engine.hold_device(self._image, device, NO_RATES)
            return device if level.rates.disk else None
        if level.rates.disk:
            raise UnmetError(
                f"level {level.name} can't be enforced for this workspace: its disk's rate can't "
                "be limited, because it is not a separate file system"
            )
        return None

    async def begin(
        self, level: Level, container_id: str, network: str | None, disk: str | None
    ) -> None:
        """Restricts a running container before any process of the session runs in it.

        Raises: EngineUnavailableError, also if the kernel's files can't be read in time; the
        container must not be used then.
        """
        if network is not None:
            await self._engine.close_names(container_id, self._image)
        if level.rates.network:
            await self._engine.hold_link(self._image, container_id, level.rates)
        if disk is not None and await self._look(root_group) is not None:
            await self._engine.hold_device(self._image, disk, level.rates, container_id)

    async def end(self, directory: SandboxDirectory) -> None:
        """Lifts the rates of the workspace's device, which another sandbox may use next.

        Runs before the container is removed, because the removal waits for pending writes. If the
        disk does not answer, the rates stay, and the next sandbox on the device removes them.
        """
        try:
            device = await self._ends.call(lambda: _own_device(directory), _SECONDS)
            if device is not None:
                await self._engine.hold_device(self._image, device, NO_RATES)
        except FileNotFoundError:
            return  # the directory is already removed
        except (PaddockError, OSError) as error:
            why = "its disk does not answer" if isinstance(error, TimeoutError) else error
            log.warning("the rates of %s are not lifted: %s", directory.name, why)

    async def _look(self, function: Callable[[], T]) -> T:
        """Calls it for a sandbox that starts. Raises: EngineUnavailableError, its errors."""
        try:
            return await self._starts.call(function, _SECONDS)
        except TimeoutError:
            raise EngineUnavailableError(
                f"the workspace's disk did not answer within {_SECONDS:g} s: its rate limits "
                "are unknown, so nothing is started on it"
            ) from None


def _device(data: Path) -> tuple[str, bool]:
    """Runs in a thread: the device, and whether the root group has a rate for it."""
    device = device_of(data)
    return device, held(device)


def _own_device(directory: SandboxDirectory) -> str | None:
    """Runs in a thread: the workspace's device, if it is separate and has rates."""
    device = device_of(directory.workspace)
    # The disk of the state directory must not be changed.
    return device if device != device_of(directory.path) and held(device) else None
