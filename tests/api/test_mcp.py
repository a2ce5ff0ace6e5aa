"""The Model Context Protocol with a fake agent: every tool, refusals, progress, cancellation."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientResponse

import api.mcp
from api.mcp import results
from api.mcp.conversation import MOST_REQUESTS
from api.mcp.conversations import MOST_PER_SESSION, Conversations
from api.shape.access import ROLES, Access
from orchestrator.ground.errors import NotFoundError
from orchestrator.settings.settings import Settings
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_exec import read_event
from tests.api.test_governed import ADMIN, TOOLS
from tests.api.test_oneshot import SHOW
from tests.support.asked_as import asked_as
from tests.support.cases import each
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

if TYPE_CHECKING:
    from mcp import Client

SSE = "application/json, text/event-stream"


@pytest.fixture
def settings(settings: Settings, tmp_path: Any) -> Settings:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fake.clad.toml").write_text((TOOLS / "fake.clad.toml").read_text())
    (tools / "show.clad.toml").write_text(SHOW)
    return settings.model_copy(update={"tools_dir": tools})


@dataclass
class Talk:
    """A conversation by plain requests, with a session's handle."""

    api: Api
    session: dict[str, Any]
    id: str = ""
    last: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/api/sessions/{self.session['id']}"

    @property
    def key(self) -> str:
        return str(self.session["handle"])

    async def begin(self, version: str = "2025-06-18") -> dict[str, Any]:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}
        response = await self.post({"id": 0, "method": "initialize", "params": params})
        assert response.status == 200, await response.text()
        self.id = response.headers["Mcp-Session-Id"]
        result: dict[str, Any] = (await response.json())["result"]
        assert (await self.post({"method": "notifications/initialized"})).status == 202
        return result

    async def post(self, message: dict[str, Any], accept: str = "*/*") -> ClientResponse:
        headers = {"Accept": accept, **({"Mcp-Session-Id": self.id} if self.id else {})}
        return await self.api.call(
            "POST",
            f"{self.path}/mcp",
            key=self.key,
            json={"jsonrpc": "2.0", **message},
            headers=headers | self.headers,
        )

    async def listen(self, **headers: str) -> ClientResponse:
        """What the client is told without a request."""
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": self.id, **headers}
        return await self.api.call("GET", f"{self.path}/mcp", key=self.key, headers=headers)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A request's whole answer."""
        self.last += 1
        response = await self.post({"id": self.last, "method": method, "params": params})
        answer: dict[str, Any] = await response.json()
        assert (response.status, answer.pop("id")) == (200, self.last), answer
        return answer

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """A tool's result."""
        answer = await self.ask("tools/call", name=name, arguments=arguments)
        result: dict[str, Any] = answer["result"]
        return result

    async def say(self, name: str, /, **arguments: Any) -> str:
        """The text of a tool's result, which must not be a failure."""
        result = await self.call(name, **arguments)
        assert not result["isError"], result
        return str(result["content"][0]["text"])

    async def stream(self, name: str, /, **arguments: Any) -> ClientResponse:
        """A call whose progress is wanted."""
        self.last += 1
        meta = {"progressToken": f"p{self.last}"}
        params = {"name": name, "arguments": arguments, "_meta": meta}
        message = {"id": self.last, "method": "tools/call", "params": params}
        response = await self.post(message, SSE)
        assert response.content_type == "text/event-stream"
        return response

    async def events(self, operation: str) -> list[dict[str, Any]]:
        path = f"{self.path}/audit?operation={operation}"
        items: list[dict[str, Any]] = (await self.api.json("GET", path))["items"]
        return items


async def begun(api: Api, **body: Any) -> Talk:
    talk = Talk(api, await api.session(key=OPERATOR_KEY, **{"permission_level": "medium", **body}))
    await talk.begin()
    return talk


@pytest.fixture
async def talk(api: Api) -> Talk:
    return await begun(api)


