"""Control planes over a fake engine, one after the other; the agents dial each anew."""

import asyncio
from pathlib import Path

from orchestrator.config.settings import Settings
from orchestrator.control_plane import ControlPlane
from orchestrator.engine.base import ContainerState
from orchestrator.engine.fake import FakeEngine
from tests.support.fake_agent import Agents, FakeAgent, run_dir_of


async def reopened(settings: Settings, engine: FakeEngine, agents: Agents) -> ControlPlane:
    """A control plane that takes up what another left; agents that live dial, as real ones do."""
    for agent in agents.by_run_dir.values():
        await agent.close()
    opening = asyncio.create_task(ControlPlane.open(settings, engine))
    living = {
        run_dir_of(engine.specs[container.id])
        for container in engine.containers.values()
        if container.state is not ContainerState.EXITED
    }
    await asyncio.gather(
        *(_dial(opening, agents.by_run_dir[run_dir], Path(run_dir)) for run_dir in living)
    )
    return await opening


async def _dial(opening: asyncio.Task[ControlPlane], agent: FakeAgent, run_dir: Path) -> None:
    """Dials as soon as anybody listens; nobody does for a sandbox that is not taken up."""
    while True:
        over = opening.done()
        try:
            return await agent.dial(run_dir)
        except OSError:
            if over:
                return None
        await asyncio.sleep(0)
