"""Runs the README's first call as a newcomer would type it."""

import asyncio
import json
import re
from pathlib import Path

from images.builder import build
from tests.support.leaks import NOTHING, left_behind
from tests.support.limits import WAIT_SECONDS
from tests.support.server import ROOT, serving


def first_call() -> str:
    """The commands in the section "A first call"."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"## A first call\n+```\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


async def test_the_first_call_works_as_written(tmp_path: Path) -> None:
    build(report=lambda _line: None)
    async with serving(tmp_path / "state") as server:
        script = first_call()
        script = script.replace("data/admin.key", str(server.state_dir / "admin.key"))
        script = script.replace("http://127.0.0.1:8700", server.url)
        script = script.replace("curl -s ", "curl -s -w '\\n' ")
        shell = await asyncio.create_subprocess_exec(
            "sh", "-eu", "-c", script, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(WAIT_SECONDS):
            output, _ = await shell.communicate()
        created, written, counted, refused, verified, closed = map(json.loads, output.splitlines())
        assert left_behind(server.state_dir) == NOTHING
    assert (created["id"], created["permission_level"]) == ("demo", "low")
    assert written["bytes"] == 5
    assert (counted["exit_code"], counted["stdout"], counted["audit"]["seq"]) == (0, "1\n", 4)
    assert (refused["status"], refused["rule"]) == (403, "path-outside-workspace")
    assert verified["ok"] is True
    assert closed["status"] == "completed"
