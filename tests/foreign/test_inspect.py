"""Inspect AI, with its own self-check of sandboxes, and a whole evaluation."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.foreign.conftest import Keep
from tests.foreign.environments import environment
from tests.foreign.outcomes import judged
from tests.foreign.suites import outcomes
from tests.support.root_levels import LEVEL, write_root_level
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

SELF_CHECK = "its self-check of sandboxes"
LAYER_BYTES = 256 * 1024 * 1024
OF_ALL = {"client": "Inspect AI", "version": "inspect-ai 0.3.285"}
EXCEPTIONS = {
    "test_exec_as_user": "it makes a user as root and runs as that user: a session has one user, "
    "which its level decides",
}

EXCEPTIONS_OF_ROOT = {
    "test_exec_as_user": "it makes a user, and runs as that user: root inside has one user id of "
    "the host, so another name would keep nothing from anybody",
}


async def test_its_self_check(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    found = await self_check(client, plane, tmp_path, "high")
    keep(judged(found, EXCEPTIONS, **OF_ALL, suite=SELF_CHECK, level="high"))


@pytest_asyncio.fixture(loop_scope="module")
async def root_plane(sandbox_image: str, tmp_path: Path) -> AsyncIterator[Server]:
    """A control plane with a level whose commands are root inside, and may write over the image."""
    levels = tmp_path / "levels"
    levels.mkdir()
    write_root_level(levels, f"root_bytes = {LAYER_BYTES}")
    members = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_LEVELS_DIR": str(levels)}
    async with leaving_nothing(**members, PADDOCK_LOG_LEVEL="warning") as running:
        yield running


async def test_its_self_check_as_root(
    client: Path, root_plane: Server, keep: Keep, tmp_path: Path
) -> None:
    found = await self_check(client, root_plane, tmp_path, LEVEL)
    shown = 'one with user = "root"'
    keep(judged(found, EXCEPTIONS_OF_ROOT, **OF_ALL, suite=f"{SELF_CHECK}, as root", level=shown))


async def self_check(client: Path, plane: Server, directory: Path, level: str) -> dict[str, str]:
    """What came of each of the suite's tests at that level."""
    found = await outcomes(
        environment("inspect", client),
        "suite_inspect",
        plane,
        directory,
        variables={"SUITE_LEVEL": level},
    )
    assert len(found) == 44
    return found


async def test_trials(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    """An evaluation whole, refusals of a level, and what else the self-check leaves out."""
    found = await outcomes(environment("inspect", client), "trials_inspect", plane, tmp_path)
    keep(judged(found, {}, **OF_ALL, suite="trials: evaluations", level="high, medium"))
