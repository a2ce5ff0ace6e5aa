"""Inspect AI, with its own self-check of sandboxes, and a whole evaluation."""

from pathlib import Path

import pytest

from tests.foreign.conftest import Keep
from tests.foreign.environments import environment
from tests.foreign.outcomes import judged
from tests.foreign.suites import outcomes
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_ALL = {"client": "Inspect AI", "version": "inspect-ai 0.3.285"}
EXCEPTIONS = {
    "test_exec_as_user": "it makes a user as root and runs as that user: a session has one user, "
    "which its level decides",
}


async def test_its_self_check(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    found = await outcomes(environment("inspect", client), "suite_inspect", plane, tmp_path)
    assert len(found) == 44
    keep(judged(found, EXCEPTIONS, **OF_ALL, suite="its self-check of sandboxes", level="high"))


async def test_trials(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    """An evaluation whole, refusals of a level, and what else the self-check leaves out."""
    found = await outcomes(environment("inspect", client), "trials_inspect", plane, tmp_path)
    keep(judged(found, {}, **OF_ALL, suite="trials: evaluations", level="high, medium"))
