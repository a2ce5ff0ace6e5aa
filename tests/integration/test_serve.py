"""Runs `python -m paddock serve` as a program: its messages and its end."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.support.limits import PROGRAM_SECONDS


@asynccontextmanager
async def served(state_dir: Path, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PADDOCK_")}
    environment = {
        **clean,
        "PADDOCK_STATE_DIR": str(state_dir),
        "PADDOCK_LISTEN": "127.0.0.1:0",
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "paddock", "serve"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROGRAM_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: asyncio.subprocess.Process, beginning: str) -> str:
    """The rest of the first log line with this beginning; every line must be JSON."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        event: str = json.loads(line)["event"]
        if event.startswith(beginning):
            return event.removeprefix(beginning)
    raise EOFError(beginning)


def read_key(path: str) -> str:
    return Path(path).read_text().strip()


async def refusal(state_dir: Path, **variables: str) -> tuple[int | None, list[str]]:
    """Exit status and error lines of a control plane that does not start."""
    async with served(state_dir, **variables) as process:
        _, complaint = await process.communicate()
    return process.returncode, complaint.decode().splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serves_until_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    async with served(tmp_path) as process:
        url = await said(process, "listening on ")
        key = read_key(await said(process, "admin key in "))
        async with ClientSession(headers={"Authorization": f"Bearer {key}"}) as client:
            async with client.get(f"{url}/api/sessions") as response:
                assert (await response.json())["items"] == []
            # An open stream does not delay the stop.
            async with client.get(f"{url}/api/events") as response:
                assert response.status == 200
                process.send_signal(number)
                assert await process.wait() == 0


async def test_as_json_standard_output_is_json_only(tmp_path: Path) -> None:
    # The messages are printed even if the log level would suppress them.
    async with served(tmp_path, PADDOCK_LOG_FORMAT="json", PADDOCK_LOG_LEVEL="error") as process:
        url = await said(process, "listening on ")
        async with ClientSession() as client, client.get(f"{url}/healthz") as response:
            assert response.status == 200
        process.send_signal(signal.SIGTERM)
        output, complaints = await process.communicate()
    for line in output.splitlines():
        assert {"event", "level", "time"} <= json.loads(line).keys()
    assert not complaints


async def test_one_line_says_why_it_does_not_start(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as process:
        address = await said(process, "listening on http://")
        status, lines = await refusal(tmp_path / "a")
        assert (status, len(lines)) == (2, 1)
        assert "another control plane" in lines[0]
        status, lines = await refusal(tmp_path / "b", PADDOCK_LISTEN=address)
        assert (status, len(lines)) == (1, 1)
        assert f"can't listen on {address}" in lines[0]
        assert "another program does; set PADDOCK_LISTEN" in lines[0]
    status, lines = await refusal(tmp_path / "c", PADDOCK_MAX_ACTIVE="many")
    assert (status, len(lines)) == (2, 1)
    assert "PADDOCK_MAX_ACTIVE" in lines[0]
