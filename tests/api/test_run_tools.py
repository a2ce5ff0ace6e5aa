"""The operator's and the host's tools in runs: offered, governed, recorded, and ended."""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from orchestrator.settings.settings import Settings
from paddock import Paddock
from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_governed import TOOLS, asked
from tests.api.test_oneshot import SHOW, WIPE
from tests.api.test_runs import made, model, results, said, send, timeline
from tests.api.test_turns import EDIT
from tests.support.cases import each
from tests.support.cli import run_beside
from tests.support.fake_agent import Play
from tests.support.models import Answer, ModelServer, calling
from tests.support.until import until

__all__ = ["model"]

POLICY = EDIT | {"allowed_operations": [*EDIT["allowed_operations"], "world.tool", "tool.call"]}
SECRET = "the-key-of-the-tests"
SAY = ("fake__say", {"command": "say hello"})
RESET = ("fake__reset", {"command": "reset all"})


@dataclass
class Host:
    """A host's server: answers calls of its tools with `answer`, once `free` is set."""

    answer: web.Response | None = None
    calls: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    free: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def serve(self, request: web.Request) -> web.Response:
        self.calls.append((dict(request.headers), await request.read()))
        self.called.set()
        await self.free.wait()
        return self.answer or web.Response(text="ticket 7")

    def tool(self, **members: Any) -> dict[str, Any]:
        return {
            "name": "create_ticket",
            "description": "Creates a ticket.",
            "input_schema": {
                "type": "object",
                "properties": {"title": {"type": "string", "maxLength": 100}},
                "required": ["title"],
                "additionalProperties": False,
            },
            "url": f"{self.url}/hooks/ticket",
            "secret": SECRET,
            **members,
        }


@asynccontextmanager
async def serving_host() -> AsyncIterator[Host]:
    host = Host()
    host.free.set()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", host.serve)
    async with TestServer(app) as server:
        host.url = str(server.make_url("")).rstrip("/")
        yield host


@pytest_asyncio.fixture
async def host() -> AsyncIterator[Host]:
    async with serving_host() as host:
        yield host


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, host: Host) -> Settings:
    tools = tmp_path / "tools"
    tools.mkdir()
    for path in TOOLS.iterdir():
        (tools / path.name).write_text(path.read_text())
    (tools / "wipe.clad.toml").write_text(WIPE)
    (tools / "show.clad.toml").write_text(SHOW)
    permitted = (f"{host.url}/hooks",)
    return settings.model_copy(update={"tools_dir": tools, "tool_urls": permitted})


def names(server: ModelServer) -> set[str]:
    """The tools that the model was offered."""
    return {each["function"]["name"] for each in server.bodies[-1]["tools"]}


async def events(api: Api, path: str, operation: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.json("GET", f"{path}/audit?operation={operation}"))[
        "items"
    ]
    return items


# Tools of the operator.


async def test_a_line_goes_to_a_terminal_that_ends_with_the_run(
    api: Api, model: ModelServer
) -> None:
    path = await made(api, policy=POLICY)
    model.answers = [calling(SAY, ("fake.say", {"command": "say more"})), Answer("done")]
    run = await send(api, path)
    assert results(model) == ["you said say hello", "you said say more"]
    assert {"fake__say", "fake__reset", "show"} <= names(model)
    # Above the level's tier.
    assert not {"fake__destroy", "wipe"} & names(model)
    offered = {each["function"]["name"]: each["function"] for each in model.bodies[0]["tools"]}
    (listed,) = [
        each
        for each in (await api.json("GET", f"{path}/tools"))["items"]
        if each["name"] == "fake.reset"
    ]
    assert offered["fake__reset"]["parameters"] == listed["input_schema"]
    for part in (listed["description"], listed["pattern"], "A person must approve"):
        assert part in offered["fake__reset"]["description"]
    assert [each["operation"] for each in run["operations"]] == [
        *("llm.complete", "world.tool", "world.tool", "llm.complete")
    ]
    (terminal,) = (await api.json("GET", f"{path}/ptys"))["items"]
    assert (terminal["reason"], terminal["interaction_count"]) == ("turn_ended", 2)
    lines = await events(api, path, "pty.interaction")
    assert [each["args"]["tool"] for each in lines] == ["fake.say", "fake.say"]
    transcript = await (await api.call("GET", f"{path}/ptys/{terminal['id']}/transcript")).text()
    assert "say more" in transcript


