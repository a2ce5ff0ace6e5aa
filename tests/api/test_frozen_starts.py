"""A sandbox that does not answer once a start is on record: every answer names what was started."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.settings.settings import Settings
from orchestrator.work.commands import execution
from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_exec import SSE
from tests.api.test_governed import TOOLS
from tests.api.test_mcp import begun
from tests.api.test_oneshot import SHOW
from tests.api.test_turns import EDIT
from tests.support.fake_agent import AgentRefusalError, Play

PATH = "/api/sessions/web-1"


@pytest.fixture
def settings(settings: Settings, tmp_path: Any) -> Settings:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "show.clad.toml").write_text(SHOW)
    (tools / "fake.clad.toml").write_text((TOOLS / "fake.clad.toml").read_text())
    return settings.model_copy(update={"tools_dir": tools})


@pytest.fixture
async def frozen(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """The API, with a session whose sandbox is frozen."""
    monkeypatch.setattr(execution, "_START_SECONDS", 0.05)
    await api.session(id="web-1", permission_level="high", policy=EDIT, key=OPERATOR_KEY)
    api.agents.plays["cat"] = Play(b"after all\n", exit_code=3)
    api.agent.thawed.clear()
    yield api
    api.agent.thawed.set()


async def _started(api: Api) -> str:
    """The command whose start is on record."""
    audit = await api.json("GET", PATH + "/audit?operation=command.start")
    (event,) = audit["items"]
    return str(event["args"]["command_id"])


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"argv": ["cat"]}, {}),
        ({"argv": ["cat"]}, SSE),
        ({"argv": ["cat"], "background": True}, {}),
        ({"tool": "show", "arguments": {"name": "notes"}}, {}),
    ],
)
async def test_an_exec_names_its_command_and_its_end_is_told(
    frozen: Api, body: dict[str, Any], headers: dict[str, str]
) -> None:
    api = frozen
    problem = await api.problem(
        502, "sandbox_unavailable", "POST", PATH + "/exec", json=body, headers=headers
    )
    command_id = await _started(api)
    assert problem["command_id"] == command_id
    assert f"command {command_id} may be running" in problem["detail"]
    (shown,) = (await api.json("GET", PATH + "/processes"))["items"]
    assert (shown["command_id"], shown["status"]) == (command_id, "running")
    # Then it runs, and who asks gets its result.
    api.agent.thawed.set()
    await api.agent.asked("exec")
    response = await api.call("GET", f"{PATH}/processes/{command_id}/output")
    assert await response.read() == b"after all\n"
    shown = await api.json("GET", f"{PATH}/processes/{command_id}")
    assert (shown["status"], shown["exit"]["exit_code"]) == ("exited", 3)


async def test_turns_name_their_command(frozen: Api) -> None:
    operation = {"operation": "world.run", "args": {"command": "cat"}}
    turn = await frozen.json("POST", PATH + "/turns", json={"operations": [operation]})
    assert turn["outcome"]["tag"] == "error"
    assert f"command {await _started(frozen)} may be running" in turn["outcome"]["message"]


async def test_tools_of_the_protocol_name_their_command(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_START_SECONDS", 0.05)
    talk = await begun(api, permission_level="high")
    api.agent.thawed.clear()
    for tool in ("exec", "start_process"):
        result = await talk.call(tool, argv=["cat"])
        command_id = (await talk.events("command.start"))[-1]["args"]["command_id"]
        assert result["isError"]
        assert result["structuredContent"]["command_id"] == command_id
        assert command_id in result["content"][0]["text"]
    api.agent.thawed.set()


async def test_a_refusal_by_the_sandbox_names_its_command(api: Api) -> None:
    def refuse(_params: Any) -> Any:
        raise AgentRefusalError("permission_denied", "not here", "path-outside-workspace")

    await api.session(id="web-1", permission_level="high")
    api.agent.overrides["exec"] = refuse
    body: dict[str, Any] = {"argv": ["cat"]}
    problem = await api.problem(403, "permission_denied", "POST", PATH + "/exec", json=body)
    assert problem["command_id"] == await _started(api)
    # What was refused before its start has none.
    body = {"argv": ["cat"], "timeout": 10**9}
    problem = await api.problem(400, "validation_error", "POST", PATH + "/exec", json=body)
    assert "command_id" not in problem


@pytest.mark.slow
async def test_a_terminal_that_does_not_start_is_named(api: Api) -> None:
    def refuse(_params: Any) -> Any:
        raise AgentRefusalError("busy", "no room for it", None)

    await api.session(id="web-1", permission_level="high")
    api.agent.overrides["pty.open"] = refuse
    problem = await api.problem(409, "busy", "POST", PATH + "/ptys", json={"tool": "fake"})
    opened = (await api.json("GET", PATH + "/audit?operation=pty.open"))["items"]
    assert re.fullmatch(r"pty-[0-9a-f]{16}", problem["pty"])
    assert [event["args"]["terminal_id"] for event in opened] == [problem["pty"]]
