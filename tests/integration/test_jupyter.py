"""Real Jupyter at high: a kernel, and a server behind an opened port, as a browser uses it."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.applications import ENVIRONMENT, archive_of, put
from tests.support.box import PATIENCE, Box
from tests.support.ports import ADMIN, OpenBox, opened_port
from tests.support.previews import Previews, previews

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

PORT = 8888
# Each thread of pyzmq sets its own scheduling; a kernel has several.
KERNEL = """
import sys
from jupyter_client.manager import KernelManager
manager = KernelManager(transport=sys.argv[1])
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
said = []
def hook(message):
    said.append(message["content"].get("text") or message["content"].get("data"))
reply = client.execute_interactive("print('cell'); 6 * 7", timeout=60, output_hook=hook)
print(reply["content"]["status"], [each for each in said if each])
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return archive_of("jupyter", tmp_path_factory.mktemp("applications"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(control_plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(control_plane) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(control_plane: ControlPlane, archive: bytes) -> Box:
    box = await Box.create(control_plane, "high")
    await put(box, archive)
    return box


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
async def test_a_kernel_runs_a_cell(box: Box, transport: str) -> None:
    done = await box.python(KERNEL, transport, env=ENVIRONMENT)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("ok ['cell\\n', {'text/plain': '42'}]"), done.stdout


# As `python3 -m jupyter_server`. The server says that it runs before its loop begins, whose first
# callback binds its port; the second one says that it listens.
SERVER = """
import sys
from jupyter_server.serverapp import ServerApp
app = ServerApp.instance()
app.initialize(sys.argv[1:])
app.io_loop.add_callback(print, "it listens", flush=True)
app.start()
"""
TOKEN = secrets.token_hex(16)
# What a browser says of a request that a page of a port makes: it has no origin, and no cookies.
PAGE = {"Origin": "null", "Sec-Fetch-Site": "cross-site"}


@asynccontextmanager
async def server(box: Box, shown: Previews, *, based: bool) -> AsyncIterator[OpenBox]:
    """A server behind its open port; `based`: below its link's path."""
    port = await opened_port(box, shown, PORT)
    base = [f"--ServerApp.base_url={port.link}/"] if based else []
    command = await box.start(
        argv=[
            *("python3", "-c", SERVER, "--no-browser", "--ServerApp.ip=127.0.0.1"),
            *(
                f"--ServerApp.port={PORT}",
                "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={TOKEN}",
                *base,
            ),
        ],
        env=ENVIRONMENT,
        background=True,
    )
    try:
        await box.printed(command, "it listens")
        yield port
    finally:
        await box.cancel(command)
        await box.plane.ports.close(ADMIN, box.session, PORT)


@pytest.mark.parametrize("based", [False, True])
async def test_a_server_and_a_kernel_by_its_websocket(
    box: Box, shown: Previews, based: bool
) -> None:
    async with server(box, shown, based=based) as port:
        page = await port.get(f"/?token={TOKEN}")
        assert "A Jupyter Server is running." in await page.text()
        # Below the base path, the page's own links lead to the port.
        link = re.search(r'href="([^"]+[.]css[^"]*)"', await page.text())
        assert link is not None
        assert link[1].startswith(port.link) is based
        style = await port.get(link[1].removeprefix(port.link), **PAGE)
        assert style.status == 200
        for proof, status in (({}, 403), ({"Authorization": f"token {TOKEN}"}, 201)):
            url = f"{port.link}/api/kernels"
            made = await shown.ask("POST", url, headers=PAGE | proof, json={})
            assert made.status == status, await made.text()
        kernel = (await made.json())["id"]
        url = f"{shown.origin}{port.link}/api/kernels/{kernel}/channels?token={TOKEN}"
        async with shown.client.ws_connect(url, headers=PAGE) as socket:
            await socket.send_json(execute("6 * 7"))
            async with asyncio.timeout(PATIENCE):
                while (message := await socket.receive_json())["msg_type"] != "execute_result":
                    pass
        assert message["content"]["data"] == {"text/plain": "42"}


def execute(code: str) -> dict[str, Any]:
    """A request to run a cell, in the form of a browser's page."""
    header = {
        **{"msg_id": "1", "session": "page", "username": "", "version": "5.3"},
        **{"msg_type": "execute_request", "date": "2026-01-01T00:00:00Z"},
    }
    content = {"code": code, "silent": False, "allow_stdin": False}
    return {
        **{"header": header, "parent_header": {}, "metadata": {}, "content": content},
        **{"channel": "shell", "buffers": []},
    }