async def test_the_gates_refuse_with_rule_and_remedy(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=POLICY, permission_level="medium")
    model.answers = [
        calling(
            ("fake__say", {"command": "shout"}),
            ("fake__destroy", {"command": "destroy all"}),
            ("fake__say", {"command": "say hello", "approved": True}),
            ("fake__say", {}),
            ("wipe", {"table": "users"}),
            ("show", {"name": "NO"}),
            ("psql__nothing", {"command": "x"}),
        ),
        Answer("done"),
    ]
    await send(api, path)
    pattern, tier, unknown, missing, wipe, show, absent = results(model)
    assert pattern.startswith("Refused by pattern:")
    assert "Send a line that the tool's pattern matches completely." in pattern
    assert tier.startswith("Refused by risk-tier:")
    assert "'approved' was unexpected" in unknown
    assert "'command' is a required property" in missing
    assert wipe.startswith("Refused by risk-tier:")
    assert show.startswith("Refused by argument:")
    assert absent.startswith("Refused: there is no tool psql__nothing")
    # An operator may have very many tools.
    assert re.search(r" and [0-9]+ more$", absent), absent
    assert len(absent) < 500
    (terminal,) = api.agent.terminals.all.values()
    assert terminal.sent == []
    denied = await events(api, path, "pty.interaction")
    assert [each["rule"] for each in denied] == ["pattern", "risk-tier"]


@each(
    ("changes", "said"),
    [
        ({"allowed_operations": EDIT["allowed_operations"]}, "policy-operation"),
        ({"denied_operations": ["world.tool"]}, "policy-denied"),
        (
            {"execution_rules": EDIT["execution_rules"] | {"allow_shell_commands": False}},
            "policy-execution",
        ),
    ],
)
async def test_the_policy_decides_about_tools(
    api: Api, model: ModelServer, changes: dict[str, Any], said: str
) -> None:
    path = await made(api, policy=POLICY | changes)
    model.answers = [calling(SAY), Answer("done")]
    run = await send(api, path)
    assert results(model)[0].startswith(f"Refused by {said}:")
    assert "fake__say" not in names(model)
    assert run["operations"][1]["decision"] == "deny"
    assert api.agent.terminals.all == {}


async def test_a_person_decides_while_the_tick_waits(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=POLICY)
    for decision, told in (
        ("approve", "you said reset all"),
        ("deny", "Refused by human-approval:"),
    ):
        model.answers = [calling(RESET), Answer("done")]
        sending = asyncio.create_task(send(api, path))
        approval = await pending(api)
        assert approval["command"] == "reset all"
        await api.json(
            "POST",
            f"/api/approvals/{approval['id']}",
            json={"decision": decision, "reason": "because"},
        )
        await sending
        assert results(model)[-1].startswith(told)
    assert "because" in results(model)[-1]


async def pending(api: Api) -> dict[str, Any]:
    """The approval that waits, as soon as one does."""
    await asked(api)
    (found,) = (await api.json("GET", "/api/approvals?status=pending"))["items"]
    return dict(found)