async def rest(response: ClientResponse) -> list[dict[str, Any]]:
    """The remaining messages of a stream."""
    found = []
    while True:
        try:
            found.append((await read_event(response))[1])
        except EOFError:
            return found


@pytest.mark.slow
async def test_the_official_client_works_with_a_handle(api: Api) -> None:
    api.agents.plays["ls"] = Play(b"notes.txt\n")
    session = await api.session(key=OPERATOR_KEY, permission_level="low")
    async with official(api, session) as client:
        assert client.server_info is not None
        assert client.server_info.name == "paddock"
        assert "permission level is low" in (client.instructions or "")
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"exec", "read_file", "fake__say", "show"} <= set(names)
        told: list[str | None] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        result = await client.call_tool("exec", {"argv": ["ls"]}, progress_callback=progress)
        assert not result.is_error
        assert result.structured_content is not None
        assert result.structured_content["stdout"] == "notes.txt\n"
        assert told == ["notes.txt\n"]
        refused = await client.call_tool("exec", {"argv": ["curl", "x"]})
        assert refused.is_error
        assert refused.structured_content is not None
        assert refused.structured_content["rule"] == "command-allowlist"
        budget = (await client.read_resource("paddock://budget")).contents[0]
        assert "consumed" in json.loads(budget.text)  # type: ignore[union-attr]


