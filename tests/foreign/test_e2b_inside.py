"""E2B's SDKs inside a sandbox: trials of each method, written from their documents."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.foreign.conftest import Keep
from tests.foreign.environments import environment
from tests.foreign.node_packages import installed, trials
from tests.foreign.outcomes import judged
from tests.foreign.suites import PROGRAMS, outcomes
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE = {"e2b": "2.51.0", "@e2b/code-interpreter": "2.8.0"}
LEVEL = "high, medium"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[Server]:
    settings = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_COMPAT": "e2b"}
    async with leaving_nothing(**settings) as running:
        yield running


async def test_python(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    found = await outcomes(environment("e2b-inside", client), "trials_e2b_inside", plane, tmp_path)
    result = judged(
        found,
        {},
        client="E2B",
        version="e2b 2.63.0 (PyPI)",
        suite="trials: commands, files, watches, terminals",
        level=LEVEL,
    )
    keep(result)


async def test_interpreter(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    found = await outcomes(
        environment("e2b-inside", client), "trials_e2b_interpreter", plane, tmp_path
    )
    result = judged(
        found,
        {},
        client="E2B",
        version="e2b-code-interpreter 2.11.5 (PyPI)",
        suite="trials: cells and contexts",
        level="high",
    )
    keep(result)


async def test_javascript(plane: Server, keep: Keep, tmp_path: Path) -> None:
    variables = {"PADDOCK_URL": plane.url, "PADDOCK_KEY": plane.key}
    program = PROGRAMS / "trials_e2b_inside.test.mjs"
    found = await trials(program, await installed(NODE), variables, tmp_path)
    result = judged(
        found,
        {},
        client="E2B",
        version="e2b 2.51.0, @e2b/code-interpreter 2.8.0 (npm)",
        suite="trials: commands, files, watches, terminals, cells",
        level="high",
    )
    keep(result)
