"""Terminals with the client and at the command line."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from orchestrator.settings.settings import Settings
from paddock import ConflictError, NotFoundError, Paddock, PermissionDeniedError, TerminalExit
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.cli import run_beside
from tests.support.limits import WAIT_SECONDS

TOOLS = Path(__file__).parents[1] / "fixtures" / "governed"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"tools_dir": TOOLS})


async def test_an_agent_uses_a_tool(api: Api) -> None:
    url = str(api.server.make_url("/"))
    async with Paddock(url, OPERATOR_KEY) as paddock:
        session = await paddock.sessions.create(tools=["fake"], role="writer")
        assert (session.info.tools, session.info.role) == (["fake"], "writer")
        assert session.handle is not None
        agent = await paddock.sessions.attach(session.id, session.handle)
        terminal = await agent.terminals.open("fake")
        answer = await terminal.send("say", "say hello")
        assert answer.ok
        assert (answer.output, answer.approval) == ("you said say hello", None)
        with pytest.raises(PermissionDeniedError) as refusal:
            await terminal.send("say", "shout")
        assert refusal.value.rule == "pattern"
        waiting = await terminal.send("reset", "reset cache")
        assert (waiting.status, waiting.ok, waiting.output) == ("pending", False, "")
        assert waiting.approval is not None
        await paddock.approvals.approve(waiting.approval.id)
        assert (await terminal.send("reset", "reset cache", wait=10)).ok
        assert (await terminal.refresh()).interaction_count == 2
        ended = await terminal.close()
        assert ended.reason == "closed"
        assert ended.evidence is not None
        again = await agent.terminals.get(terminal.id)
        assert "INPUT" in await again.transcript()
        assert [each.id for each in await session.terminals.list()] == [terminal.id]
        with pytest.raises(ConflictError):
            await again.send("say", "say more")
        with pytest.raises(NotFoundError):
            await agent.terminals.get("pty-0000000000000000")


async def test_at_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    created = await run_beside(
        *("sessions", "create", "--id", "web-1", "--tool", "fake", "--role", "r", "--json")
    )
    assert json.loads(created.out)["tools"] == ["fake"]
    nothing = await run_beside("ptys", "list", "web-1")
    assert "no terminals" in nothing.line
    opened = await run_beside("ptys", "open", "web-1", "fake")
    pty = opened.out.strip()
    said = await run_beside("ptys", "send", "web-1", pty, "say", "say hello")
    assert (said.status, said.out) == (0, "you said say hello\n")
    shown = await run_beside("ptys", "show", "web-1", pty, "--json")
    assert (json.loads(shown.out)["id"], json.loads(shown.out)["interaction_count"]) == (pty, 1)
    assert "fake" in (await run_beside("ptys", "show", "web-1", pty)).out
    denied = await run_beside("ptys", "send", "web-1", pty, "say", "shout")
    assert (denied.status, "pattern" in denied.err) == (4, True)
    line = ("ptys", "send", "web-1", pty, "reset", "reset cache")
    pending = await run_beside(*line)
    assert (pending.status, "nothing was sent" in pending.err) == (6, True)
    waiting = asyncio.create_task(run_beside(*line, "--wait", "30", "--json"))
    (approval,) = (await api.json("GET", "/api/approvals"))["items"]
    await run_beside("approvals", "approve", approval["id"])
    assert json.loads((await waiting).out)["status"] == "success"
    api.agent.terminals.end(pty, 3, None)
    listed = await run_beside("ptys", "list", "web-1")
    assert pty in listed.out
    transcript = await run_beside("ptys", "transcript", "web-1", pty)
    assert "say hello" in transcript.out
    closed = await run_beside("ptys", "close", "web-1", pty)
    assert "exited" in closed.line
    over = await run_beside("ptys", "send", "web-1", pty, "say", "say more")
    assert (over.status, "has ended" in over.err) == (1, True)
    gone = await run_beside("ptys", "close", "web-1", "pty-0000000000000000")
    assert gone.status == 5


async def test_a_live_terminal_tells_how_its_program_ended(api: Api) -> None:
    await api.session(id="web-2", permission_level="high")
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        live = await (await paddock.sessions.get("web-2")).terminals.live()
        assert live.exit is None
        api.agent.terminals.end(live.info.id, 3, None)
        async with asyncio.timeout(WAIT_SECONDS), aclosing(live.output()) as output:
            frames = [frame async for frame in output]
        assert live.exit is not None
        assert (live.exit.exit_code, live.exit.signal, live.exit.reason) == (3, None, "exited")
        assert isinstance(frames[-1], TerminalExit)
        await live.close()
