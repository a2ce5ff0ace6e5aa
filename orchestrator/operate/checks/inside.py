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
from orchestrator.host.engine.base import Engine, missing_image
from orchestrator.host.node.mounts import existing
from orchestrator.sandbox.images.mounted_agents import MountedAgents
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.facilities import Kernel

_SECONDS = 20.0
# What a sandbox under the named runtime finds (None: the default one). Raises: PaddockError.
Look = Callable[[str | None], Awaitable[Kernel]]


@asynccontextmanager
async def looking(settings: Settings, engine: Engine) -> AsyncIterator[Look]:
    """Looks with the agent of the state directory; without one, with an agent of its own."""
    place: Path | None = None
    agents: MountedAgents | None = None

    async def look(runtime: str | None) -> Kernel:
        nonlocal place, agents
        image = await engine.image(settings.image)
        if image is None:
            raise missing_image(settings.image)
        try:
            if agents is None:
                place = await bounded(partial(_place, settings.state_dir), _SECONDS)
                agents = MountedAgents(engine, place or settings.state_dir, settings.image)
            return await engine.kernel(image.id, await agents.mounted(image), runtime)
        except (OSError, ConfigError) as error:  # includes time-outs
            raise EngineUnavailableError(f"no agent can be made for sandboxes: {error}") from error

    try:
        yield look
    finally:
        if place is not None:
            await bounded(partial(shutil.rmtree, place, ignore_errors=True), _SECONDS)


def _place(state_dir: Path) -> Path | None:
    """A directory to be removed, if there is no state directory yet. Raises: OSError."""
    if state_dir.exists():
        return None
    return Path(tempfile.mkdtemp(prefix=".doctor-", dir=existing(state_dir)))
