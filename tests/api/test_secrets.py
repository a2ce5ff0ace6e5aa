"""Secrets over HTTP: commands get them, and the values appear nowhere else."""

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from api.log.lines import make_formatter
from api.views.sessions import inspected
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.store.database import Database
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.link import agent_link
from orchestrator.host.node.processes import Earlier, Measured, Process, Usage
from orchestrator.record.audit.secret_cutting import MOST_AT_ONCE
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sessions.inspection import Inspection
from orchestrator.settings.settings import Settings
from orchestrator.state import session_rows
from orchestrator.state.requests import ExecRequest, NewSession
from orchestrator.state.terms import Terms
from paddock import Paddock
from paddock.contract.words import Status
from sandbox_agent.decide.redaction import MARK, Redactor
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.cases import each
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents, Play
from tests.support.kernels import FULL_KERNEL
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

ADMIN = Principal("admin", Role.ADMIN)
TOOLS = Path(__file__).parents[1] / "fixtures" / "governed"
TOKEN = "tok/2b1f9c+07d4=e8 é"
ONCE = "a secret of one command"
SECRETS = {"SECRET_TOKEN": TOKEN}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"tools_dir": TOOLS})


def forms(value: str) -> list[str]:
    """The value in every encoding in which it could leak."""
    data = value.encode()
    return [
        value,
        json.dumps(value)[1:-1],
        quote(value, safe=""),
        data.hex(),
        base64.b64encode(data).decode().rstrip("="),
    ]


def leaked(text: str, *values: str) -> list[str]:
    return [form for value in values for form in forms(value) if form in text]


def stored(state_dir: Path) -> str:
    """The content of all files of a state directory except workspaces, as text."""
    found = []
    # Unlike a glob, this skips directories that disappear meanwhile, such as those of checks.
    for directory, _, names in os.walk(state_dir):
        if "slots" in Path(directory).parts:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                found.append((Path(directory) / name).read_bytes().decode("utf-8", "replace"))
    return "".join(found)


async def recorded(api: Api, session_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.json("GET", f"/api/sessions/{session_id}/audit"))[
        "items"
    ]
    return items


@pytest.fixture
async def session(api: Api) -> dict[str, Any]:
    return await api.session(id="box", permission_level="high", secrets=SECRETS)


# Given secrets


async def test_a_session_shows_the_names_alone(api: Api, session: dict[str, Any]) -> None:
    assert session["secrets"] == ["SECRET_TOKEN"]
    ensured = await api.json("PUT", "/api/sessions/box", json={})
    listed = await api.json("GET", "/api/sessions")
    for shown in (session, ensured, listed, await api.json("GET", "/api/sessions/box")):
        assert leaked(json.dumps(shown), TOKEN) == []
    (created,) = await recorded(api, "box")
    assert created["args"]["secrets"] == ["SECRET_TOKEN"]
    assert api.agent.secrets["variables"]["SECRET_TOKEN"][0] == TOKEN


async def test_a_command_gets_its_own_besides(api: Api, session: dict[str, Any]) -> None:
    body = {"command": "deploy", "env": {"A": "b"}, "secrets": {"ONCE": ONCE}}
    await api.json("POST", "/api/sessions/box/exec", json=body, key=session["handle"])
    params = await api.agent.asked("exec")
    assert params["env"] == {"A": "b"}
    assert {name: value for name, (value, _) in params["secrets"].items()} == {"ONCE": ONCE}
    (start,) = [e for e in await recorded(api, "box") if e["operation"] == "command.start"]
    assert (start["args"]["env"], start["args"]["secrets"]) == (["A"], ["ONCE"])
    # From then on the value is cut out of all records, whatever variable holds it.
    await api.json("POST", "/api/sessions/box/exec", json={"argv": ["echo", ONCE]})
    assert leaked(json.dumps(await recorded(api, "box")), ONCE) == []


