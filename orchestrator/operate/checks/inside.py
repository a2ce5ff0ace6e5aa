"""What a sandbox of the default image finds of the kernel, under each runtime."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.threads import bounded
from orchestrator.host.engine.base import Engine, MountedAgent, missing_image
from orchestrator.host.node.mounts import existing
from orchestrator.sandbox.images.mounted_agents import MountedAgents
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.facilities import Kernel
from sandbox_agent.decide.mounted_agent import GUARD_PROGRAM

_SECONDS = 20.0
# What a sandbox under the named runtime finds (None: the default one). Raises: PaddockError.
Look = Callable[[str | None], Awaitable[Kernel]]


class Inside:
    """Looks with the agent of the state directory; without one, with an agent of its own."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self._place: Path | None = None
        self._agents: MountedAgents | None = None

    async def kernel(self, runtime: str | None) -> Kernel:
        """See `Look`."""
        return await self._engine.kernel(*await self._agent(), runtime)

    async def root_inside(self, runtime: str | None) -> str | None:
        """Why commands can't be root inside; None if they can. Raises: PaddockError."""
        return await self._engine.root_inside(*await self._agent(), runtime)

    async def compiled_guard(self) -> bool:
        """Whether commands can have the guard in C. Raises: PaddockError, TimeoutError."""
        _, agent = await self._agent()
        return await bounded(Path(agent.directory, GUARD_PROGRAM).exists, _SECONDS)

    async def close(self) -> None:
        """Removes an agent of its own. Raises: TimeoutError."""
        if self._place is not None:
            await bounded(partial(shutil.rmtree, self._place, ignore_errors=True), _SECONDS)

    async def _agent(self) -> tuple[str, MountedAgent]:
        """The default image's id, and the agent for it. Raises: EngineUnavailableError."""
        settings = self._settings
        image = await self._engine.image(settings.image)
        if image is None:
            raise missing_image(settings.image)
        try:
            if self._agents is None:
                self._place = await bounded(partial(_place, settings.state_dir), _SECONDS)
                top = self._place or settings.state_dir
                self._agents = MountedAgents(self._engine, top, settings.image)
            return image.id, await self._agents.mounted(image)
        except (OSError, ConfigError) as error:  # includes time-outs
            raise EngineUnavailableError(f"no agent can be made for sandboxes: {error}") from error


@asynccontextmanager
async def looking(settings: Settings, engine: Engine) -> AsyncIterator[Inside]:
    """What looks, which is closed at the end."""
    inside = Inside(settings, engine)
    try:
        yield inside
    finally:
        await inside.close()


def _place(state_dir: Path) -> Path | None:
    """A directory to be removed, if there is no state directory yet. Raises: OSError."""
    if state_dir.exists():
        return None
    return Path(tempfile.mkdtemp(prefix=".doctor-", dir=existing(state_dir)))
