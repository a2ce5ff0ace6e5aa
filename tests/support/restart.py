"""Consecutive control planes with a fake engine; the agents reconnect to each."""

import asyncio
from pathlib import Path

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.base import ContainerState
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.sandbox.egress.resolver import Resolver
from orchestrator.settings.settings import Settings
from tests.support.fake_agent import Agents, FakeAgent, run_dir_of
from tests.support.until import pause


async def reopened(
    settings: Settings, engine: FakeEngine, agents: Agents, resolver: Resolver | None = None
) -> ControlPlane:
    """A control plane that takes over what another left; live agents reconnect, as real ones do."""
    for agent in agents.by_run_dir.values():
        await agent.close()
    opening = asyncio.create_task(ControlPlane.open(settings, engine, resolver))
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
    """Connects once a control plane listens; none does for a sandbox that is not taken over."""
    turn = 0
    while True:
        over = opening.done()
        try:
            return await agent.dial(run_dir)
        except OSError:
            if over:
                return None
        turn += 1
        await pause(turn)
