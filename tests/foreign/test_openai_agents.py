"""OpenAI Agents, in trials of its shell tool and of each method of a sandbox."""

from pathlib import Path

import pytest

from tests.foreign.conftest import Keep
from tests.foreign.environments import environment
from tests.foreign.outcomes import judged
from tests.foreign.suites import outcomes
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_trials(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    found = await outcomes(
        environment("openai-agents", client), "trials_openai_agents", plane, tmp_path
    )
    result = judged(
        found,
        {},
        client="OpenAI Agents",
        version="openai-agents 0.24.0",
        suite="trials: ShellTool, sandboxes, agents whole",
        level="high, medium",
    )
    keep(result)
