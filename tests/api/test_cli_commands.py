"""Commands with an id on the command line: detached, attached, logged, waited for, killed."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

pytestmark = pytest.mark.slow

BYTES = b"\xff\x00\n"


@pytest.fixture(autouse=True)
def environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)


@pytest.fixture
async def command(api: Api) -> str:
    """A command that has printed bytes, and runs on."""
    await api.session(id="web-1", permission_level="high")
    api.agents.plays["serve"] = Play(BYTES, b"err\n", holds=True)
    ended = await run_beside("exec", "-d", "--stdin-open", "web-1", "--", "serve", "-v")
    assert (ended.status, ended.err) == (0, "")
    (shown,) = (await api.json("GET", "/api/sessions/web-1/processes"))["items"]
    assert ended.out == f"{shown['command_id']}\n"
    assert (shown["status"], shown["argv"], shown["background"]) == (
        "running",
        ["serve", "-v"],
        True,
    )
    assert (await api.agent.asked("exec"))["stdin_open"] is True
    return str(shown["command_id"])


@asynccontextmanager
async def beside(
    *words: str, stdin: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the command line; what it prints is bytes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", *words),
        stdin=asyncio.subprocess.PIPE if stdin is None else stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_line_runs_and_prints_its_bytes(api: Api) -> None:
    await api.session(id="web-1", permission_level="high")
    api.agents.plays["bash"] = Play(BYTES, exit_code=3)
    line = "cd a && make | tail"
    words = ("-s", line, "--merge", "--output-file", "log", "--timeout", "0.25")
    for command in (("exec", *words, "web-1"), ("run", "--level", "high", *words)):
        async with beside(*command) as process:
            out, err = await process.communicate()
        assert (process.returncode, out, err) == (3, BYTES, b"")
        params = [params for name, params in api.agent.requests if name == "exec"][-1]
        assert params["argv"] == ["bash", "-c", line]
        assert (params["merge"], params["output_file"]) == (True, "log")
        assert params["timeout_ms"] == 250


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "web-1"),
        ("exec", "-s", "ls", "web-1", "--", "ls"),
        ("run", "-s", "ls", "--", "ls"),
        ("run",),
        ("exec", "--stdin-open", "web-1", "--", "ls"),
    ],
)
async def test_what_to_run_is_given_once(api: Api, words: tuple[str, ...]) -> None:
    await api.session(id="web-1", permission_level="high")
    ended = await run_beside(*words)
    assert ended.status == 2
    assert not (await api.json("GET", "/api/sessions/web-1/processes"))["items"]


async def test_a_refusal_names_the_other_way(api: Api) -> None:
    await api.session(id="low-1", permission_level="low")
    ended = await run_beside("exec", "-s", "ls | wc", "low-1")
    assert ended.status == 4
    assert "runs no shell" in ended.line


async def test_logs_show_what_was_printed_and_then_follow(api: Api, command: str) -> None:
    async with beside("logs", "web-1", command) as process:
        assert await process.communicate() == (BYTES, b"err\n")
    async with beside("logs", "--after", "1", "web-1", command) as process:
        assert await process.communicate() == (BYTES[1:], b"err\n")
    async with beside("logs", "-f", "web-1", command) as process:
        assert process.stdout is not None
        assert await process.stdout.readexactly(3) == BYTES
        api.agent.print(command, "stdout", b"more\n")
        assert await process.stdout.readline() == b"more\n"
        api.agent.end(command, 7)
        assert await process.wait() == 0  # it has shown them
    ended = await run_beside("logs", "web-1", "0" * 16)
    assert ended.status == 5


async def test_wait_ends_with_the_command(api: Api, command: str) -> None:
    async with beside("wait", "web-1", command) as process:
        await api.agent.asked("output")
        api.agent.end(command, 7)
        assert await process.communicate() == (b"", b"")
        assert process.returncode == 7
    ended = await run_beside("wait", "--json", "web-1", command)
    assert (ended.status, json.loads(ended.out)["exit_code"]) == (7, 7)


async def test_kill_signals_each(api: Api, command: str) -> None:
    ended = await run_beside("kill", "-s", "int", "web-1", "0" * 16, command)
    assert (ended.status, ended.out) == (5, "")
    assert "0" * 16 in ended.err
    assert (await api.agent.asked("signal")) == {"command_id": command, "signal": 2}
    assert (await run_beside("wait", "web-1", command)).status == 130
    ended = await run_beside("kill", "-s", "SLEEP", "web-1", command)
    assert ended.status == 2
    assert "must be one of" in ended.line


async def test_attach_sends_input_and_ends_as_the_command(api: Api, command: str) -> None:
    async with beside("attach", "web-1", command) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        await until(lambda: api.agent.stdin.get(command) == b"one\n")
        api.agent.print(command, "stdout", b"two\n")
        process.stdin.close()  # with which the command ends
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, BYTES + b"two\n", b"err\n")


async def test_a_person_types_to_an_attached_command(api: Api, command: str) -> None:
    ours, theirs = pty.openpty()
    try:
        async with beside("attach", "web-1", command, stdin=theirs) as process:
            await api.agent.asked("output")
            os.write(ours, b"typed\n")
            await until(lambda: api.agent.stdin.get(command) == b"typed\n")
            api.agent.end(command, 4)
            assert await process.wait() == 4
    finally:
        os.close(ours)
        os.close(theirs)


async def test_leaving_an_attached_command_does_not_end_it(api: Api, command: str) -> None:
    async with beside("attach", "web-1", command) as process:
        assert process.stdout is not None
        assert await process.stdout.readexactly(3) == BYTES
        process.terminate()
        await process.wait()
    shown = await api.json("GET", f"/api/sessions/web-1/processes/{command}")
    assert shown["status"] == "running"


async def test_top_shows_what_is_used(api: Api) -> None:
    assert (await run_beside("top")).status == 0
    for name in ("web-1", "web-2"):
        await api.session(id=name)
    shown = await run_beside("top")
    assert shown.out.split("\n")[0].split()[:3] == ["SESSION", "LEVEL", "ACTIVITY"]
    assert {line.split()[0] for line in shown.out.splitlines()[1:]} == {"web-1", "web-2"}
    listed = json.loads((await run_beside("top", "--json", "web-1")).out)
    assert [each["id"] for each in listed] == ["web-1"]
    live = await run_beside("top", "--count", "2", "--interval", "0.1", terminal=True)
    assert live.status == 0
    assert live.out.count("SESSION") >= 2  # a table for each look
    assert (await run_beside("top", "nothing")).status == 5