@each(
    ("secrets", "field"),
    [
        ({"A": "1234567"}, "secrets.A"),
        ({"A": ""}, "secrets.A"),
        ({"A": 12345678}, "secrets.A"),
        ({"A": None}, "secrets.A"),
        ({"A": "x" * 32_769}, "secrets.A"),
        ({"A": "é" * 16_385}, "secrets.A"),
        ({"A": "12345678\0"}, "secrets.A"),
        ({"A": "12345678\ud800"}, "secrets.A"),
        ({"A-B": "12345678"}, "secrets.A-B"),
        ({"1A": "12345678"}, "secrets.1A"),
        ({f"A{n}": "12345678" for n in range(17)}, "secrets"),
        ({"A": "a" * 32_768, "B": "b" * 32_768, "C": "c" * 8}, "secrets"),
        ([], "secrets"),
        ("12345678", "secrets"),
    ],
)
async def test_what_can_be_no_secret(
    api: Api, session: dict[str, Any], secrets: Any, field: str
) -> None:
    body = {"permission_level": "high", "secrets": secrets}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"] == field
    where = ("POST", f"/api/sessions/{session['id']}/exec")
    problem = await api.problem(
        400, "validation_error", *where, json={"command": "ls", "secrets": secrets}
    )
    assert problem["field"] == field
    assert "exec" not in [method for method, _ in api.agent.requests]


async def test_a_name_is_a_variable_or_a_secret(api: Api, session: dict[str, Any]) -> None:
    both = {"env": {"A": "x"}, "secrets": {"A": "12345678"}}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=both)
    assert "A is in env and in secrets" in problem["detail"]
    body = {"command": "ls", **both}
    await api.problem(400, "validation_error", "POST", "/api/sessions/box/exec", json=body)


@pytest.mark.parametrize("level", ["low", "medium"])
async def test_names_where_the_level_lists_variables(api: Api, level: str) -> None:
    body = {"permission_level": level, "secrets": {"LD_PRELOAD": "/workspace/own.so"}}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert "begin its name with SECRET_" in problem["detail"]
    assert leaked(json.dumps(problem), "/workspace/own.so") == []
    await api.session(id="box", permission_level=level, secrets=SECRETS)
    run = {"command": "ls", "secrets": {"LD_PRELOAD": "/workspace/own.so"}}
    where = ("POST", "/api/sessions/box/exec")
    problem = await api.problem(403, "permission_denied", *where, json=run)
    assert problem["rule"] == "environment-allowlist"
    await api.json(
        *where, json={"command": "ls", "secrets": {"SECRET_B": ONCE, "LANG": "C.UTF-8 x"}}
    )


@each(
    ("member", "value"),
    [
        ("labels", {"team": f"x{TOKEN}"}),
        ("env", {"OTHER": TOKEN}),
        ("env", {"OTHER": base64.b64encode(TOKEN.encode()).decode()}),
        ("role", TOKEN),
        ("id", "abcdefgh-1"),
    ],
)
async def test_what_is_stored_may_not_have_one_in_it(api: Api, member: str, value: Any) -> None:
    secrets = {**SECRETS, "OF_ID": "abcdefgh-1"}
    body = {"permission_level": "high", "secrets": secrets, member: value}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"] == member
    assert leaked(stored(api.plane.settings.state_dir), TOKEN) == []


# What is not shown