async def test_nobody_decides(
    api: Api, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.programs.turns.operations.tools._APPROVAL_SECONDS", 0.0)
    path = await made(api, policy=POLICY, permission_level="high")
    model.answers = [calling(RESET, ("wipe", {"table": "users"})), Answer("done")]
    await send(api, path)
    for told in results(model):
        assert told.startswith("Refused by human-approval: nobody has decided about the approval")
    decided = await events(api, path, "approval.decision")
    # The one of the terminal ends with it.
    assert [each["result"]["status"] for each in decided] == ["expired"]


async def test_an_interrupted_run_leaves_no_terminal_and_no_approval(
    api: Api, model: ModelServer
) -> None:
    path = await made(api, policy=POLICY)
    model.answers = [calling(RESET), Answer("done")]
    sending = asyncio.create_task(send(api, path))
    await pending(api)
    await api.json("POST", f"{path}/interrupt")
    assert (await sending)["outcome"]["error_type"] == "interrupted"
    (terminal,) = (await api.json("GET", f"{path}/ptys"))["items"]
    assert terminal["reason"] == "turn_ended"
    assert (await api.json("GET", "/api/approvals?status=pending"))["items"] == []
    order = [each["operation"] for each in (await api.json("GET", f"{path}/audit"))["items"]]
    assert order.index("pty.close") < order.index("turn.end")


async def test_a_terminal_that_opens_too_late_is_ended(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=POLICY)
    terminals = api.agent.terminals
    terminals.banner = b"not yet"
    model.answers = [calling(SAY), Answer("done")]
    sending = asyncio.create_task(send(api, path))
    await until(lambda: bool(terminals.running))
    await api.json("POST", f"{path}/interrupt")
    assert (await sending)["outcome"]["error_type"] == "interrupted"
    (opening,) = terminals.all.values()
    opening.say(b"\r\ntool=> ")
    await until(lambda: not api.plane.terminals.all_live)


async def test_an_ended_terminal_is_opened_anew(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=POLICY)
    model.answers = [calling(SAY, RESET, SAY), Answer("done")]
    sending = asyncio.create_task(send(api, path))
    approval = await pending(api)
    await api.json("DELETE", f"{path}/ptys/{approval['terminal_id']}")
    await sending
    before, lost, after = results(model)
    assert before == after == "you said say hello"
    assert "has ended" in lost or "expired" in lost
    terminals = (await api.json("GET", f"{path}/ptys"))["items"]
    assert [each["reason"] for each in terminals] == ["closed", "turn_ended"]


async def test_a_oneshot_tool_runs(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=POLICY)
    api.agent.plays["cat"] = Play(stdout=b"shown", exit_code=3)
    model.answers = [calling(("show", {"name": "a"})), Answer("done")]
    run = await send(api, path)
    assert json.loads(results(model)[0]) == {"exit_code": 3, "stdout": "shown", "stderr": ""}
    operation = run["operations"][1]
    assert (operation["operation"], operation["args"]) == (
        "world.tool",
        {"tool": "show", "given": [["name", "a"]]},
    )
    (started,) = await events(api, path, "command.start")
    assert (started["args"]["argv"], started["args"]["tool"]) == (["cat", "a"], "show")


async def test_programs_use_tools(api: Api) -> None:
    path = await made(api, policy=POLICY)

    async def outcome(code: str) -> dict[str, Any]:
        turn = await api.json("POST", f"{path}/turns", json={"code": code})
        return dict(turn["outcome"])

    told = await outcome('(get (world.tool "fake.say" "say hello") "output")')
    assert told["value"] == "you said say hello"
    told = await outcome('(get (world.tool "show" \'((name "a"))) "exit-code")')
    assert told["value"] == 0
    for code, message in (
        ('(world.tool "fake.say" 3)', "given must be a line of text"),
        ('(world.tool "nothing.say" "x")', "there is no tool nothing"),
        ('(world.tool "show" "x" 3)', "takes 1 to 2 arguments"),
        ('(world.tool "show" \'((name 3)))', "a list of names and texts"),
        ('(world.tool "show" \'((name "a") (name "b")))', "each name once"),
        ('(tool.call "create_ticket" "{}")', "only runs have some"),
    ):
        assert message in (await outcome(code))["message"], code


async def test_a_rollback_ends_the_turn_s_terminals(api: Api) -> None:
    staging = POLICY | {"world_rules": POLICY["world_rules"] | {"proposal_mode": True}}
    path = await made(api, policy=staging)
    code = '(world.tool "fake.say" "say hello") (session/rollback-proposals!)'
    turn = await api.json("POST", f"{path}/turns", json={"code": code})
    assert turn["outcome"]["tag"] in ("ok", "proposed"), turn


# Tools of the host.


async def test_a_call_is_a_signed_post(api: Api, model: ModelServer, host: Host) -> None:
    path = await made(api, policy=POLICY)
    model.answers = [calling(("create_ticket", {"title": "caf\u00e9"})), Answer("done")]
    run = await api.json("POST", f"{path}/send", json=said(tools=[host.tool()]))
    assert results(model) == ["ticket 7"]
    ((headers, body),) = host.calls
    assert json.loads(body) == {
        "session_id": path.rpartition("/")[2],
        "turn": 1,
        "call_id": "call_0",
        "tool": "create_ticket",
        "arguments": {"title": "caf\u00e9"},
    }
    signed = headers["Paddock-Timestamp"].encode() + b"." + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["Paddock-Signature"] == f"v1={expected}"
    offered = {each["function"]["name"]: each["function"] for each in model.bodies[0]["tools"]}
    tool = host.tool()
    assert offered["create_ticket"]["parameters"] == tool["input_schema"]
    # The call is on record before it is made, and its outcome afterwards.
    (request,) = await events(api, path, "tool.request")
    (done,) = await events(api, path, "tool.call")
    assert request["seq"] < done["seq"]
    assert request["args"] == {
        "tool": "create_ticket",
        "url": tool["url"],
        "call_id": "call_0",
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    assert (request["permission_level"], request["turn"]) == ("medium", 1)
    assert request["workspace_root"] == run["workspace_root"]
    assert done["result"]["bytes"] == len("ticket 7")
    (start,) = await events(api, path, "turn.start")
    assert start["args"]["tools"] == {"create_ticket": tool["url"]}
    everything = json.dumps((await api.json("GET", f"{path}/audit?limit=1000"))["items"])
    assert SECRET not in everything + json.dumps(await timeline(api, path))
    # The next run has no such tool.
    model.answers = [calling(("create_ticket", {"title": "b"})), Answer("done")]
    await send(api, path)
    assert results(model)[-1].startswith("Refused: there is no tool create_ticket")
    assert len(host.calls) == 1


@each(
    ("answer", "told"),
    [
        (web.Response(text=""), "[nothing]"),
        (web.Response(body=b"caf\xe9"), "caf\ufffd"),
        (web.Response(status=500, text="inner"), "the host answered with status 500"),
        (
            web.Response(status=302, headers={"Location": "http://127.0.0.1/"}),
            "the host answered with status 302",
        ),
        (
            web.Response(body=b"x" * (256 * 1024 + 1)),
            "the host's answer can't be used: it has more than 262144 bytes",
        ),
        (
            web.Response(body=b"x", headers={"Content-Encoding": "gzip"}),
            "the host's answer can't be used: it is compressed",
        ),
    ],
)
async def test_what_a_host_may_answer(
    api: Api, model: ModelServer, host: Host, answer: web.Response, told: str
) -> None:
    path = await made(api, policy=POLICY)
    host.answer = answer
    model.answers = [calling(("create_ticket", {"title": "a"})), Answer("done")]
    run = await api.json("POST", f"{path}/send", json=said(tools=[host.tool()]))
    assert results(model)[0].removeprefix("Failed: tool.call: ") == told
    assert run["outcome"]["tag"] == "ok"
    assert len(host.calls) == 1
    host.calls.clear()


async def test_a_host_that_does_not_answer(api: Api, model: ModelServer, host: Host) -> None:
    path = await made(api, policy=POLICY)
    host.free.clear()
    model.answers = [calling(("create_ticket", {"title": "a"})), Answer("done")]
    await api.json("POST", f"{path}/send", json=said(tools=[host.tool(timeout=1)]))
    assert results(model) == ["Failed: tool.call: the host did not answer within 1 s"]
    # An interrupt does not wait for it.
    model.answers = [calling(("create_ticket", {"title": "a"})), Answer("done")]
    body = said(tools=[host.tool(timeout=600)])
    sending = asyncio.create_task(api.json("POST", f"{path}/send", json=body))
    await until(lambda: len(host.calls) == 2)
    await api.json("POST", f"{path}/interrupt")
    assert (await sending)["outcome"]["error_type"] == "interrupted"
    (_, done) = sorted(await events(api, path, "tool.call"), key=lambda each: int(each["seq"]))
    assert done["error"] == "interrupted"
    host.free.set()


async def test_a_host_s_answer_has_no_secret_of_the_session(
    api: Api, model: ModelServer, host: Host
) -> None:
    path = await made(api, policy=POLICY, secrets={"SECRET_TOKEN": "canary-of-the-run"})
    host.answer = web.Response(text="it is canary-of-the-run")
    model.answers = [calling(("create_ticket", {"title": "a"})), Answer("done")]
    await api.json("POST", f"{path}/send", json=said(tools=[host.tool()]))
    assert results(model)[0].startswith("it is ")
    assert "canary-of-the-run" not in str((model.bodies, await timeline(api, path)))


async def test_arguments_are_checked_before_anything_is_sent(
    api: Api, model: ModelServer, host: Host
) -> None:
    path = await made(api, policy=POLICY)
    calls: list[Any] = [
        *({}, {"title": 3}, {"title": "a", "more": 1}, {"title": "a" * 101}),
        *("[]", "{", '{"a"}'),
    ]
    model.answers = [calling(*(("create_ticket", given) for given in calls)), Answer("done")]
    await api.json("POST", f"{path}/send", json=said(tools=[host.tool()]))
    assert len(results(model)) == len(calls)
    assert all(told.startswith("Refused: ") for told in results(model))
    assert host.calls == []
    assert await events(api, path, "tool.request") == []


@each(
    ("members", "field"),
    [
        ({"name": "a.b"}, "tools.0.name"),
        ({"name": "x" * 65}, "tools.0.name"),
        ({"name": "exec"}, "tools.0.name"),
        ({"name": "show"}, "tools.0.name"),
        ({"description": ""}, "tools.0.description"),
        ({"description": "x" * 1025}, "tools.0.description"),
        ({"input_schema": {"type": "array"}}, "tools.0.input_schema"),
        ({"input_schema": {"type": "object", "pattern": "("}}, "tools.0.input_schema"),
        ({"input_schema": {"type": "object", "title": "x" * 8192}}, "tools.0"),
        ({"input_schema": "object"}, "tools.0.input_schema"),
        ({"secret": "short"}, "tools.0.secret"),
        ({"secret": "with a space in it!"}, "tools.0.secret"),
        ({"timeout": 0}, "tools.0.timeout"),
        ({"timeout": 601}, "tools.0.timeout"),
        ({"url": ""}, "tools.0.url"),
        ({"method": "GET"}, "tools.0.method"),
    ],
)
async def test_a_malformed_tool_changes_nothing(
    api: Api, model: ModelServer, host: Host, members: dict[str, Any], field: str
) -> None:
    path = await made(api, policy=POLICY)
    body = said(tools=[host.tool(**members)], permission_level="low")
    problem = await api.problem(400, "validation_error", "POST", f"{path}/send", json=body)
    assert problem["field"] == field
    assert SECRET not in str(problem)
    assert model.bodies == []
    assert (await api.json("GET", path))["permission_level"] == "medium"


async def test_names_and_numbers_of_tools_are_limited(
    api: Api, model: ModelServer, host: Host
) -> None:
    path = await made(api, policy=POLICY)
    twice = said(tools=[host.tool(), host.tool()])
    problem = await api.problem(400, "validation_error", "POST", f"{path}/send", json=twice)
    assert problem["field"] == "tools.1.name"
    many = said(tools=[host.tool(name=f"t{n}") for n in range(33)])
    problem = await api.problem(400, "validation_error", "POST", f"{path}/send", json=many)
    assert problem["field"] == "tools"


async def test_only_a_host_registers_only_permitted_urls(
    api: Api, model: ModelServer, host: Host
) -> None:
    session = await api.session(key=OPERATOR_KEY, policy=POLICY)
    path = f"/api/sessions/{session['id']}/send"
    body = said(tools=[host.tool()])
    problem = await api.problem(
        403, "permission_denied", "POST", path, json=body, key=session["handle"]
    )
    assert problem["field"] == "tools"
    for url in (
        "http://169.254.169.254/latest",
        f"{host.url}/other",
        f"{host.url}/hooksmore",
        f"{host.url}/hooks/../other",
        f"{host.url}/hooks/%2e%2e/other",
        f"{host.url}@127.0.0.1/hooks",
    ):
        body = said(tools=[host.tool(url=url)])
        problem = await api.problem(403, "permission_denied", "POST", path, json=body)
        assert (problem["rule"], problem["field"]) == ("tool-url", "tools.0.url"), url
    closed = await api.session(key=OPERATOR_KEY, policy=EDIT)
    problem = await api.problem(
        403,
        "permission_denied",
        "POST",
        f"/api/sessions/{closed['id']}/send",
        json=said(tools=[host.tool()]),
    )
    assert problem["rule"] == "policy-operation"
    assert (model.bodies, host.calls) == ([], [])


async def test_clients_register_tools(
    api: Api, model: ModelServer, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await made(api, policy=POLICY)
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("")))
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    call = calling(("create_ticket", {"title": "a"}))
    async with Paddock(str(api.server.make_url("/")), OPERATOR_KEY) as paddock:
        session = await paddock.sessions.get(path.rpartition("/")[2])
        tools = [host.tool()]
        model.answers = [call, Answer("done")]
        assert (await session.send("go", tools=tools)).text == "done"
        model.answers = [call, Answer("done")]
        await session.queue("go")
        assert (await session.render(tools=tools)).text == "done"
        model.answers = [call, Answer("done")]
        assert [event async for event in session.send_stream("go", tools=tools)]
        model.answers = [call, Answer("done")]
        socket = await session.run_socket()
        assert [event async for event in socket.run("go", tools=tools)]
        await socket.close()
    assert len(host.calls) == 4
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([host.tool()]))
    model.answers = [call, Answer("done")]
    ran = await run_beside("send", session.id, "go", "--tools", str(file))
    assert (ran.status, len(host.calls)) == (0, 5), ran
    file.write_text("{}")
    ran = await run_beside("send", session.id, "go", "--tools", str(file))
    assert "must be a list of tools" in ran.line
