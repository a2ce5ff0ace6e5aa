"""Tools over HTTP: opened, gated line by line, approved by people, bounded by budgets."""

import asyncio
import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.tools.catalog import read_catalog
from orchestrator.settings.settings import Settings
from orchestrator.state.session import MAX_RUNNING
from orchestrator.work.terminals.evidence_files import RAW_NAME
from paddock.contract.words import Kind
from tests.api.conftest import OPERATOR_KEY, Api
from tests.support.cases import each

TOOLS = Path(__file__).parents[1] / "fixtures" / "governed"
ADMIN = Principal("admin", Role.ADMIN)
NOBODY = 'permit(principal == Fake::Agent::"writer", action, resource);\n'


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"tools_dir": TOOLS})


class Agent:
    """A client with a session's handle, and the requests that it may send for the session."""

    def __init__(self, api: Api, session: dict[str, Any]) -> None:
        self.api = api
        self.session = session
        self.path = f"/api/sessions/{session['id']}/ptys"

    async def open(self, tool: str = "fake") -> str:
        opened = await self.api.json("POST", self.path, json={"tool": tool}, status=201, **self.key)
        assert opened["status"] == "ready"
        return str(opened["id"])

    @property
    def key(self) -> dict[str, Any]:
        return {"key": self.session["handle"]}

    def line(self, terminal: str, text: str, tool: str = "fake.say", **more: Any) -> dict[str, Any]:
        """The arguments of a call that sends the line."""
        return {
            "method": "POST",
            "path": f"{self.path}/{terminal}/interactions",
            "json": {"tool": tool, "command": text, **more},
            **self.key,
        }

    async def events(self, operation: str) -> list[dict[str, Any]]:
        path = f"/api/sessions/{self.session['id']}/audit?operation={operation}"
        items: list[dict[str, Any]] = (await self.api.json("GET", path))["items"]
        return items


async def agent(api: Api, **body: Any) -> Agent:
    return Agent(api, await api.session(key=OPERATOR_KEY, **{"permission_level": "medium", **body}))


def written(api: Api, terminal: str) -> bytes:
    """The tool's whole output, which echoes every line that reached it."""
    return api.agent.terminals.all[terminal].said


