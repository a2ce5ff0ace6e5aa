"""llm-sandbox, in trials written from its documents."""

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
        environment("llm-sandbox", client), "trials_llm_sandbox", plane, tmp_path
    )
    result = judged(
        found,
        {},
        client="llm-sandbox",
        version="llm-sandbox 0.3.46",
        suite="trials: code, commands, files, time-outs, policies",
        level="high, medium",
    )
    keep(result)
