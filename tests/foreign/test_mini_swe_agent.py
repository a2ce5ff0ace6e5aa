"""mini-swe-agent, in trials written from its documents."""

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
        environment("mini-swe-agent", client), "trials_mini_swe_agent", plane, tmp_path
    )
    result = judged(
        found,
        {},
        client="mini-swe-agent",
        version="mini-swe-agent 2.4.6",
        suite="trials: commands, time-outs, submission, an agent whole",
        level="high, medium",
    )
    keep(result)
