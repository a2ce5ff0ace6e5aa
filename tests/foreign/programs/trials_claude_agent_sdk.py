"""The Claude Agent SDK starts `paddock mcp` and lists its tools; no model is called."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

from paddock import Paddock, PaddockSync

pytestmark = pytest.mark.anyio
SERVERS: Any = {
    "paddock": {"type": "stdio", "command": "paddock", "args": ["mcp", "--level", "high"]}
}
_SECONDS = 120


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def live() -> list[str]:
    with PaddockSync() as paddock:
        return [each.id for each in paddock.sessions.list() if each.info.live]


async def ended(name: str) -> None:
    """Waits for the session's end; its events end with it."""
    async with Paddock() as paddock:
        session = await paddock.sessions.get(name)
        with anyio.fail_after(_SECONDS):
            async for _ in session.events():
                pass


async def status(client: ClaudeSDKClient) -> Any:
    """What the SDK says of the server once it is connected, or has failed: it tells no events."""
    with anyio.fail_after(_SECONDS):
        while True:
            (found,) = [
                each
                for each in (await client.get_mcp_status())["mcpServers"]
                if each["name"] == "paddock"
            ]
            if found["status"] != "pending":
                return found
            await anyio.sleep(0.1)


async def test_the_server_is_started_and_its_tools_are_listed(tmp_path: Path) -> None:
    options = ClaudeAgentOptions(
        mcp_servers=SERVERS,
        allowed_tools=["mcp__paddock__exec"],
        setting_sources=[],
        cwd=tmp_path,
        env={"CLAUDE_CONFIG_DIR": str(tmp_path), "DISABLE_TELEMETRY": "1"},
    )
    async with ClaudeSDKClient(options) as client:
        found = await status(client)
        assert found["status"] == "connected", found
        (session,) = live()
        tools = {tool["name"] for tool in found["tools"]}
    assert {"exec", "read_file", "write_file", "run_in_shell"} <= tools
    await ended(session)
    assert live() == []
