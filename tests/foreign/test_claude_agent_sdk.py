"""The Claude Agent SDK, as far as it goes without a model."""

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
        environment("claude-agent-sdk", client), "trials_claude_agent_sdk", plane, tmp_path
    )
    result = judged(
        found,
        {},
        client="Claude Agent SDK",
        version="claude-agent-sdk 0.2.189",
        suite="trial: it starts `paddock mcp` and lists its tools",
        level="high",
    )
    keep(result)