@asynccontextmanager
async def official(api: Api, session: dict[str, Any]) -> AsyncIterator["Client"]:
    # Only here: importing them takes each worker of the tests a second.
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    url = str(api.server.make_url(f"/api/sessions/{session['id']}/mcp"))
    headers = {"Authorization": f"Bearer {session['handle']}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def test_commands_in_the_foreground_and_the_background(api: Api, talk: Talk) -> None:
    api.agents.plays |= {
        "cat": Play(b"out", b"err", exit_code=1),
        "grep": Play(holds=True),
    }
    result = await talk.call("exec", argv=["cat", "a"], cwd="src", timeout=5)
    assert result["content"][0]["text"].startswith("out\n[stderr]\nerr\n[exit code 1; command ")
    assert result["structuredContent"]["exit_code"] == 1
    assert not result["isError"]
    started = (await talk.call("start_process", argv=["grep", "x"], stdin_open=True))[
        "structuredContent"
    ]
    command = started["command_id"]
    api.agent.print(command, "stdout", b"line\n")
    assert await talk.say("read_process", command_id=command) == (
        "line\n\n[running; continue with after=5]"
    )
    assert '"bytes":3' in await talk.say("feed_process", command_id=command, data="abc")
    assert command in await talk.say("list_processes")
    assert '"signal":15' in await talk.say("signal_process", command_id=command)
    starts = await talk.events("command.start")
    assert [event["actor"] for event in starts] == [f"handle:{talk.session['id']}"] * 2


async def test_files(api: Api, talk: Talk) -> None:
    assert '"bytes":6' in await talk.say("write_file", path="a.txt", text="häll\n")
    assert await talk.say("read_file", path="a.txt") == "häll\n"
    assert await talk.say("read_file", path="a.txt", offset=3) == "ll\n"
    await talk.say("write_file", path="b", base64="/wA=")
    assert (await talk.call("read_file", path="b"))["structuredContent"]["base64"] == "/wA="
    api.agents.files["long"] = b"x" * 65_535 + "é".encode()
    long = (await talk.call("read_file", path="long"))["structuredContent"]
    assert (long["next"], long["size"]) == (65_535, 65_537)
    assert "a.txt" in await talk.say("list_files", depth=2)
    await talk.say("make_directory", path="dir")
    await talk.say("move_file", source="a.txt", destination="c.txt")
    await talk.say("delete_file", path="c.txt")
    assert "c.txt" not in api.agents.files
    operations = {
        event["operation"] for event in (await talk.api.json("GET", f"{talk.path}/audit"))["items"]
    }
    assert {
        "file.read",
        "file.write",
        "file.list",
        "file.delete",
        "file.move",
        "file.mkdir",
    } <= operations


@each(
    ("name", "arguments", "code", "rule"),
    [
        ("exec", {"argv": ["nc"]}, "permission_denied", "command-allowlist"),
        ("exec", {"command": "ls | wc"}, "permission_denied", "shell-operators"),
        ("exec", {"argv": ["cat", "/etc/passwd"]}, "permission_denied", "path-outside-workspace"),
        ("exec", {}, "validation_error", None),
        ("exec", {"argv": ["ls"], "permission_level": "high"}, "validation_error", None),
        ("exec", {"argv": "ls"}, "validation_error", None),
        ("exec", {"argv": ["ls"], "timeout": True}, "validation_error", None),
        ("start_process", {"argv": ["nc"]}, "permission_denied", "command-allowlist"),
        ("read_process", {"command_id": "0" * 16}, "not_found", None),
        ("read_file", {"path": "../x"}, "permission_denied", "path-outside-workspace"),
        ("write_file", {"path": "x"}, "validation_error", None),
        ("write_file", {"path": "x", "text": "", "base64": ""}, "validation_error", None),
        ("write_file", {"path": "x", "base64": "%"}, "validation_error", None),
        ("list_files", {"depth": 65}, "validation_error", None),
        ("fake.say", {"command": "shout"}, "permission_denied", "pattern"),
        ("fake.say", {"command": "say a; b"}, "permission_denied", "input-sanitize"),
        ("fake.say", {}, "validation_error", None),
        ("fake__destroy", {"command": "destroy all"}, "permission_denied", "risk-tier"),
        ("show", {"name": "A"}, "permission_denied", "argument"),
    ],
)
async def test_refusals_are_results_with_rule_and_remedy(
    api: Api, talk: Talk, name: str, arguments: dict[str, Any], code: str, rule: str | None
) -> None:
    before = (await api.json("GET", f"{talk.path}/audit?decision=deny"))["items"]
    result = await talk.call(name, **arguments)
    assert result["isError"]
    told = result["structuredContent"]
    assert (told["code"], told.get("rule")) == (code, rule), told
    assert rule is None or f"rule: {rule}\nremedy: " in result["content"][0]["text"]
    assert "Traceback" not in str(result)
    assert not [each for each in await talk.events("command.start") if each["decision"] == "allow"]
    denied = await api.json("GET", f"{talk.path}/audit?decision=deny")
    assert [event["rule"] for event in denied["items"][len(before) :]] == (
        [] if rule is None else [rule]
    )


async def test_calls_are_on_record_under_their_own_names(api: Api, talk: Talk) -> None:
    await talk.say("exec", argv=["ls"])
    await talk.call("exec", argv=["nc"])
    await talk.say("fake.say", command="say hello")
    await talk.call("show", name="A")
    await talk.call("read_file", path="../x")
    await talk.ask("x" * 128)
    assert await asked_as(api, talk.session["id"], f"handle:{talk.session['id']}") == {
        ("command.start", "mcp tools/call exec"),
        ("pty.open", "mcp tools/call fake__say"),
        ("pty.interaction", "mcp tools/call fake__say"),
        ("pty.result", "mcp tools/call fake__say"),
        ("command.start", "mcp tools/call show"),
        ("file.read", "mcp tools/call read_file"),
    }


async def test_a_command_of_a_tool_keeps_its_terminal(api: Api, talk: Talk) -> None:
    assert await talk.say("fake.say", command="say hello") == "you said say hello"
    assert await talk.say("fake.say", command="say more") == "you said say more"
    (terminal,) = (await api.json("GET", f"{talk.path}/ptys"))["items"]
    assert terminal["interaction_count"] == 2
    await api.json("DELETE", f"{talk.path}/ptys/{terminal['id']}")
    assert await talk.say("fake.say", command="say again") == "you said say again"
    response = await api.call(
        "DELETE", f"{talk.path}/mcp", key=talk.key, headers={"Mcp-Session-Id": talk.id}
    )
    assert response.status == 204
    await until(lambda: not api.agent.terminals.running)
    assert (await talk.post({"id": 9, "method": "ping"})).status == 404


async def test_long_output_has_both_ends_and_says_how_to_read_the_rest(
    api: Api, talk: Talk
) -> None:
    printed = "\n".join(f"line {number}" for number in range(15_000))
    api.agents.plays["grep"] = Play(printed.encode())
    said = await talk.say("exec", argv=["grep"])
    text, _, end = said.rpartition("\n[")
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 14998\nline 14999")
    assert len(said) < 70_000
    assert "read_process returns what was cut" in end
    command = end.partition("command ")[2].partition(";")[0]
    rest = await talk.say("read_process", command_id=command, after=str(40_000))
    assert rest.startswith(printed[40_000:])


async def test_names_of_tools_are_what_clients_take(api: Api, talk: Talk) -> None:
    listed = (await talk.ask("tools/list"))["result"]["tools"]
    names = [tool["name"] for tool in listed]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert {"fake__say", "show", "exec"} <= {*names}
    # The operator's own name of it is taken, too.
    assert await talk.say("fake__say", command="say hello") == "you said say hello"
    assert await talk.say("fake.say", command="say more") == "you said say more"


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("exec", {"argv": ["ls"], "command": None, "cwd": None, "env": None, "timeout": None}),
        ("exec", {"argv": '["ls"]', "timeout": "5", "env": "{}"}),
        ("exec", {"argv": None, "command": "ls", "timeout": 5.0}),
        ("read_file", {"path": "a.txt", "offset": None}),
        ("read_file", {"path": "a.txt", "offset": "0"}),
        ("list_files", {"path": None, "depth": None}),
        ("list_files", {"path": ".", "depth": "2"}),
        ("write_file", {"path": "b.txt", "text": "x", "base64": None, "parents": "true"}),
        ("fake__say", {"command": "say hello"}),
        ("show", {"name": "notes"}),
    ],
)
async def test_arguments_are_taken_as_they_are_meant(
    api: Api, talk: Talk, tool: str, given: dict[str, Any]
) -> None:
    api.agent.files["a.txt"] = b"hello\n"
    await talk.say(tool, **given)