async def test_words_of_commands(
    api: Api, session: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.agent.plays["curl"] = Play(stdout=f"token {TOKEN}".encode(), holds=True)
    argv = ["curl", "-H", f"Authorization: {TOKEN}", f"http://x/?t={quote(TOKEN, safe='')}"]
    body = {"argv": argv, "background": True}
    shown = await api.json("POST", "/api/sessions/box/exec", json=body, status=202)
    assert shown["argv"] == ["curl", "-H", f"Authorization: {MARK}", f"http://x/?t={MARK}"]
    assert (await api.agent.asked("exec"))["argv"] == argv
    processes = [Process(1, 4000, 3999, "curl", argv, "sleeping", 0.5, 0.0, 9000)]
    measured = Measured(processes, Usage(1.5, 2.5, 9000, 3))
    monkeypatch.setattr(
        "orchestrator.host.node.local_node.measure", lambda *_: (measured, Earlier())
    )
    path = f"/api/sessions/box/processes/{shown['command_id']}"
    inspected = await api.json("GET", "/api/sessions/box")
    assert inspected["processes"][0]["argv"] == shown["argv"]
    assert leaked(json.dumps(inspected), TOKEN) == []
    assert leaked(json.dumps(await api.json("GET", "/api/sessions/box/processes")), TOKEN) == []
    # The caller gets a command's output unredacted.
    assert (await api.json("GET", path))["output"][0]["text"] == f"token {TOKEN}"
    assert leaked(json.dumps(await recorded(api, "box")), TOKEN) == []


@pytest.mark.parametrize("size", [20, 79, 200])
async def test_refusals(api: Api, size: int) -> None:
    """Also in messages that show only the beginning of a word."""
    secret = ("0123456789abcdefghijklmnopqrstuvwxyz" * 10)[:size]
    session = await api.session(id="box", permission_level="low", secrets={"SECRET_A": secret})
    for argv in (
        [secret],
        [f"/usr/bin/{secret}"],
        ["cat", f"/{secret}"],
        ["ls", f"--{secret}"],
        ["cat", f"../{quote(secret)}"],
    ):
        where = ("POST", "/api/sessions/box/exec")
        problem = await api.problem(
            403, "permission_denied", *where, json={"argv": argv}, key=session["handle"]
        )
        assert secret[:8] not in json.dumps(problem), argv
    problem = await api.problem(
        403, "permission_denied", "GET", f"/api/sessions/box/files?path=../{secret}"
    )
    assert secret[:8] not in json.dumps(problem)
    assert secret[:8] not in json.dumps(await recorded(api, "box"))
    assert secret[:8] not in stored(api.plane.settings.state_dir)


async def test_what_an_agent_reports_and_refuses(api: Api, session: dict[str, Any]) -> None:
    """The host redacts, too, because a compromised agent might not."""
    reported = {"path": f"/workspace/{TOKEN}", "argv": ["sh", "-c", f"x {TOKEN}"]}
    api.agent.emit("command.exec", args=reported, error=f"cannot run {TOKEN}")
    api.agent.overrides["exec"] = _refuse
    where = ("POST", "/api/sessions/box/exec")
    problem = await api.problem(409, "conflict", *where, json={"command": "ls"})
    assert MARK in problem["detail"]
    assert leaked(json.dumps(problem), TOKEN) == []
    events = await recorded(api, "box")
    assert {"command.exec", "command.exit"} <= {event["operation"] for event in events}
    assert leaked(json.dumps(events), TOKEN) == []
    assert leaked(stored(api.plane.settings.state_dir), TOKEN) == []


def _refuse(_params: Any) -> Any:
    from tests.support.fake_agent import AgentRefusalError

    raise AgentRefusalError("conflict", f"it can't be: {TOKEN}")


async def test_terminals_and_approvals(api: Api, session: dict[str, Any]) -> None:
    path = "/api/sessions/box/ptys"
    opened = await api.json("POST", path, json={"tool": "fake"}, status=201)
    secret = "abcdefghijklmnop"
    run = {"command": "ls", "secrets": {"SAID": secret}}
    await api.json("POST", "/api/sessions/box/exec", json=run)
    line = {"tool": "fake.say", "command": f"say {secret}"}
    answer = await api.json("POST", f"{path}/{opened['id']}/interactions", json=line)
    assert answer["results"]["output"] == f"you said say {secret}"
    asked = {"tool": "fake.reset", "command": f"reset {secret}"}
    pending = await api.json("POST", f"{path}/{opened['id']}/interactions", json=asked, status=202)
    assert pending["approval"]["command"] == f"reset {MARK}"
    # The approval is for exactly the line that was sent, although another is displayed alike.
    other = {"tool": "fake.reset", "command": f"reset {secret[:8]}"}
    again = await api.json("POST", f"{path}/{opened['id']}/interactions", json=other, status=202)
    assert again["approval"]["id"] != pending["approval"]["id"]
    decision = {"decision": "approve", "reason": f"as {secret} is"}
    approval = await api.json("POST", f"/api/approvals/{pending['approval']['id']}", json=decision)
    assert approval["reason"] == f"as {MARK} is"
    done = await api.json("POST", f"{path}/{opened['id']}/interactions", json=asked)
    assert done["status"] == "success"
    await api.json("DELETE", f"{path}/{opened['id']}")
    transcript = await (await api.call("GET", f"{path}/{opened['id']}/transcript")).text()
    assert f'"say {MARK}"' in transcript
    for text in (
        transcript,
        json.dumps(await api.json("GET", "/api/approvals")),
        json.dumps(await api.json("GET", path)),
        json.dumps(await recorded(api, "box")),
        stored(api.plane.settings.state_dir),
    ):
        assert secret not in text
    raw = api.plane.settings.state_dir / "evidence"
    (said,) = [file.read_bytes() for file in raw.rglob("raw")]
    assert f"you said say {MARK}".encode() in said


async def test_secrets_like_ids_leave_which_line_it_was(api: Api, session: dict[str, Any]) -> None:
    path = "/api/sessions/box/ptys"
    opened = await api.json("POST", path, json={"tool": "fake"}, status=201)
    digest = hashlib.sha256(b"say hello").hexdigest()
    run = {"command": "ls", "secrets": {"TERMINAL": opened["id"], "LINE": digest}}
    await api.json("POST", "/api/sessions/box/exec", json=run)
    for said in ("say hello", "no such line"):
        line = {"tool": "fake.say", "command": said}
        await api.call("POST", f"{path}/{opened['id']}/interactions", json=line)
    found = [
        event for event in await recorded(api, "box") if event["operation"] == "pty.interaction"
    ]
    assert [event["decision"] for event in found] == ["allow", "deny"]
    assert {event["args"]["terminal_id"] for event in found} == {opened["id"]}
    assert found[0]["args"]["command_sha256"] == digest


@pytest.mark.slow
async def test_long_output_of_a_terminal_is_searched_once(
    api: Api, session: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/api/sessions/box/ptys"
    opened = await api.json("POST", path, json={"tool": "fake"}, status=201)
    searched: list[tuple[int, int]] = []
    spans = Redactor.spans

    def watched(self: Redactor, data: bytes) -> list[tuple[int, int]]:
        searched.append((threading.get_ident(), len(data)))
        return spans(self, data)

    monkeypatch.setattr(Redactor, "spans", watched)
    # Values cross the boundaries of the pieces in which the output is read.
    rows = f"row {TOKEN} of many\r\n" * 20_000
    said = f"say much\r\n{rows}tool=> "
    api.agent.terminals.answers["say much"] = said.encode()
    line = {"tool": "fake.say", "command": "say much"}
    answer = await api.json("POST", f"{path}/{opened['id']}/interactions", json=line)
    kept = said.replace(TOKEN, MARK).encode()
    assert answer["output_hash"] == f"sha256:{hashlib.sha256(kept).hexdigest()}"
    (raw,) = [
        file.read_bytes() for file in (api.plane.settings.state_dir / "evidence").rglob("raw")
    ]
    assert raw.endswith(kept)
    assert leaked(raw.decode(), TOKEN) == []
    largest = max(size for thread, size in searched if thread == threading.get_ident())
    assert largest <= MOST_AT_ONCE
    assert sum(size for _, size in searched) < 1.5 * len(said)


async def test_the_log(api: Api, session: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    formatter = make_formatter("json")
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter.format(record))

    handler = Lines()
    logging.getLogger().addHandler(handler)
    try:
        # An unexpected failure is logged with its traceback and its error message.
        monkeypatch.setattr(api.plane.executions, "start", broken_with(TOKEN))
        where = ("POST", "/api/sessions/box/exec")
        problem = await api.problem(500, "internal_error", *where, json={"command": "ls"})
        assert leaked(json.dumps(problem), TOKEN) == []
        body = {"id": "new", "permission_level": "high", "secrets": {"A": ONCE}}
        monkeypatch.setattr(api.plane.sessions, "create", broken_with(ONCE))
        await api.problem(500, "internal_error", "POST", "/api/sessions", json=body)
    finally:
        logging.getLogger().removeHandler(handler)
    told = "\n".join(lines)
    assert "it fell over [redacted]" in told
    assert leaked(told, TOKEN, ONCE) == []


def broken_with(value: str) -> Any:
    async def broken(*_: Any) -> Any:
        raise RuntimeError(f"it fell over {value}")

    return broken


# Where secrets remain


async def test_another_level_is_given_them(api: Api, session: dict[str, Any]) -> None:
    run = {"command": "ls", "secrets": {"ONCE": ONCE}}
    await api.json("POST", "/api/sessions/box/exec", json=run)
    first = api.agent
    lowered = {"settings": {"permission_level": "medium"}}
    await api.json("PUT", "/api/sessions/box/settings", json=lowered)
    assert api.agent is not first
    assert api.agent.secrets["variables"]["SECRET_TOKEN"][0] == TOKEN
    assert [value for value, _ in api.agent.secrets["given"]] == [ONCE]


@asynccontextmanager
async def restarted(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> AsyncIterator[ControlPlane]:
    """A control plane that takes over from an earlier one; agents dial again, as real ones do."""
    plane = await reopened(settings, engine, agents)
    try:
        yield plane
        for session in plane.sessions.registry.all:
            await plane.sessions.close(ADMIN, session, purge=False)
    finally:
        await plane.close()


async def started(settings: Settings, engine: FakeEngine) -> None:
    """Runs a control plane with one session that has secrets, until both have ended."""
    plane = await ControlPlane.open(settings, engine)
    session, *_ = await plane.sessions.create(
        ADMIN, NewSession(id="box", permission_level="high", secrets=SECRETS)
    )
    request = ExecRequest(argv=["echo", ONCE], secrets={"ONCE": ONCE})
    await plane.executions.wait(session, await plane.executions.start(ADMIN, session, request))
    await plane.close()


async def test_a_restart_gets_them_back_from_the_agent(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    await started(settings, engine)
    assert leaked(stored(settings.state_dir), TOKEN, ONCE) == []
    async with restarted(settings, engine, agents) as plane:
        (session,) = plane.sessions.registry.all
        request = ExecRequest(argv=["echo", TOKEN, ONCE])
        command = await plane.executions.start(ADMIN, session, request)
        assert command.argv == ["echo", MARK, MARK]
        assert leaked(stored(settings.state_dir), TOKEN, ONCE) == []


async def test_a_secret_that_is_a_word_of_the_protocol_hides_no_result(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    """A later control plane must be able to read the recorded result."""
    names = ("exit_code", "stored_bytes", "output_bytes", "command_id", "background")
    secrets = {f"SECRET_{number}": name for number, name in enumerate(names)}
    plane = await ControlPlane.open(settings, engine)
    session, *_ = await plane.sessions.create(
        ADMIN, NewSession(id="box", permission_level="high", secrets=secrets)
    )
    agents.plays["make"] = Play(b"done", exit_code=3)
    request = ExecRequest(argv=["make", "exit_code"])
    command = await plane.executions.start(ADMIN, session, request)
    told = await plane.executions.wait(session, command)
    await plane.close()
    async with restarted(settings, engine, agents) as plane:
        (session,) = plane.sessions.registry.all
        again = session.commands[command.id]
        assert (again.argv, again.background) == (["make", MARK], False)
        assert again.result == told
        assert (told.exit_code, told.output_bytes) == (3, 4)


async def test_settings_that_were_refused_are_cut(api: Api, session: dict[str, Any]) -> None:
    base = f"/api/sessions/{session['id']}"
    body = {"settings": {"workspace": {"root_dir": f"/{TOKEN}"}}}
    await api.problem(400, "validation_error", "PUT", base + "/settings", json=body)
    (event,) = [e for e in await recorded(api, "box") if e["operation"] == "session.settings"]
    assert event["args"] == {"workspace": {"root_dir": f"/{MARK}"}}


async def test_names_that_an_agent_made_up_are_cut(api: Api, session: dict[str, Any]) -> None:
    """The agent knows the secrets, and may be compromised."""
    told: dict[str, Any] = {TOKEN: 1, "path": TOKEN, "bytes": 7, f"x{TOKEN}": TOKEN}
    api.agent.emit("file.write", args=told, result=told, error=TOKEN)
    await api.json("POST", f"/api/sessions/{session['id']}/exec", json={"command": "ls"})
    (event,) = [e for e in await recorded(api, "box") if e["operation"] == "file.write"]
    cut = {MARK: 1, "path": MARK, "bytes": 7, f"x{MARK}": MARK}
    assert (event["args"], event["result"], event["error"]) == (cut, cut, MARK)


async def test_an_end_that_an_agent_made_up_is_told_as_recorded(
    api: Api, session: dict[str, Any]
) -> None:
    """The caller gets the recorded end, from which secrets were removed, not the reported one."""
    api.agents.plays["sleep"] = Play(holds=True)
    path = f"/api/sessions/{session['id']}"
    body = {"argv": ["sleep", "9"], "background": True}
    started = await api.json("POST", path + "/exec", json=body, status=202)
    command = started["command_id"]
    ended = {"exit_code": 1, "reason": TOKEN}
    api.agent.emit("command.exit", command_id=command, result=ended, error=f"no {TOKEN}")
    (live,) = api.plane.sessions.registry.live
    await live.commands[command].done
    told = live.commands[command].result
    assert told is not None
    assert (told.exit_code, told.reason, told.error) == (1, MARK, f"no {MARK}")
    answer = await api.json("GET", f"{path}/processes/{command}")
    assert TOKEN not in str(answer)


async def test_what_is_lost_is_said(settings: Settings, engine: FakeEngine, agents: Agents) -> None:
    await started(settings, engine)
    agents.latest.secrets = {"variables": {}, "given": []}
    asked = len(agents.latest.requests)
    async with restarted(settings, engine, agents) as plane:
        (session,) = plane.sessions.registry.all
        for work in (
            plane.executions.start(ADMIN, session, ExecRequest(command="ls")),
            plane.tools.open(ADMIN, session, "fake"),
        ):
            with pytest.raises(ConflictError, match="SECRET_TOKEN") as caught:
                await work
            assert caught.value.fields["reason"] == "secrets_lost"
        assert "exec" not in [method for method, _ in agents.latest.requests[asked:]]


async def test_while_they_are_not_known_again_nothing_is_shown_or_stored(
    settings: Settings, engine: FakeEngine, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, a paused session's agent can't send its secrets."""
    plane = await ControlPlane.open(settings, engine)
    session, *_ = await plane.sessions.create(
        ADMIN, NewSession(id="box", permission_level="high", secrets=SECRETS)
    )
    await plane.sessions.pause(ADMIN, session)
    await plane.close()
    await agents.latest.close()
    process = Process(7, 8, 1, "sh", ["sh", "-c", f"echo {TOKEN}"], "sleeping", 0.0, 0.0, 1)
    measured = Measured([process], Usage(0.0, 0.0, 0, 1))
    monkeypatch.setattr(agent_link, "_RECONNECT_SECONDS", 0.1)
    again = await ControlPlane.open(settings, engine)
    try:
        (session,) = again.sessions.registry.all
        inspection = Inspection(measured, None, [], {}, FULL_KERNEL)
        (shown,) = inspected(session, inspection).model_dump()["processes"]
        assert (shown["name"], shown["argv"]) == ("", [])
        session.status = Status.ACTIVE  # as after a resume, before the agent answers
        for work in (
            again.executions.start(ADMIN, session, ExecRequest(argv=["echo", TOKEN])),
            again.tools.open(ADMIN, session, "fake"),
        ):
            with pytest.raises(ConflictError) as caught:
                await work
            assert caught.value.fields["reason"] == "secrets_unknown"
        assert leaked(stored(settings.state_dir), TOKEN) == []
        session.status = Status.PAUSED
        await again.sessions.close(ADMIN, session, purge=False)
    finally:
        await again.close()


# Variables that are not secret


async def test_values_of_variables_go_with_their_session(api: Api) -> None:
    state_dir = api.plane.settings.state_dir
    value = "a value that is only a variable's"
    for way in ("DELETE", "abort", "failed"):
        body = {"id": way, "permission_level": "high", "env": {"A": value}}
        if way == "failed":
            api.engine.fail_next("create")
            await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
        else:
            await api.session(**body)
            assert value in stored(state_dir)
            rest = ("DELETE", "") if way == "DELETE" else ("POST", f"/{way}")
            await api.json(rest[0], f"/api/sessions/{way}{rest[1]}")
        async with asyncio.timeout(WAIT_SECONDS):
            await until(lambda: value not in stored(state_dir))
    names = [event["args"].get("env") for event in await recorded(api, "abort")]
    assert names[0] == ["A"]


async def test_values_that_an_earlier_version_left_are_removed(
    settings: Settings, engine: FakeEngine
) -> None:
    plane = await ControlPlane.open(settings, engine)
    value = "a value that was left by mistake"
    await plane.database.write(
        lambda connection: connection.execute(
            "INSERT INTO sessions (key, id, owner, status, permission_level, level, terms,"
            " created_at) VALUES ('k', 'i', 'o', 'completed', 'low', '{}', ?, '')",
            (Terms(env={"A": value}).column(),),
        )
    )
    await plane.database.write(
        lambda connection: connection.execute("UPDATE sessions SET terms = '{}' WHERE key = 'k'")
    )
    await plane.close()
    plane = await ControlPlane.open(settings, engine)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await until(lambda: value not in stored(settings.state_dir))
    finally:
        await plane.close()


async def test_values_of_a_creation_that_was_never_finished_go_with_it(
    settings: Settings, engine: FakeEngine, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "a value that nobody was told of"
    plane = await ControlPlane.open(settings, engine)
    new = NewSession(id="a", permission_level="high", terms=Terms(env={"A": value}))
    session, *_ = await plane.sessions.create(ADMIN, new)
    await plane.database.write(session_rows.updating(session, acknowledged=False))
    await plane.close()
    emptied = asyncio.Event()
    scrub = Database.scrub

    async def scrubbed(database: Database) -> bool:
        done = await scrub(database)
        emptied.set()
        return done

    monkeypatch.setattr(Database, "scrub", scrubbed)
    # A start removes an earlier control plane's leftovers before it looks for sandboxes.
    goes_on = engine.hang_next("list")
    opening = asyncio.create_task(ControlPlane.open(settings, engine))
    await emptied.wait()
    assert value in stored(settings.state_dir)
    goes_on.set()
    plane = await opening
    try:
        assert plane.recovered.unfinished_creations == 1
        async with asyncio.timeout(WAIT_SECONDS):
            await until(lambda: value not in stored(settings.state_dir))
    finally:
        await plane.close()


# With the client and at the command line


async def test_the_client(api: Api) -> None:
    async with Paddock(str(api.server.make_url("/")), OPERATOR_KEY) as paddock:
        session = await paddock.sessions.create(permission_level="high", secrets=SECRETS)
        assert session.info.secrets == ["SECRET_TOKEN"]
        await session.exec(argv=["echo", ONCE], secrets={"ONCE": ONCE})
        await session.processes.start(argv=["echo", TOKEN], secrets={"MORE": "12345678 more"})
        same = await paddock.sessions.ensure(session.id, secrets={"NEW": "not given, it is there"})
        assert same.info.secrets == ["SECRET_TOKEN"]
        assert leaked(repr(vars(session)), TOKEN) == []
    assert leaked(json.dumps(await recorded(api, session.id)), TOKEN, ONCE) == []


async def test_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setenv("SECRET_TOKEN", TOKEN)
    file = tmp_path / "token"
    file.write_text(f"{ONCE}\n")
    named = ("--secret", "SECRET_TOKEN", "--secret", f"SECRET_B=@{file}")
    made = await run_beside("sessions", "create", "--id", "box", *named, "--json")
    assert json.loads(made.out)["secrets"] == ["SECRET_B", "SECRET_TOKEN"]
    values = {name: value for name, (value, _) in api.agent.secrets["variables"].items()}
    assert values == {"SECRET_TOKEN": TOKEN, "SECRET_B": ONCE}
    monkeypatch.setenv("SECRET_C", "another secret")
    ran = await run_beside("exec", "--secret", "SECRET_C", "box", "--", "ls")
    assert ran.status == 0, ran.err
    assert "SECRET_C" in (await api.agent.asked("exec"))["secrets"]
    ran = await run_beside("run", "--secret", "SECRET_C", "--", "ls")
    assert ran.status == 0, ran.err


@each(
    "given", ["SECRET_NONE", "SECRET_A=value on the line", "SECRET_A=", "=@x", "SECRET_A=@none", ""]
)
async def test_values_on_the_command_line(api: Api, given: str) -> None:
    connection = ("--url", str(api.server.make_url("/")), "--key", ADMIN_KEY)
    ended = await run_beside("sessions", "create", "--secret", given, *connection)
    assert (ended.status, "--secret" in ended.line) == (2, True)
    assert "value on the line" not in ended.err
    assert (await api.json("GET", "/api/sessions"))["items"] == []


@pytest.mark.slow
@pytest.mark.parametrize("level", ["low", "high"])
async def test_the_digest_of_long_words_is_of_them_without_secrets(api: Api, level: str) -> None:
    await api.session(id="box", permission_level=level, secrets=SECRETS)
    argv = ["deploy", f"--token={TOKEN}", "x" * 60_000]
    status = 403 if level == "low" else 200
    await api.json("POST", "/api/sessions/box/exec", json={"argv": argv}, status=status)
    events = await api.json("GET", "/api/sessions/box/audit?operation=command.start")
    (event,) = events["items"]
    args = event["args"]
    assert args["argv"][:2] == ["deploy", "--token=[redacted]"]
    assert len(json.dumps(event)) < 8192
    whole = f"deploy\0--token=[redacted]\0{'x' * 60_000}\0".encode()
    assert args["argv_sha256"] == hashlib.sha256(whole).hexdigest()
    assert (args["argv_words"], args["argv_bytes"]) == (3, len(whole))


# Long texts


@pytest.mark.slow
async def test_long_words_are_searched_beside_the_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals cost their caller nothing, so searching their text must not delay other requests."""
    searched: list[tuple[int, int]] = []
    spans = Redactor.spans

    def watched(self: Redactor, data: bytes) -> list[tuple[int, int]]:
        searched.append((threading.get_ident(), len(data)))
        return spans(self, data)

    monkeypatch.setattr(Redactor, "spans", watched)
    word = "%41\\x80\\u0041" * 8000
    argv = ["nothing-known", *[word] * 5, f"a{TOKEN}"]
    base = "/api/sessions/long"
    await api.json("POST", "/api/sessions", status=201, json={"id": "long", "secrets": SECRETS})
    await api.problem(403, "permission_denied", "POST", f"{base}/exec", json={"argv": argv})
    argv[0] = "ls"
    await api.json("POST", f"{base}/exec", json={"argv": argv})
    env = {"LANG": word[:30_000], "LC_ALL": TOKEN}
    body = {"id": "other", "env": env, "secrets": SECRETS}
    await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    largest = max(size for thread, size in searched if thread == threading.get_ident())
    assert largest <= MOST_AT_ONCE
    assert sum(size > 500_000 for _, size in searched) >= 2
    # The digest covers the whole text, with the value already cut out.
    words = [argv[0], *argv[1:-1], f"a{MARK}"]
    events = (await api.json("GET", f"{base}/audit?limit=100"))["items"]
    starts = [event["args"] for event in events if event["operation"] == "command.start"]
    for name, args in zip(("nothing-known", "ls"), starts, strict=True):
        whole = b"".join(word.encode() + b"\0" for word in (name, *words[1:]))
        assert args["argv_sha256"] == hashlib.sha256(whole).hexdigest()
        assert args["argv_words"] == len(words)
