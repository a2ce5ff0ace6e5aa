"""The published conformance suite of the Model Context Protocol.

Against a session: all that does not ask for the suite's own tools, resources and prompts. Against a
server that has these, which runs in a sandbox and is reached through an open port: all of it.
"""

from pathlib import Path

from paddock import Paddock, Session
from tests.foreign import fixture_server, mcp_suite
from tests.foreign.conftest import Keep
from tests.foreign.mcp_suite import forwarded
from tests.foreign.outcomes import judged
from tests.support.server import Server

CLIENT = "MCP conformance"
PORT = 8000
_TOOL = "asks for a tool of the suite's own"
_RESOURCE = "asks for a resource of the suite's own"
_PROMPT = "asks for a prompt of the suite's own"
# By the beginning of the check's name.
NOT_OURS = {
    "tools-call-": _TOOL,
    "json-schema-2020-12:": _TOOL,
    "elicitation-": _TOOL,
    "server-sse-polling: server-sse-disconnect-resume": _TOOL,
    "resources-read-": _RESOURCE,
    "resources-templates-read:": _RESOURCE,
    "resources-subscribe:": _RESOURCE,
    "resources-unsubscribe:": _RESOURCE,
    "prompts-get-": _PROMPT,
}


def _reasons(names: list[str]) -> dict[str, str]:
    return {
        name: reason
        for name in names
        for beginning, reason in NOT_OURS.items()
        if name.startswith(beginning)
    }


async def test_a_session(plane: Server, tmp_path: Path, keep: Keep) -> None:
    async with Paddock(plane.url, plane.key) as paddock:
        session = await paddock.sessions.create(permission_level="medium")
        try:
            headers = {"Authorization": f"Bearer {session.handle}"}
            url = f"{plane.url}/api/sessions/{session.id}/mcp"
            async with forwarded(url, headers) as address:
                found = await mcp_suite.outcomes(address, tmp_path)
        finally:
            await session.close(purge=True)
    keep(
        judged(
            found,
            _reasons(list(found)),
            client=CLIENT,
            version=mcp_suite.version(),
            suite="all, against one session",
            level="medium",
        )
    )


async def test_a_server_in_a_sandbox(plane: Server, tmp_path: Path, keep: Keep) -> None:
    async with Paddock(plane.url, plane.key) as paddock:
        session = await paddock.sessions.create(permission_level="high")
        try:
            await _serve(session)
            opened = await session.ports.open(PORT)
            async with forwarded(opened.link + "mcp", {}) as address:
                found = await mcp_suite.outcomes(address, tmp_path)
        finally:
            await session.close(purge=True)
    keep(
        judged(
            found,
            {},
            client=CLIENT,
            version=mcp_suite.version(),
            suite="all, against a server in a sandbox, through an open port",
            level="high",
        )
    )


async def _serve(session: Session) -> None:
    program = Path(fixture_server.__file__)
    await session.files.write("server.py", program.read_bytes())
    argv = ["python3", "-u", "server.py", str(PORT)]
    command = await session.processes.start(argv=argv)
    said = b""
    async for piece in session.processes.output(command.command_id):
        said += piece
        if b"listening" in said:
            return
    raise AssertionError(said.decode())
