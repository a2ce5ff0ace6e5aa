"""The JavaScript client, run by Node: its own tests, against a control plane without containers."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from orchestrator.settings.operator_models import OperatorModel
from scripts.npm_package import SOURCE
from tests.support.fake_agent import Play
from tests.support.limits import PROGRAM_SECONDS
from tests.support.models import model_server
from tests.support.served_plane import KEY, served_plane
from tests.support.server import ROOT

TESTS = sorted((SOURCE / "tests").glob("*.test.js"))
PLAYS = {
    "greet": Play(b"hello\n"),
    "fail": Play(stderr=b"bad\n", exit_code=3),
    "raw": Play(b"\xff\x00\xfe"),
    "build": Play(b"one\n", holds=True),
}


async def run_node(package: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit status of Node in the package's folder, and what it prints."""
    process = await asyncio.create_subprocess_exec(
        *("node", *arguments),
        cwd=package,
        env={**os.environ, "OPENAPI": str(ROOT / "docs" / "openapi.json"), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PROGRAM_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name.partition(".")[0])
async def test_against_a_control_plane(path: Path, javascript_package: Path) -> None:
    async with served_plane() as served, model_server() as model:
        served.agents.plays.update(PLAYS)
        served.plane.models.configured["small"] = OperatorModel.model_validate(model.setting())
        url = served.address.rstrip("/")
        status, told = await run_node(
            *(javascript_package, "--test", "--test-reporter=tap", f"tests/{path.name}"),
            PADDOCK_URL=url,
            PADDOCK_KEY=KEY,
        )
    assert status == 0, told[-6000:]
    assert "# pass 0" not in told