async def test_null_for_a_signal_is_the_usual_one(api: Api, talk: Talk) -> None:
    api.agents.plays["grep"] = Play(holds=True)
    started = json.loads(await talk.say("start_process", argv=["grep"]))
    said = await talk.say("signal_process", command_id=started["command_id"], signal=None)
    assert '"signal":15' in said


async def test_a_oneshot_tool_runs_its_command(api: Api, talk: Talk) -> None:
    api.agents.plays["cat"] = Play(b"shown\n")
    assert (await talk.say("show", name="notes")).startswith("shown\n")
    (start,) = await talk.events("command.start")
    assert (start["args"]["argv"], start["args"]["tool"]) == (["cat", "notes"], "show")


async def test_a_call_says_what_it_waits_for_and_resumes(
    api: Api, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = await talk.stream("fake.reset", command="reset all")
    _, told, _ = await read_event(response)
    (waiting,) = (await api.json("GET", "/api/approvals?status=pending"))["items"]
    message = told["params"]["message"]
    assert waiting["id"] in message
    assert message.endswith("fake.reset: reset all")
    await api.json("POST", f"/api/approvals/{waiting['id']}", json={"decision": "approve"})
    (answer,) = await rest(response)
    assert answer["result"]["content"][0]["text"] == "you said reset all"
    # Without a decision, the call ends, and the same call asks for the decision again.
    monkeypatch.setattr("api.mcp.manifest_tools.APPROVAL_SECONDS", 0.01)
    for _ in range(2):
        pending = await talk.call("fake.reset", command="reset all")
        assert pending["structuredContent"]["status"] == "pending"
        assert "the same call again" in pending["content"][0]["text"]
    (waiting,) = (await api.json("GET", "/api/approvals?status=pending"))["items"]
    await api.json("POST", f"/api/approvals/{waiting['id']}", json={"decision": "deny"})
    refused = await talk.call("fake.reset", command="reset all")
    assert refused["structuredContent"]["rule"] == "human-approval"
    assert results.APPROVAL_SECONDS < 60  # the time after which clients commonly give up


@pytest.mark.parametrize("ending", ["cancelled", "disconnected", "ended"])
async def test_cancellation_ends_the_command(api: Api, talk: Talk, ending: str) -> None:
    api.agents.plays["grep"] = Play(holds=True)
    response = await talk.stream("exec", argv=["grep", "x"])
    command = (await api.agent.asked("exec"))["command_id"]
    api.agent.print(command, "stdout", b"some")
    _, told, _ = await read_event(response)
    assert told["params"] == {"progressToken": "p1", "progress": 4, "message": "some"}
    if ending == "cancelled":
        params = {"requestId": talk.last, "reason": "enough"}
        await talk.post({"method": "notifications/cancelled", "params": params})
        assert await rest(response) == []
        assert (await talk.ask("ping"))["result"] == {}
    elif ending == "disconnected":
        response.close()
    else:
        headers = {"Mcp-Session-Id": talk.id}
        await api.call("DELETE", f"{talk.path}/mcp", key=talk.key, headers=headers)
    ended = await api.agent.asked("cancel")
    assert (ended["command_id"], ended["reason"]) == (command, "client_gone")


async def test_a_client_that_listens_learns_of_changes(
    api: Api, settings: Settings, talk: Talk
) -> None:
    headers = {"Mcp-Session-Id": talk.id, "Accept": "text/event-stream"}
    response = await api.call("GET", f"{talk.path}/mcp", key=talk.key, headers=headers)
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert "fake__destroy" not in str(await talk.ask("tools/list"))
    body = {"settings": {"permission_level": "high"}}
    await api.json("PUT", f"{talk.path}/settings", json=body)
    assert (await read_event(response))[1] == changed
    assert "fake__destroy" in str(await talk.ask("tools/list"))
    assert settings.tools_dir is not None
    (settings.tools_dir / "show.clad.toml").unlink()
    await api.plane.reload.look()
    assert (await read_event(response))[1] == changed
    names = [tool["name"] for tool in (await talk.ask("tools/list"))["result"]["tools"]]
    assert "show" not in names
    await api.json("DELETE", talk.path)
    assert await rest(response) == []


async def test_resources(api: Api, talk: Talk) -> None:
    listed = (await talk.ask("resources/list"))["result"]["resources"]
    found = {}
    for resource in listed:
        (content,) = (await talk.ask("resources/read", uri=resource["uri"]))["result"]["contents"]
        found[resource["name"]] = json.loads(content["text"])
    assert found["session"]["permission_level"] == "medium"
    budget = await api.json("GET", f"{talk.path}/budget", key=talk.key)
    assert found["budget"]["remaining"] == budget["remaining"]
    assert [event["operation"] for event in found["audit"]["items"]] == ["session.create"]
    unknown = await talk.ask("resources/read", uri="file:///etc/passwd")
    assert unknown["error"]["code"] == -32002


async def test_conversations_are_their_callers(api: Api, talk: Talk) -> None:
    other = await begun(api)
    for path, key, status in (
        (talk.path, OPERATOR_KEY, 404),  # another caller of the same session
        (other.path, other.key, 404),  # the same kind of caller of another session
        (talk.path, other.key, 404),
        (talk.path, OTHER_KEY, 404),
        (talk.path, None, 401),
    ):
        for method, message in (("POST", {"id": 1, "method": "ping"}), ("GET", {}), ("DELETE", {})):
            response = await api.call(
                method,
                f"{path}/mcp",
                key=key,
                headers={"Mcp-Session-Id": talk.id},
                json={"jsonrpc": "2.0", **message} if message else None,
            )
            assert response.status == status
    assert (await talk.ask("ping"))["result"] == {}


async def test_conversations_and_requests_are_limited(api: Api, talk: Talk) -> None:
    for _ in range(MOST_PER_SESSION):
        await Talk(api, talk.session).begin()
    # The oldest idle one made room.
    assert (await talk.post({"id": 1, "method": "ping"})).status == 404
    await talk_anew(talk)
    api.agents.plays["grep"] = Play(holds=True)
    held = [await talk.stream("exec", argv=["grep"]) for _ in range(MOST_REQUESTS)]
    refused = await talk.ask("ping")
    assert refused["error"]["data"]["code"] == "busy"
    again = await talk.post({"id": 1, "method": "ping"})
    assert (await again.json())["error"]["code"] == -32600
    for response in held:
        response.close()
    await api.json("DELETE", talk.path)


async def test_a_client_that_only_listens_makes_room(api: Api, talk: Talk) -> None:
    streams = [await listening(talk)]
    for _ in range(MOST_PER_SESSION - 1):
        another = Talk(api, talk.session)
        await another.begin()
        streams.append(await listening(another))
    assert (await talk.ask("ping"))["result"] == {}  # so that it is not idle longest
    api.agents.plays["grep"] = Play(holds=True)
    held = await talk.stream("exec", argv=["grep"])
    newest = [Talk(api, talk.session) for _ in range(MOST_PER_SESSION - 1)]
    for client in newest:
        await client.begin()
    # The others' streams have ended; what is in progress stays.
    for stream in streams[1:]:
        await stream.read()
    assert (await talk.ask("ping"))["result"] == {}
    for client in newest:
        assert (await client.ask("ping"))["result"] == {}
    for response in (held, streams[0]):
        response.close()


async def listening(talk: Talk) -> ClientResponse:
    headers = {"Accept": SSE, "Mcp-Session-Id": talk.id}
    response = await talk.api.call("GET", f"{talk.path}/mcp", key=talk.key, headers=headers)
    assert response.status == 200
    return response


async def talk_anew(talk: Talk) -> None:
    talk.id = ""
    await talk.begin()


async def test_an_ended_session_says_so(api: Api, talk: Talk) -> None:
    await api.json("POST", f"{talk.path}/complete", json={})
    for headers, body, status in (
        ({"Mcp-Session-Id": talk.id}, {"id": 1, "method": "ping"}, 404),
        ({}, {"id": 1, "method": "initialize"}, 410),
    ):
        message = {"jsonrpc": "2.0", **body}
        response = await api.call("POST", f"{talk.path}/mcp", json=message, headers=headers)
        assert response.status == status


async def test_an_idle_conversation_ends(
    api: Api, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()
    found = Conversations()
    monkeypatch.setattr("api.mcp.conversations.IDLE_SECONDS", 0.01)
    session = api.plane.sessions.finder.find(ADMIN, talk.session["id"])
    conversation = found.begin(ADMIN, session, "2025-06-18", 0, lambda _ended: ended.set())
    async with asyncio.timeout(WAIT_SECONDS):
        await ended.wait()
    with pytest.raises(NotFoundError):
        found.find(conversation.id, ADMIN, session)
    assert len(found) == 0


def test_tools_are_what_a_handle_may_do() -> None:
    """Whoever may speak the protocol may call every operation that it performs."""
    modules = [import_module(f"api.mcp.{found.name}") for found in iter_modules(api.mcp.__path__)]
    performed = {
        operation.id: operation
        for module in modules
        if module.__name__ != "api.mcp.operations"
        for value in vars(module).values()
        if (operation := getattr(value, "operation", None)) is not None
    }
    assert {"exec", "read_file", "list_files", "watch_files"} <= performed.keys()
    for operation in performed.values():
        assert ROLES[Access.WORK] <= ROLES[operation.access], operation.id