async def test_a_handle_opens_asks_lists_and_closes(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    answer = await api.json(**mine.line(terminal, "say hello"))
    assert (answer["status"], answer["approval"]) == ("success", None)
    assert answer["results"] == {
        "prompt": "tool=>",
        "output": "you said say hello",
        "session_state": "ready",
        "interaction_count": 1,
    }
    assert [item["id"] for item in (await api.json("GET", mine.path, **mine.key))["items"]] == [
        terminal
    ]
    closed = await api.json("DELETE", f"{mine.path}/{terminal}", **mine.key)
    assert (closed["reason"], closed["interaction_count"]) == ("closed", 1)
    problem = await api.problem(409, "conflict", **mine.line(terminal, "say more"))
    assert problem["reason"] == "closed"
    (asked,) = await mine.events("pty.interaction")
    assert asked["actor"] == f"handle:{mine.session['id']}"
    assert (asked["decision"], asked["rule"]) == ("allow", "allowed")


@each(
    ("tool", "text", "rule"),
    [
        ("fake.shout", "say hello", "unknown-tool"),
        ("other.say", "say hello", "unknown-tool"),
        ("fake.say", "say hello; ls", "input-sanitize"),
        ("fake.say", "say\thello", "control-character"),
        ("fake.say", "hello", "pattern"),
        ("fake.say", "destroy all", "pattern"),
        ("fake.destroy", "destroy all", "risk-tier"),
    ],
)
async def test_what_the_gates_deny_reaches_nothing(
    api: Api, tool: str, text: str, rule: str
) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    before = written(api, terminal)
    problem = await api.problem(403, "permission_denied", **mine.line(terminal, text, tool))
    assert (problem["rule"], problem["pty"]) == (rule, terminal)
    assert written(api, terminal) == before
    (denied,) = await mine.events("pty.interaction")
    assert (denied["decision"], denied["rule"]) == ("deny", rule)


@each(
    ("body", "field"),
    [
        ({}, "tool"),
        ({"tool": "fake.say"}, "command"),
        ({"tool": "fake.say", "command": ""}, "command"),
        ({"tool": "fake.say", "command": 7}, "command"),
        ({"tool": "fake.say", "command": "x" * 8193}, "command"),
        ({"tool": "fake.say", "command": "a\0b"}, "command"),
        ({"tool": "fake.say", "command": "say x", "wait": -1}, "wait"),
        ({"tool": "fake.say", "command": "say x", "wait": 601}, "wait"),
        ({"tool": "fake.say", "command": "say x", "approved": True}, "approved"),
    ],
)
async def test_bad_lines_change_nothing(api: Api, body: dict[str, Any], field: str) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = {**mine.line(terminal, ""), "json": body}
    problem = await api.problem(400, "validation_error", **line)
    assert problem["field"] == field
    assert await mine.events("pty.interaction") == []


@each(
    ("body", "field"),
    [
        ({}, "tool"),
        ({"tool": ""}, "tool"),
        ({"tool": 1}, "tool"),
        ({"tool": "x" * 129}, "tool"),
        ({"tool": "fake", "argv": ["sh"]}, "argv"),
    ],
)
async def test_bad_openings_change_nothing(api: Api, body: dict[str, Any], field: str) -> None:
    mine = await agent(api)
    problem = await api.problem(400, "validation_error", "POST", mine.path, json=body)
    assert problem["field"] == field
    assert await mine.events("pty.open") == []


async def test_a_tool_that_nobody_declared_is_not_there(api: Api) -> None:
    mine = await agent(api)
    body = {"tool": "bash"}
    problem = await api.problem(404, "not_found", "POST", mine.path, json=body, **mine.key)
    assert "bash" in problem["detail"]
    assert api.agent.terminals.all == {}


async def test_a_session_opens_only_its_tools(api: Api) -> None:
    mine = await agent(api, tools=["python3"])
    assert mine.session["tools"] == ["python3"]
    body = {"tool": "fake"}
    problem = await api.problem(403, "permission_denied", "POST", mine.path, json=body, **mine.key)
    assert problem["rule"] == "session-tools"
    (denied,) = await mine.events("pty.open")
    assert (denied["decision"], denied["rule"]) == ("deny", "session-tools")
    listed = await api.json("GET", f"/api/sessions/{mine.session['id']}/tools", **mine.key)
    rules = {item["name"]: item["rule"] for item in listed["items"]}
    assert rules["fake.say"] == "session-tools"
    assert rules["python3.calculate"] is None


@each(
    ("body", "field"),
    [
        ({"role": ""}, "role"),
        ({"role": "x" * 65}, "role"),
        ({"role": 1}, "role"),
        ({"tools": "psql"}, "tools"),
        ({"tools": [""]}, "tools.0"),
        ({"tools": [1]}, "tools.0"),
        ({"tools": ["x"] * 129}, "tools"),
    ],
)
async def test_bad_members_of_sessions(api: Api, body: dict[str, Any], field: str) -> None:
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"] == field
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_the_role_is_who_policies_know(api: Api, tmp_path: Path) -> None:
    from orchestrator.rules.tools.cedar import load_policies

    (tmp_path / "writers.cedar").write_text(NOBODY)
    api.plane.reload.tools.policies = load_policies(tmp_path)
    writer, other = await agent(api, role="writer"), await agent(api)
    assert (writer.session["role"], other.session["role"]) == ("writer", "agent")
    mine, theirs = await writer.open(), await other.open()
    assert (await api.json(**writer.line(mine, "say yes")))["status"] == "success"
    problem = await api.problem(403, "permission_denied", **other.line(theirs, "say no"))
    assert problem["rule"] == "cedar"
    listed = await api.json("GET", f"/api/sessions/{other.session['id']}/tools")
    rules = {item["name"]: item["rule"] for item in listed["items"]}
    assert rules["fake.say"] == "cedar"


# Decisions by people


async def the_approval(api: Api) -> str:
    (waiting,) = (await api.json("GET", "/api/approvals?status=pending"))["items"]
    return str(waiting["id"])


async def decide(api: Api, decision: str, reason: str | None = None) -> None:
    body = {"decision": decision, "reason": reason}
    place = f"/api/approvals/{await the_approval(api)}"
    await api.json("POST", place, json=body, key=OPERATOR_KEY)


async def test_a_line_waits_for_its_approval(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "reset cache", "fake.reset")
    before = written(api, terminal)
    for _ in range(2):  # asking again creates no second approval
        pending = await api.json(**line, status=202)
        assert (pending["status"], pending["results"]) == ("pending", None)
        assert pending["approval"]["id"] == await the_approval(api)
        assert pending["approval"]["command"] == "reset cache"
    assert written(api, terminal) == before
    await decide(api, "approve")
    answer = await api.json(**line)
    assert (answer["status"], answer["approval"]["status"]) == ("success", "approved")
    assert written(api, terminal) != before
    # The approval was for one use of that line.
    assert (await api.json(**line, status=202))["approval"]["id"] != answer["approval"]["id"]
    decisions = [event["decision"] for event in await mine.events("pty.interaction")]
    assert sorted(decisions) == ["allow", *["pending"] * 4]


async def test_a_call_waits_for_the_word(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "reset cache", "fake.reset", wait=30)
    waiting = asyncio.create_task(api.json(**line))
    await asked(api)
    # The terminal can be used meanwhile.
    assert (await api.json(**mine.line(terminal, "say hello")))["status"] == "success"
    await decide(api, "approve")
    answer = await waiting
    assert (answer["status"], answer["results"]["interaction_count"]) == ("success", 2)
    assert "APPROVAL" in await (await api.call("GET", f"{mine.path}/{terminal}/transcript")).text()


async def asked(api: Api) -> None:
    """Waits until an approval is pending."""
    seq = 0
    while not (await api.json("GET", "/api/approvals?status=pending"))["items"]:
        (session,) = api.plane.sessions.registry.live
        seq = await api.plane.ledger.wait(session.key, seq)


async def test_a_denied_line_is_not_sent(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    before = written(api, terminal)
    line = mine.line(terminal, "reset cache", "fake.reset", wait=30)
    waiting = asyncio.create_task(api.problem(403, "permission_denied", **line))
    await asked(api)
    await decide(api, "deny", "not today")
    problem = await waiting
    assert problem["rule"] == "human-approval"
    assert "not today" in problem["detail"]
    assert written(api, terminal) == before


async def test_an_approval_is_of_what_is_in_the_file(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    before = written(api, terminal)
    api.agent.files["web.yaml"] = b"replicas: 1\n"
    line = mine.line(terminal, "apply web.yaml", "fake.apply")
    pending = await api.json(**line, status=202)
    digest = "sha256:" + hashlib.sha256(b"replicas: 1\n").hexdigest()
    assert pending["approval"]["files"] == {"web.yaml": digest}
    (asked,) = await mine.events("approval.request")
    assert asked["args"]["files"] == {"web.yaml": digest}
    await decide(api, "approve")
    api.agent.files["web.yaml"] = b"replicas: 1000\n"
    other = await api.json(**line, status=202)
    assert other["approval"]["id"] != pending["approval"]["id"]
    assert written(api, terminal) == before
    # The approved content is back, so it can be applied.
    api.agent.files["web.yaml"] = b"replicas: 1\n"
    answer = await api.json(**line)
    assert answer["approval"]["id"] == pending["approval"]["id"]
    # The program gets a copy under an unpredictable path.
    (copy,) = api.agent.terminals.all[terminal].sent[-1]["files"].items()
    assert re.fullmatch(r"/tmp/\.kept-[0-9a-f]{16}/0\.yaml", copy[0])
    assert base64.b64decode(copy[1]) == b"replicas: 1\n"
    assert answer["results"]["output"] == f"you said apply {copy[0]}"


async def test_a_file_that_changes_while_a_person_decides_is_not_applied(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    before = written(api, terminal)
    api.agent.files["web.yaml"] = b"replicas: 1\n"
    line = mine.line(terminal, "apply web.yaml", "fake.apply", wait=30)
    waiting = asyncio.create_task(api.problem(403, "permission_denied", **line))
    await asked(api)
    api.agent.files["web.yaml"] = b"replicas: 1000\n"
    await decide(api, "approve")
    problem = await waiting
    assert problem["rule"] == "human-approval"
    assert "web.yaml has changed" in problem["detail"]
    assert written(api, terminal) == before


@pytest.mark.parametrize(("content", "reason"), [(None, "not found"), (1024 * 1024 + 1, "bytes")])
async def test_nobody_is_asked_for_a_file_that_can_not_be_told(
    api: Api, content: int | None, reason: str
) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    if content is not None:
        api.agent.files["web.yaml"] = bytes(content)
    line = mine.line(terminal, "apply web.yaml", "fake.apply")
    problem = await api.problem(403, "permission_denied", **line)
    assert (problem["rule"], "web.yaml: " in problem["detail"]) == ("human-approval", True)
    assert (await api.json("GET", "/api/approvals"))["items"] == []


async def test_an_approval_ends_with_its_terminal(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "reset cache", "fake.reset", wait=30)
    waiting = asyncio.create_task(api.problem(409, "conflict", **line))
    await asked(api)
    await api.json("DELETE", f"{mine.path}/{terminal}", **mine.key)
    assert (await waiting)["reason"] == "closed"
    assert (await api.json("GET", "/api/approvals?status=pending"))["items"] == []
    (expired,) = (await api.json("GET", "/api/approvals"))["items"]
    assert expired["status"] == "expired"


async def test_an_approval_outlives_a_line_that_can_not_be_sent_now(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "reset cache", "fake.reset")
    approval = (await api.json(**line, status=202))["approval"]["id"]
    await decide(api, "approve")
    # First another line is in progress; later its answer is incomplete.
    api.agent.terminals.answers["say slowly"] = b""
    waiting = asyncio.create_task(api.json(**mine.line(terminal, "say slowly")))
    await api.agent.asked("pty.send")
    await api.problem(409, "busy", **line)
    api.agent.terminals.all[terminal].say(b"say slowly\r\ndone\r\ntool=> ")
    assert (await waiting)["status"] == "success"
    place = f"/api/sessions/{mine.session['id']}"
    await api.json("POST", f"{place}/pause", json={})
    await api.problem(409, "invalid_transition", **line)
    await api.json("POST", f"{place}/resume", json={})
    answer = await api.json(**line)
    assert (answer["status"], answer["approval"]["id"]) == ("success", approval)
    assert (await api.json(**line, status=202))["approval"]["id"] != approval


async def test_a_line_that_is_too_long_asks_nobody(api: Api) -> None:
    mine = await agent(api)
    api.agent.terminals.line_bytes = 10
    terminal = await mine.open()
    before = written(api, terminal)
    line = mine.line(terminal, "reset cache", "fake.reset")
    assert (await api.problem(403, "permission_denied", **line))["rule"] == "too-long"
    assert written(api, terminal) == before
    assert (await api.json("GET", "/api/approvals"))["items"] == []
    (refused,) = await mine.events("pty.interaction")
    assert (refused["decision"], refused["rule"]) == ("deny", "too-long")


async def test_a_line_too_many_asks_nobody(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    (session,) = api.plane.sessions.registry.live
    (live,) = api.plane.terminals.live(session)
    live.interactions = live.terminal.spec.max_interactions
    line = mine.line(terminal, "reset cache", "fake.reset")
    assert (await api.problem(403, "permission_denied", **line))["rule"] == "max-interactions"
    assert (await api.json("GET", "/api/approvals"))["items"] == []


async def test_policies_may_change_while_a_person_thinks(api: Api, tmp_path: Path) -> None:
    from orchestrator.rules.tools.cedar import load_policies

    mine = await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "reset cache", "fake.reset")
    await api.json(**line, status=202)
    (tmp_path / "writers.cedar").write_text(NOBODY)
    api.plane.reload.tools.policies = load_policies(tmp_path)
    await decide(api, "approve")
    assert (await api.problem(403, "permission_denied", **line))["rule"] == "cedar"


async def test_what_a_call_waited_for_is_decided_again(api: Api, tmp_path: Path) -> None:
    from orchestrator.rules.tools.cedar import load_policies

    mine = await agent(api)
    terminal = await mine.open()
    before = written(api, terminal)
    line = mine.line(terminal, "reset cache", "fake.reset", wait=30)
    waiting = asyncio.create_task(api.problem(403, "permission_denied", **line))
    await asked(api)
    (tmp_path / "writers.cedar").write_text(NOBODY)
    api.plane.reload.tools.policies = load_policies(tmp_path)
    await decide(api, "approve")
    assert (await waiting)["rule"] == "cedar"
    assert written(api, terminal) == before
    decisions = [event["decision"] for event in await mine.events("pty.interaction")]
    assert sorted(decisions) == ["deny", "pending"]


async def test_a_terminal_is_in_use_when_the_word_comes(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "reset cache", "fake.reset")
    waiting = asyncio.create_task(api.problem(409, "busy", **with_wait(line)))
    await asked(api)
    api.agent.terminals.answers["say slowly"] = b""
    slow = asyncio.create_task(api.json(**mine.line(terminal, "say slowly")))
    await api.agent.asked("pty.send")
    await decide(api, "approve")
    await waiting
    api.agent.terminals.all[terminal].say(b"say slowly\r\ndone\r\ntool=> ")
    assert (await slow)["status"] == "success"
    # The approval is still valid.
    assert (await api.json(**line))["status"] == "success"


async def test_a_denied_line_is_refused_in_a_terminal_that_is_in_use(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = with_wait(mine.line(terminal, "reset cache", "fake.reset"))
    waiting = asyncio.create_task(api.problem(403, "permission_denied", **line))
    await asked(api)
    api.agent.terminals.answers["say slowly"] = b""
    slow = asyncio.create_task(api.json(**mine.line(terminal, "say slowly")))
    await api.agent.asked("pty.send")
    await decide(api, "deny")
    assert (await waiting)["rule"] == "human-approval"
    api.agent.terminals.all[terminal].say(b"say slowly\r\ndone\r\ntool=> ")
    assert (await slow)["status"] == "success"
    assert b"reset" not in written(api, terminal)


async def test_whoever_leaves_while_a_person_thinks_leaves_terminal_and_approval(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "reset cache", "fake.reset")
    tools, session = api.plane.tools, api.plane.sessions.registry.live[0]
    waiting = asyncio.create_task(
        tools.interact(ADMIN, session, terminal, "fake.reset", "reset cache", 30)
    )
    await asked(api)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await api.json("GET", f"{mine.path}/{terminal}"))["status"] == "ready"
    assert session.budget.used(Kind.COMMANDS) == 1  # for opening the terminal
    await decide(api, "approve")
    assert (await api.json(**line))["status"] == "success"


def with_wait(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "json": {**line["json"], "wait": 30}}


# Limits


async def test_lines_and_openings_use_up_the_budget(api: Api) -> None:
    mine = await agent(api, budget={"commands": 2})
    terminal = await mine.open()
    await api.problem(403, "permission_denied", **mine.line(terminal, "nonsense"))
    await api.json(**mine.line(terminal, "say one"))
    place = f"/api/sessions/{mine.session['id']}"
    assert (await api.json("GET", f"{place}/budget"))["remaining"]["commands"] == 0
    problem = await api.problem(429, "budget_exceeded", **mine.line(terminal, "say two"))
    assert problem["kind"] == "commands"
    session = await api.json("GET", place)
    assert session["status"] == "budget-exceeded"
    ended = await api.json("GET", f"{mine.path}/{terminal}")
    assert (ended["status"], ended["interaction_count"]) == ("terminated", 1)


async def test_terminals_take_the_room_of_commands(api: Api) -> None:
    mine = await agent(api, permission_level="high")
    for _ in range(MAX_RUNNING):
        await mine.open()
    exec_path = f"/api/sessions/{mine.session['id']}/exec"
    body = {"argv": ["make"], "background": True}
    await api.problem(409, "busy", "POST", exec_path, json=body, **mine.key)
    await api.problem(409, "busy", "POST", mine.path, json={"tool": "fake"}, **mine.key)
    (first, *_) = (await api.json("GET", mine.path))["items"]
    await api.json("DELETE", f"{mine.path}/{first['id']}")
    await api.json("POST", exec_path, json=body, status=202, **mine.key)


async def test_a_paused_or_ended_session_takes_no_lines(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    place = f"/api/sessions/{mine.session['id']}"
    await api.json("POST", f"{place}/pause", json={})
    key = {"key": OPERATOR_KEY}
    line = {**mine.line(terminal, "say hello"), **key}
    await api.problem(409, "invalid_transition", **line)
    await api.problem(409, "invalid_transition", "POST", mine.path, json={"tool": "fake"}, **key)
    await api.json("POST", f"{place}/resume", json={})
    assert (await api.json(**line))["status"] == "success"
    await api.json("DELETE", place)
    await api.problem(410, "session_terminated", "POST", mine.path, json={"tool": "fake"}, **key)


async def test_others_can_do_nothing(api: Api) -> None:
    mine, other = await agent(api), await agent(api)
    terminal = await mine.open()
    line = mine.line(terminal, "say hello") | other.key
    await api.problem(404, "not_found", **line)
    await api.problem(404, "not_found", "POST", mine.path, json={"tool": "fake"}, **other.key)


async def test_a_session_is_at_work_while_a_tool_is(api: Api) -> None:
    mine = await agent(api)
    terminal = await mine.open()
    place = f"/api/sessions/{mine.session['id']}"
    view = await api.json("GET", place)
    assert (view["activity"], view["deadlines"]["idle_at"] is None) == ("idle", False)
    api.agent.terminals.answers["say slowly"] = b""
    waiting = asyncio.create_task(api.json(**mine.line(terminal, "say slowly")))
    await api.agent.asked("pty.send")
    view = await api.json("GET", place)
    assert (view["activity"], view["deadlines"]["idle_at"]) == ("running", None)
    api.agent.terminals.all[terminal].say(b"done\r\ntool=> ")
    assert (await waiting)["status"] == "success"
    assert (await api.json("GET", place))["activity"] == "idle"


@pytest.mark.parametrize("capture", [True, False])
async def test_a_manifest_says_whether_what_was_said_is_kept(
    api: Api, tmp_path: Path, capture: bool
) -> None:
    directory = tmp_path / "tools"
    directory.mkdir()
    text = (TOOLS / "fake.clad.toml").read_text()
    evidence = f"[tool.evidence]\ncapture = {str(capture).lower()}\n\n[session]\n"
    (directory / "fake.clad.toml").write_text(text.replace("[session]\n", evidence, 1))
    api.plane.reload.tools.catalog = read_catalog(directory).catalog
    mine = await agent(api)
    terminal = await mine.open()
    await api.json(**mine.line(terminal, "say secret things"))
    ended = await api.json("DELETE", f"{mine.path}/{terminal}", **mine.key)
    kept = api.plane.settings.state_dir / "evidence"
    (raw,) = kept.rglob(f"{terminal}/{RAW_NAME}")
    assert (b"you said" in raw.read_bytes()) is capture
    assert (ended["evidence"]["raw_bytes"] > 0) is capture
    assert ended["evidence"]["raw_truncated"] is not capture
