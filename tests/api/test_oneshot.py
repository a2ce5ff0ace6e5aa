"""Oneshot tools over HTTP: decided by their manifest, run like the level's commands."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import SessionTerminatedError
from orchestrator.ground.events import EventDraft
from orchestrator.record.audit import query
from orchestrator.settings.settings import Settings
from orchestrator.state.session import MAX_RUNNING
from paddock import ApprovalPendingError, Paddock, PermissionDeniedError
from sandbox_agent.decide.protocol import Message
from tests.api.conftest import OPERATOR_KEY, Api
from tests.support.cases import each
from tests.support.cli import run_beside
from tests.support.fake_agent import Play
from tests.support.keys import entry
from tests.support.restart import reopened
from tests.support.until import until
from tests.unit.test_tool_oneshot import FETCH

WIPE = """
[tool]
name = "wipe"
risk_tier = "high"
human_approval = true
[args.table]
type = "string"
pattern = "^[a-z]+$"
description = "What is wiped"
[args.mode]
type = "enum"
required = false
allowed = ["soft", "hard"]
default = "soft"
[command]
template = "rm --{mode} {table}"
[output]
"""
SHOW = """
[tool]
name = "show"
[tool.evidence]
capture = true
[args.name]
type = "string"
pattern = "^[a-z]+$"
[command]
template = "cat {name}"
[output]
"""
CALL = {"tool": "wipe", "arguments": {"table": "users"}}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fetch.clad.toml").write_text(FETCH)
    (tools / "wipe.clad.toml").write_text(WIPE)
    (tools / "show.clad.toml").write_text(SHOW)
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


@each(
    "body",
    [
        {"tool": "fetch", "command": "ls"},
        {"tool": "fetch", "arguments": {"url": 1}},
        {"tool": "fetch", "env": {"LANG": "C"}},
        {"command": "ls", "arguments": {"url": "x"}},
        {"command": "ls", "wait": 1},
        {"tool": "fetch", "wait": 601},
        {"tool": ""},
    ],
)
async def test_bad_requests(api: Api, body: dict[str, object]) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}/exec"
    await api.problem(400, "validation_error", "POST", path, json=body)


async def asked(api: Api) -> str:
    """Waits until an approval is pending; returns its id."""
    seq = 0
    while not (items := (await api.json("GET", "/api/approvals?status=pending"))["items"]):
        (session,) = api.plane.sessions.registry.live
        seq = await api.plane.ledger.wait(session.key, seq)
    return str(items[0]["id"])


async def decide(api: Api, decision: str) -> None:
    body = {"decision": decision, "reason": None}
    await api.json("POST", f"/api/approvals/{await asked(api)}", json=body, key=OPERATOR_KEY)


async def started(api: Api, path: str) -> list[dict[str, Any]]:
    items = (await api.json("GET", path + "/audit?operation=command.start"))["items"]
    return [event for event in items if event["decision"] == "allow"]


async def test_nothing_runs_before_a_person_has_approved_it(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    listed = (await api.json("GET", path + "/tools", key=session["handle"]))["items"]
    (wipe,) = [each for each in listed if each["name"] == "wipe"]
    assert (wipe["allowed"], wipe["human_approval"]) == (True, True)
    call: dict[str, Any] = {"method": "POST", "path": path + "/exec", "json": CALL}
    call["key"] = session["handle"]
    for _ in range(2):  # asking again creates no second approval
        pending = await api.json(**call, status=202)
        assert (pending["status"], pending["approval"]["id"]) == ("pending", await asked(api))
    approval = pending["approval"]
    assert (approval["command"], approval["tool"]) == ("rm --soft users", "wipe")
    assert (approval["terminal_id"], approval["risk_tier"]) == ("", "high")
    assert await started(api, path) == []
    await decide(api, "approve")
    assert (await api.json(**call))["exit_code"] == 0
    (event,) = await started(api, path)
    assert event["args"]["argv"] == ["rm", "--soft", "users"]
    assert event["args"]["approval"] == approval["id"]
    # The approval was for one run.
    again = await api.json(**call, status=202)
    assert again["approval"]["id"] != approval["id"]
    assert len(await started(api, path)) == 1


async def test_an_approval_is_of_exactly_these_words(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    await api.json("POST", path + "/exec", json=CALL, status=202)
    await decide(api, "approve")
    other = {"tool": "wipe", "arguments": {"table": "users", "mode": "hard"}}
    pending = await api.json("POST", path + "/exec", json=other, status=202)
    assert pending["approval"]["command"] == "rm --hard users"
    assert await started(api, path) == []


async def test_a_call_waits_for_the_word_and_a_no_runs_nothing(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    call: dict[str, Any] = {"method": "POST", "path": path + "/exec", "json": {**CALL, "wait": 30}}
    waiting = asyncio.create_task(api.json(**call))
    await decide(api, "approve")
    assert (await waiting)["exit_code"] == 0
    refused = asyncio.create_task(api.problem(403, "permission_denied", **call))
    await decide(api, "deny")
    assert (await refused)["rule"] == "human-approval"
    assert len(await started(api, path)) == 1


@pytest.mark.parametrize("more", [{"cwd": "x"}, {"stdin": "y"}, {"stdin_open": True}])
async def test_a_person_approves_the_words_and_nothing_else(
    api: Api, more: dict[str, object]
) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}/exec"
    problem = await api.problem(400, "validation_error", "POST", path, json=CALL | more)
    assert problem["field"] == next(iter(more))
    assert (await api.json("GET", "/api/approvals"))["items"] == []


async def test_what_the_level_refuses_asks_nobody(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    await api.json("PUT", path + "/settings", json={"settings": {"permission_level": "medium"}})
    await api.problem(403, "permission_denied", "POST", path + "/exec", json=CALL)
    assert (await api.json("GET", "/api/approvals"))["items"] == []


async def test_nobody_is_asked_to_read_without_end(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    call = {"tool": "wipe", "arguments": {"table": "x" * 8192}}
    path = f"/api/sessions/{session['id']}/exec"
    problem = await api.problem(403, "permission_denied", "POST", path, json=call)
    assert problem["rule"] == "too-long"
    assert (await api.json("GET", "/api/approvals"))["items"] == []


async def test_an_approval_that_could_not_be_used_stays(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    await api.json("POST", path + "/exec", json=CALL, status=202)
    await decide(api, "approve")
    api.agent.plays["make"] = Play(holds=True)
    for _ in range(MAX_RUNNING):
        body = {"argv": ["make"], "background": True}
        first = await api.json("POST", path + "/exec", json=body, status=202)
    await api.problem(409, "busy", "POST", path + "/exec", json=CALL)
    api.agent.end(first["command_id"], 0)
    await api.json("GET", f"{path}/processes/{first['command_id']}?after=0")
    (live,) = api.plane.sessions.registry.live
    await live.commands[first["command_id"]].done
    assert (await api.json("POST", path + "/exec", json=CALL))["exit_code"] == 0


@pytest.mark.parametrize("suspended", [False, True])
async def test_nothing_can_be_approved_once_the_session_has_ended(
    api: Api, suspended: bool
) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    pending = await api.json("POST", path + "/exec", json=CALL, status=202)
    if suspended:
        (live,) = api.plane.sessions.registry.live
        assert await api.plane.sessions.suspensions.suspend(live, "room")
    await api.json("DELETE", path)
    place = f"/api/approvals/{pending['approval']['id']}"
    body = {"decision": "approve", "reason": None}
    await api.problem(409, "conflict", "POST", place, json=body, key=OPERATOR_KEY)
    (expired,) = (await api.json("GET", "/api/approvals"))["items"]
    assert (expired["status"], expired["reason"]) == ("expired", "the session has ended")


async def test_the_client_waits_for_a_person(api: Api) -> None:
    async with Paddock(str(api.server.make_url("/")), OPERATOR_KEY) as paddock:
        session = await paddock.sessions.create(permission_level="high")
        with pytest.raises(ApprovalPendingError) as pending:
            await session.run_tool("wipe", {"table": "users"})
        await paddock.approvals.approve(pending.value.approval_id)
        assert (await session.run_tool("wipe", {"table": "users"}, wait=9)).exit_code == 0


async def test_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    await api.session(id="web-1", key=OPERATOR_KEY, permission_level="high")
    api.agent.plays["rm"] = Play(b"gone\n", b"all of it\n", exit_code=3)
    shown = await run_beside("tools", "arguments", "web-1", "wipe")
    assert (shown.status, "What is wiped" in shown.out) == (0, True)
    assert "soft | hard (else soft)" in shown.out
    line = ("tools", "run", "web-1", "wipe", "table=users", "mode=hard")
    pending = await run_beside(*line)
    assert (pending.status, "waits for an approval" in pending.line) == (6, True)
    assert "--wait" in pending.line
    running = asyncio.create_task(run_beside(*line, "--wait", "30"))
    await decide(api, "approve")
    done = await running
    assert (done.status, done.out, done.err) == (3, "gone\n", "all of it\n")
    assert (await run_beside("tools", "run", "web-1", "wipe", "users")).status == 2
    assert (await run_beside("tools", "arguments", "web-1", "none")).status == 5
    nothing = await run_beside("tools", "run", "web-1", "wipe", "table=users", "of=it")
    assert (nothing.status, "there is no argument of" in nothing.line) == (4, True)


EVIL = {"tool": "fetch", "arguments": {"url": "https://evil.example.org/"}}


async def test_what_is_refused_is_told_without_secrets(
    api: Api, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    token = "tok-2b1f9c07d4e8"
    body = {
        "tool": "fetch",
        "arguments": {"url": f"https://{token}.example.org/"},
        "secrets": {"SECRET_T": token},
    }
    problem = await api.problem(403, "permission_denied", "POST", path + "/exec", json=body)
    assert problem["rule"] == "scope"
    (denied,) = (await api.json("GET", path + "/audit?operation=command.start"))["items"]
    assert denied["decision"] == "deny"
    body = {"tool": f"none-{token}", "secrets": {"SECRET_T": token}}
    unknown = await api.problem(404, "not_found", "POST", path + "/exec", json=body)
    on_disk = b"".join(
        file.read_bytes() for file in settings.state_dir.rglob("*") if file.is_file()
    )
    assert token not in f"{problem}{denied}{unknown}{caplog.text}"
    assert token.encode() not in on_disk


async def test_nothing_is_added_to_the_record_of_a_session_that_ended(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY, permission_level="high")
    path = "/api/sessions/box"
    await api.json("POST", path + "/complete")
    await api.problem(410, "session_terminated", "POST", path + "/exec", json=EVIL)
    events = (await api.json("GET", path + "/audit"))["items"]
    assert [event["operation"] for event in events] == ["session.create", "session.terminated"]
    (found,) = api.plane.sessions.registry.all
    recorder = api.plane.executions._recorder
    with pytest.raises(SessionTerminatedError):
        await recorder.refuse(
            found, EventDraft("command.start", actor="x", rule="scope", args={}, error="no")
        )
    with pytest.raises(SessionTerminatedError):
        await recorder.record(found, EventDraft("agent.violation", actor="system"))
    assert recorder._refusals._counted == {}


async def test_nothing_is_refused_on_record_while_a_session_ends(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY, permission_level="high")
    path = "/api/sessions/box"
    removing = api.engine.hang_next("resume")
    end = asyncio.create_task(api.call("DELETE", path))
    await until(lambda: "resume" in api.engine.calls)
    problem = await api.call("POST", path + "/exec", json=EVIL)
    assert problem.status in (409, 410)
    removing.set()
    await end
    events = (await api.json("GET", path + "/audit"))["items"]
    operations = [event["operation"] for event in events]
    assert operations == ["session.create", "session.close", "session.terminated"]


async def test_a_key_runs_its_own_tools(api: Api) -> None:
    """The new entry also applies to sessions that already exist."""
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    api.plane.settings.keys_path.write_text(
        entry("operator", OPERATOR_KEY, more='tools = ["other"]')
    )
    await api.plane.reload.look()
    body = {"tool": "fetch", "arguments": {"url": "https://api.example.com/"}}
    for key in (OPERATOR_KEY, session["handle"]):
        call = ("POST", path + "/exec")
        problem = await api.problem(403, "permission_denied", *call, json=body, key=key)
        assert problem["rule"] == "key-tools"
    assert "exec" not in [method for method, _ in api.agent.requests]
    events = (await api.json("GET", path + "/audit?operation=command.start"))["items"]
    found = [(event["decision"], event["rule"], event["args"]["tool"]) for event in events]
    assert found == [("deny", "key-tools", "fetch")] * 2


async def test_what_is_captured_waits_for_that(api: Api) -> None:
    """The output is not sent with the command's end, and other readers do not discard it."""
    session = await api.session(permission_level="high")
    api.agents.plays["cat"] = Play(stdout=b"said")
    found = api.plane.sessions.registry.get(session["id"])
    assert found is not None
    path = f"/api/sessions/{session['id']}"
    body = {"tool": "show", "arguments": {"name": "x"}}
    async with found.capturing:
        running = asyncio.create_task(api.json("POST", path + "/exec", json=body))
        await api.agent.asked("output")  # the caller's
    result = await running
    assert (result["stdout"], result["evidence"]["bytes"]) == ("said", 4)
    asked = api.agent.requests
    (started,) = [params for method, params in asked if method == "exec"]
    assert (started["collect"], started["unread"]) == (False, True)
    assert all(params["looks"] for method, params in asked if method == "output")
    # Without a capture, the output is sent with the command's end.
    await api.json("POST", path + "/exec", json={"argv": ["cat", "x"]})
    started = [params for method, params in asked if method == "exec"][-1]
    assert (started["collect"], started["unread"]) == (True, False)


async def test_a_stop_tells_nothing_of_evidence_that_it_interrupts(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox goes on running, so a missing agent is not the reason."""
    session = await api.session(permission_level="high")
    api.agents.plays["cat"] = Play(stdout=b"said")

    async def silent(_params: object) -> Message:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(api.agent, "_on_output", silent)
    body = {"tool": "show", "arguments": {"name": "x"}, "background": True}
    path = f"/api/sessions/{session['id']}"
    assert (await api.call("POST", path + "/exec", json=body)).status == 202
    await api.agent.asked("output")
    found = api.plane.sessions.registry.get(session["id"])
    assert found is not None
    assert found.sandbox is not None
    close = found.sandbox.link.close

    async def closed() -> None:
        await close()
        await until(lambda: all(command.settled for command in found.commands.values()))

    monkeypatch.setattr(found.sandbox.link, "close", closed)
    await api.plane.close()
    plane = await reopened(settings, api.engine, api.agents)
    try:
        operations = [each["operation"] for each in await query.events(plane.database, found.key)]
        assert "command.exit" in operations, operations
        assert "command.evidence" not in operations
    finally:
        await plane.close()
