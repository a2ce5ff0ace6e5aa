"""The newcomer's example: it works on a real package, and reports failures."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from images.builder import build
from tests.support.leaks import NOTHING, left_behind, networks
from tests.support.server import ROOT, Server, serving

_SECONDS = 300


class Run(NamedTuple):
    """Exit status and outputs of the example."""

    status: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A control plane; at its end, nothing of any session may be left."""
    async with serving(tmp_path / "state") as server:
        yield server
        assert left_behind(server.state_dir) == NOTHING
    assert networks(server.state_dir) == []


async def run_example(url: str, *arguments: str, **environment: str) -> Run:
    """Runs the example like `make run`, against the server at that address."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "examples/governed_package.py",
        *arguments,
        cwd=ROOT,
        env={**clean, "PYTHONPATH": str(ROOT), "PADDOCK_URL": url, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Run(process.returncode, stdout.decode(), stderr.decode())


async def test_the_package_is_governed_tested_and_on_record(server: Server) -> None:
    run = await run_example(server.url, PADDOCK_STATE_DIR=str(server.state_dir))
    assert run.status == 0, run
    assert run.stderr == ""
    # All tests of the default package ran.
    assert re.search(r"= 6\d\d passed, .* in [\d.]+s =", run.stdout)
    # Each forbidden command is refused, and recorded with its rule.
    for command, rule in (
        ("curl https://example.com", "command-allowlist"),
        ("python3 -c pass", "command-allowlist"),
        ("cat /etc/passwd", "path-outside-workspace"),
        ("ls; id", "shell-operators"),
        ("find . -name PKG-INFO -exec id {} +", "option-not-allowed"),
    ):
        assert re.search(rf"✗ {re.escape(command)} +{rule}", run.stdout), command
        assert re.search(rf"deny +{rule} +{re.escape(command)}", run.stdout), command
    assert len(re.findall(r"events: chain verified", run.stdout)) == 2
    assert re.search(r"low +none +0.5 +256 MiB +64\b", run.stdout)
    assert re.search(r"high +paddock-open-\w+ +2 +4 GiB +512\b", run.stdout)
    assert "\033" not in run.stdout  # no colour without a terminal
    # Both sessions are closed and purged.
    sessions = (await server.ok("GET", "/api/sessions"))["items"]
    assert [session["status"] for session in sessions] == ["completed", "completed"]
    assert list((server.state_dir / "session-workspaces").iterdir()) == []
    assert list((server.state_dir / "slots").iterdir()) == []


async def test_failing_tests_of_a_package_fail_the_example(server: Server) -> None:
    # The tests need pytest, so they can't even start.
    run = await run_example(server.url, "--needs", "iniconfig==2.0.0", PADDOCK_KEY=server.key)
    assert run.status == 1
    assert "error: the package's tests failed: exit code 1" in run.stderr
    assert "No module named pytest" in run.stdout


async def test_a_key_that_is_not_known_is_said_in_one_line(server: Server) -> None:
    run = await run_example(server.url, PADDOCK_KEY="not-a-key-of-this-server")
    assert run.status == 1
    assert run.stderr == "error: the key or handle is not known\n"


async def test_no_control_plane_is_said_in_one_line() -> None:
    run = await run_example("http://127.0.0.1:1", PADDOCK_KEY="of-no-importance-here")
    assert run.status == 1
    assert run.stderr.startswith("error: http://127.0.0.1:1: ")
    assert "make run" in run.stderr
    assert run.stderr.count("\n") == 1
