"""The Model Context Protocol with the official client and real sandboxes, over HTTP and stdio."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import (
    LoggingMessageNotification,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
)

from paddock import Paddock
from tests.integration.test_cli import paddock as program
from tests.support.limits import PROGRAM_SECONDS
from tests.support.server import ROOT, Server, leaving_nothing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(sandbox_image: str) -> AsyncIterator[Server]:
    """A server; at its end, nothing that the sessions made is left."""
    async with leaving_nothing(PADDOCK_IMAGE=sandbox_image) as running:
        yield running


async def job(client: Client) -> None:
    """Writes a program and its data, runs it, and is refused what the level does not allow."""
    said = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        said.append(message)

    await called(client, "write_file", path="numbers.txt", text="1\n2\n39\n")
    words = {"argv": ["cat", "numbers.txt"]}
    result = await client.call_tool("exec", words, progress_callback=progress)
    assert (result.structured_content or {})["stdout"] == "1\n2\n39\n"
    assert "".join(each or "" for each in said) == "1\n2\n39\n"
    assert (await called(client, "exec", argv=["wc", "-l", "numbers.txt"]))["stdout"].split() == [
        "3",
        "numbers.txt",
    ]
    refused = await client.call_tool("exec", {"argv": ["rm", "/etc/passwd"]})
    assert refused.is_error
    assert (refused.structured_content or {})["rule"] == "path-outside-workspace"
    refused = await client.call_tool("exec", {"argv": ["python3", "-c", "open('x', 'w')"]})
    assert (refused.structured_content or {})["rule"] == "command-allowlist"
    listed = await called(client, "list_files")
    assert [entry["path"] for entry in listed["items"]] == ["numbers.txt"]


class Told:
    """What a server says without a request."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, message: Any) -> None:
        await self._messages.put(message)

    async def next(self, kind: type[Any]) -> Any:
        """The next notification of that kind."""
        async with asyncio.timeout(PROGRAM_SECONDS):
            while True:
                message = await self._messages.get()
                if isinstance(message, kind):
                    return message


async def look(client: Client, told: Told) -> None:
    """Asks for prompts and completions, and is told of changes and events."""
    prompt = await client.get_prompt("level_rules")
    assert "permission level is low" in prompt.messages[0].content.text  # type: ignore[union-attr]
    manual = await client.get_prompt("tool_manual", {"tool": "psql"})
    assert "psql__" in manual.messages[0].content.text  # type: ignore[union-attr]
    await called(client, "make_directory", path="src/deep")
    await called(client, "write_file", path="src/main.py", text="1\n")
    files = ResourceTemplateReference(type="ref/resource", uri="paddock://files/{+path}")
    for typed, values in (("s", ["src/"]), ("src/", ["src/deep/", "src/main.py"]), ("x", [])):
        found = await client.complete(files, {"name": "path", "value": typed})
        assert found.completion.values == values
    uri = "paddock://files/src/main.py"
    await client.subscribe_resource(uri)
    await called(client, "exec", argv=["touch", "src/main.py"])
    assert str((await told.next(ResourceUpdatedNotification)).params.uri) == uri
    (content,) = (await client.read_resource(uri)).contents
    assert content.text == "1\n"  # type: ignore[union-attr]
    await client.set_logging_level("warning")
    await client.call_tool("exec", {"argv": ["rm", "/etc/passwd"]})
    logged = (await told.next(LoggingMessageNotification)).params
    assert (logged.level, logged.logger) == ("warning", "command.start")
    assert logged.data["rule"] == "path-outside-workspace"


async def called(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    return result.structured_content or {}


async def test_a_job_over_http_with_a_handle(server: Server) -> None:
    async with Paddock(server.url, server.key) as paddock, AsyncExitStack() as stack:
        session = await paddock.sessions.create(permission_level="low")
        stack.push_async_callback(session.close, purge=True)
        headers = {"Authorization": f"Bearer {session.handle}"}
        url = f"{server.url}/api/sessions/{session.id}/mcp"
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            await job(client)
            audit = (await client.read_resource("paddock://audit")).contents[0]
            events = json.loads(audit.text)["items"]  # type: ignore[union-attr]
        decided = [
            (event["operation"], event["decision"], event["rule"])
            for event in events
            if event["actor"] == f"handle:{session.id}" and event["operation"] != "command.exec"
        ]
        assert "file.write" in {event["operation"] for event in events}
        assert ("command.start", "deny", "path-outside-workspace") in decided
        assert ("command.start", "deny", "command-allowlist") in decided
        assert [rest[0] for rest in decided if rest[1] == "allow"].count("command.start") == 2
        assert (await session.audit.verify()).ok
        assert b"39" in await session.files.read("numbers.txt")


# The client knows a later version, which has other requests for this.
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_what_clients_are_told_over_http(server: Server) -> None:
    async with Paddock(server.url, server.key) as paddock, AsyncExitStack() as stack:
        session = await paddock.sessions.create(permission_level="low")
        stack.push_async_callback(session.close, purge=True)
        headers = {"Authorization": f"Bearer {session.handle}"}
        url = f"{server.url}/api/sessions/{session.id}/mcp"
        told = Told()
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http), message_handler=told) as client,
        ):
            await look(client, told)


# The client knows a later version, which has other requests for this.
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_what_clients_are_told_over_stdio(server: Server) -> None:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "paddock", "mcp", "--level", "low"],
        env=environment(server),
        cwd=ROOT,
    )
    told = Told()
    async with Client(stdio_client(parameters), message_handler=told) as client:
        await look(client, told)


async def test_a_job_over_stdio_ends_with_its_session(server: Server, tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("0\n")
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "paddock", "mcp", "--level", "low", "--upload", str(tmp_path)],
        env=environment(server),
        cwd=ROOT,
    )
    async with Client(stdio_client(parameters)) as client:
        assert (await called(client, "exec", argv=["cat", "numbers.txt"]))["stdout"] == "0\n"
        await job(client)
    async with Paddock(server.url, server.key) as paddock:
        assert await paddock.sessions.list(status="active") == ()


async def test_a_signal_ends_the_session(server: Server) -> None:
    async with program(server, "mcp", "--level", "low", piped=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        process.stdin.write(b"no message\n" + json.dumps(first).encode() + b"\n")
        refused = json.loads(await process.stdout.readline())
        assert refused["error"]["code"] == -32700
        answer = json.loads(await process.stdout.readline())
        assert answer["result"]["serverInfo"]["name"] == "paddock"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 128 + signal.SIGTERM
    async with Paddock(server.url, server.key) as paddock:
        assert await paddock.sessions.list(status="active") == ()


def environment(server: Server) -> dict[str, str]:
    """That of a program that finds the server and its key by the state directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    return kept | {"PADDOCK_STATE_DIR": str(server.state_dir)}
