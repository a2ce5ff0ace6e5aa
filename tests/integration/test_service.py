"""The background control plane of `make run` and `make stop`, with others on the same host."""

import asyncio
import json
import os
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.leaks import unmount_all
from tests.support.limits import PROGRAM_SECONDS
from tests.support.server import ROOT


async def service(state_dir: Path, *command: str, listen: str = "127.0.0.1:0") -> tuple[int, str]:
    """Exit status and output of a command that is configured by environment variables."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")},
        "PADDOCK_STATE_DIR": str(state_dir),
        "PADDOCK_LISTEN": listen,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command),
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PROGRAM_SECONDS):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


def is_ready(url: str) -> bool:
    with urlopen(f"{url}/readyz", timeout=PROGRAM_SECONDS) as answer:
        return bool(answer.status == 200)


async def test_a_port_and_a_state_directory_of_its_own(tmp_path: Path) -> None:
    """Each is one setting; other programs need only the state directory and find the rest there."""
    state = tmp_path / "state"
    try:
        status, said = await service(state, "scripts.service", "start")
        assert (status, "control plane is ready" in said) == (0, True), said
        url = (state / "url").read_text().strip()
        assert not url.endswith(":0")
        assert await asyncio.to_thread(is_ready, url)
        # The running control plane's own address is reported, not the port set for this command.
        status, said = await service(state, "scripts.service", "where", listen="127.0.0.1:8700")
        assert (status, f"listening on {url}\n" in said) == (0, True), said
        assert "admin.key" in said
        status, said = await service(state, "paddock", "sessions", "list", "--json")
        assert (status, json.loads(said)) == (0, []), said
        # A second control plane, with a port that is in use.
        taken = url.removeprefix("http://")
        status, said = await service(tmp_path / "other", "scripts.service", "start", listen=taken)
        assert (status, f"another program listens on {taken}" in said) == (1, True), said
        # A new start stops the previous control plane and chooses a new port.
        status, said = await service(state, "scripts.service", "start")
        assert status == 0, said
        assert await asyncio.to_thread(is_ready, (state / "url").read_text().strip())
    finally:
        status, said = await service(state, "scripts.service", "stop")
        unmount_all(state)
    assert (status, "control plane stopped" in said) == (0, True), said
    assert not (state / "url").exists()
    assert not (state / "paddock.pid").exists()


@pytest.mark.parametrize("listen", ["nothing", "127.0.0.1:99999"])
async def test_an_address_that_is_none(tmp_path: Path, listen: str) -> None:
    status, said = await service(tmp_path / "state", "scripts.service", "start", listen=listen)
    assert (status, "PADDOCK_LISTEN" in said) == (1, True), said
    assert not (tmp_path / "state").exists()
