"""Oneshot tools over HTTP: decided by their manifest, run as the level's commands are."""

from pathlib import Path

import pytest

from api.client import Paddock, PermissionDeniedError
from orchestrator.config import Settings
from tests.api.conftest import OPERATOR_KEY, Api
from tests.unit.test_tool_oneshot import FETCH


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fetch.clad.toml").write_text(FETCH)
    scope = tmp_path / "scope.toml"
    scope.write_text('[scope]\ndomains = ["api.example.com"]')
    return settings.model_copy(update={"tools_dir": tools, "scope_file": scope})


async def test_a_handle_runs_it(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    listed = (await api.json("GET", path + "/tools", key=session["handle"]))["items"]
    (fetch,) = [each for each in listed if each["name"] == "fetch"]
    assert (fetch["allowed"], fetch["input_schema"]["required"]) == (True, ["url"])
    body = {"tool": "fetch", "arguments": {"url": "https://api.example.com/"}}
    result = await api.json("POST", path + "/exec", json=body, key=session["handle"])
    assert result["exit_code"] == 0
    (started,) = (await api.json("GET", path + "/audit?operation=command.start"))["items"]
    words = ["curl", "-s", "-X", "GET", "https://api.example.com/"]
    assert (started["args"]["argv"], started["args"]["tool"]) == (words, "fetch")
    assert started["args"]["timeout"] == 60


async def test_the_client_runs_it(api: Api) -> None:
    async with Paddock(str(api.server.make_url("/")), OPERATOR_KEY) as paddock:
        session = await paddock.sessions.create(permission_level="high")
        arguments = {"url": "https://api.example.com/"}
        assert (await session.run_tool("fetch", arguments, timeout=9)).exit_code == 0
        with pytest.raises(PermissionDeniedError) as refusal:
            await session.run_tool("fetch", {"url": "https://evil.example.org/"})
        assert refusal.value.rule == "scope"


async def test_secrets_choose_no_other_program(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    body = {"tool": "fetch", "arguments": {"url": "https://api.example.com/"}}
    secrets = {"secrets": {"PATH": "/workspace/programs"}}
    await api.problem(400, "validation_error", "POST", path + "/exec", json=body | secrets)
    assert (await api.json("GET", path + "/audit?operation=command.start"))["items"] == []


async def test_what_is_refused_runs_nothing(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    body = {"tool": "fetch", "arguments": {"url": "https://evil.example.org/"}}
    call = ("POST", path + "/exec")
    problem = await api.problem(403, "permission_denied", *call, json=body)
    assert problem["rule"] == "scope"
    (denied,) = (await api.json("GET", path + "/audit?operation=command.start"))["items"]
    assert (denied["decision"], denied["args"]["tool"]) == ("deny", "fetch")
    await api.problem(404, "not_found", *call, json={"tool": "none"})
    other = await api.session(key=OPERATOR_KEY, permission_level="high", tools=["python3"])
    place = f"/api/sessions/{other['id']}/exec"
    problem = await api.problem(403, "permission_denied", "POST", place, json=body)
    assert problem["rule"] == "session-tools"


async def test_the_level_holds_its_words(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="low")
    body = {"tool": "fetch", "arguments": {"url": "https://api.example.com/"}}
    path = f"/api/sessions/{session['id']}/exec"
    await api.problem(403, "permission_denied", "POST", path, json=body)


@pytest.mark.parametrize(
    "body",
    [
        {"tool": "fetch", "command": "ls"},
        {"tool": "fetch", "arguments": {"url": 1}},
        {"tool": "fetch", "env": {"LANG": "C"}},
        {"command": "ls", "arguments": {"url": "x"}},
        {"tool": ""},
    ],
)
async def test_bad_requests(api: Api, body: dict[str, object]) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}/exec"
    await api.problem(400, "validation_error", "POST", path, json=body)
