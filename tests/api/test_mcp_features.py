"""Prompts, completion, log messages, subscriptions and files of the Model Context Protocol."""

import asyncio
import base64
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientResponse
from hypothesis import given
from hypothesis import strategies as st

from api.mcp.completions import MOST_VALUES
from api.mcp.file_resources import MOST_BYTES, path_of
from api.mcp.messages import McpError
from api.mcp.subscriptions import MOST_SUBSCRIPTIONS
from orchestrator.settings.settings import Settings
from tests.api.conftest import Api
from tests.api.test_exec import read_event
from tests.api.test_governed import TOOLS
from tests.api.test_mcp import Talk, begun
from tests.api.test_oneshot import SHOW
from tests.support.cases import each
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS


@pytest.fixture
def settings(settings: Settings, tmp_path: Any) -> Settings:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fake.clad.toml").write_text((TOOLS / "fake.clad.toml").read_text())
    (tools / "show.clad.toml").write_text(SHOW)
    return settings.model_copy(update={"tools_dir": tools})


@pytest.fixture
async def talk(api: Api) -> Talk:
    return await begun(api)


async def told(response: ClientResponse) -> dict[str, Any]:
    """The next notification."""
    async with asyncio.timeout(WAIT_SECONDS):
        message: dict[str, Any] = (await read_event(response))[1]
        return message


async def test_the_server_says_what_it_serves(api: Api) -> None:
    talk = Talk(api, await api.session(permission_level="low"))
    assert (await talk.begin())["capabilities"] == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True},
        "prompts": {},
        "completions": {},
        "logging": {},
    }


async def test_the_rules_of_the_level_are_a_prompt(api: Api, talk: Talk) -> None:
    listed = {each["name"]: each for each in (await talk.ask("prompts/list"))["result"]["prompts"]}
    assert listed["level_rules"]["arguments"] == []
    said = await prompted(talk, "level_rules")
    assert "permission level is medium" in said
    assert "grep" in said
    assert "Network: The network is reached through a proxy" in said
    await api.json("PUT", f"{talk.path}/settings", json={"settings": {"permission_level": "high"}})
    assert "Commands: any command." in await prompted(talk, "level_rules")


async def prompted(talk: Talk, name: str, **arguments: str) -> str:
    """The text of a prompt."""
    answer = await talk.ask("prompts/get", name=name, arguments=arguments)
    (message,) = answer["result"]["messages"]
    assert (message["role"], message["content"]["type"]) == ("user", "text")
    return str(message["content"]["text"])


async def test_the_manual_of_a_tool_is_a_prompt(talk: Talk) -> None:
    said = await prompted(talk, "tool_manual", tool="fake")
    assert "fake is an interactive program" in said
    assert "fake__say (risk tier low):\nSay something\nThe line must match ^say [a-z ]+$" in said
    assert "A person must approve each call." in said
    # What this session may not use, and by which rule.
    assert "fake__destroy (risk tier high): Refused in this session, by risk-tier." in said
    assert "show runs once for each call." in await prompted(talk, "tool_manual", tool="show")


@each(
    ("method", "params"),
    [
        ("prompts/get", {}),
        ("prompts/get", {"name": "nothing"}),
        ("prompts/get", {"name": 1}),
        ("prompts/get", {"name": "tool_manual"}),
        ("prompts/get", {"name": "tool_manual", "arguments": {"tool": None}}),
        ("prompts/get", {"name": "tool_manual", "arguments": {"tool": "nothing"}}),
        ("prompts/get", {"name": "tool_manual", "arguments": {"tool": "fake.say"}}),
        ("prompts/get", {"name": "level_rules", "arguments": {"more": "1"}}),
        ("prompts/get", {"name": "level_rules", "arguments": []}),
        ("logging/setLevel", {}),
        ("logging/setLevel", {"level": "loud"}),
        ("logging/setLevel", {"level": None}),
        ("completion/complete", {}),
        ("completion/complete", {"ref": {"type": "ref/prompt"}}),
        ("completion/complete", {"ref": {"type": "ref/tool", "name": "x"}, "argument": {}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "tool_manual"}}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "tool_manual"},
                "argument": {"name": "tool", "value": 1},
            },
        ),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "tool_manual"},
                "argument": {"name": "tool", "value": "x" * 5000},
            },
        ),
        ("resources/subscribe", {}),
        ("resources/subscribe", {"uri": 1}),
        ("resources/subscribe", {"uri": "paddock://files/"}),
        ("resources/subscribe", {"uri": "paddock://files/%ff"}),
        ("resources/subscribe", {"uri": "paddock://files/%00"}),
        ("resources/read", {"uri": "paddock://files/" + "x" * 20_000}),
        ("resources/unsubscribe", {"uri": []}),
    ],
)
async def test_what_can_not_be(talk: Talk, method: str, params: dict[str, Any]) -> None:
    error = (await talk.ask(method, **params))["error"]
    assert error["code"] == -32602, error
    assert len(error["message"]) < 300


async def completed(talk: Talk, ref: dict[str, str], name: str, value: str) -> dict[str, Any]:
    argument = {"name": name, "value": value}
    answer = await talk.ask("completion/complete", ref=ref, argument=argument)
    found: dict[str, Any] = answer["result"]["completion"]
    return found


MANUAL = {"type": "ref/prompt", "name": "tool_manual"}
FILES = {"type": "ref/resource", "uri": "paddock://files/{+path}"}


async def test_names_of_tools_are_completed(talk: Talk) -> None:
    found = await completed(talk, MANUAL, "tool", "")
    assert {"fake", "show", "psql"} <= set(found["values"])
    assert found["values"] == sorted(found["values"])
    found = await completed(talk, MANUAL, "tool", "sh")
    assert found == {"values": ["show"], "total": 1, "hasMore": False}


async def test_paths_are_completed_one_directory_at_a_time(api: Api, talk: Talk) -> None:
    """The sandbox is asked for one directory; of its entries, those that begin so are told."""
    for typed, directory, glob, values in (
        ("", ".", None, ["a[b].txt", "setup.py"]),
        ("s", ".", "s*", ["setup.py"]),
        ("a[", ".", None, ["a[b].txt"]),
        ("src/se", "src", "se*", ["src/setup.py"]),
    ):
        api.agent.files.update({"setup.py": b"", "a[b].txt": b""})
        found = await completed(talk, FILES, "path", typed)
        assert found["values"] == values
        asked = [params for name, params in api.agent.requests if name == "file.list"][-1]
        assert (asked["path"], asked["depth"], asked["glob"]) == (directory, 1, glob)


async def test_completions_are_few(api: Api, talk: Talk) -> None:
    for number in range(3 * MOST_VALUES):
        api.agent.files[f"f{number:04}"] = b""
    found = await completed(talk, FILES, "path", "f")
    assert len(found["values"]) == MOST_VALUES
    assert (found["total"], found["hasMore"]) == (3 * MOST_VALUES, True)


@each(
    ("ref", "name", "value"),
    [
        ({"type": "ref/prompt", "name": "nothing"}, "x", ""),
        ({"type": "ref/resource", "uri": "file:///{path}"}, "path", "/etc/pass"),
        (MANUAL, "else", ""),
        (FILES, "path", "../"),
        (FILES, "path", "/etc/pass"),
        (FILES, "path", "nowhere/x"),
    ],
)
async def test_what_nobody_knows_has_no_completion(
    talk: Talk, ref: dict[str, str], name: str, value: str
) -> None:
    found = await completed(talk, ref, name, value)
    assert found == {"values": [], "total": 0, "hasMore": False}


async def test_log_messages_are_the_events_of_the_session(api: Api, talk: Talk) -> None:
    api.agents.plays["ls"] = Play(b"notes\n")
    response = await talk.listen()
    await talk.call("exec", argv=["nc"])  # before a level is set, there are none
    assert (await talk.ask("logging/setLevel", level="warning"))["result"] == {}
    await talk.say("exec", argv=["ls"])
    await talk.call("exec", argv=["nc", "x"])
    message = await told(response)
    assert message["method"] == "notifications/message"
    params = message["params"]
    assert (params["level"], params["logger"]) == ("warning", "command.start")
    assert params["data"]["rule"] == "command-allowlist"
    assert params["data"]["args"]["argv"] == ["nc", "x"]
    await talk.ask("logging/setLevel", level="info")
    await talk.say("exec", argv=["ls"])
    operations = [(await told(response))["params"] for _ in range(2)]
    assert [(each["level"], each["logger"]) for each in operations] == [
        ("info", "command.start"),
        ("info", "command.exit"),
    ]
    response.close()


async def test_log_messages_have_no_secrets(api: Api) -> None:
    talk = await begun(api, permission_level="high")
    api.agents.plays["echo"] = Play(b"x")
    await talk.ask("logging/setLevel", level="info")
    response = await talk.listen()
    body = {"argv": ["echo", "s3cr3t-value-of-it"], "secrets": {"TOKEN": "s3cr3t-value-of-it"}}
    await api.json("POST", f"{talk.path}/exec", json=body)
    params = (await told(response))["params"]
    assert params["logger"] == "command.start"
    assert "s3cr3t-value-of-it" not in str(params)
    response.close()


async def test_long_events_are_shortened_in_the_log(
    api: Api, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.mcp.log_messages.MOST_TEXT", 100)
    api.agents.plays["echo"] = Play(b"")
    await talk.ask("logging/setLevel", level="info")
    response = await talk.listen()
    await talk.say("exec", argv=["echo", "x"])
    data = (await told(response))["params"]["data"]
    assert data["shortened"] is True
    assert data["operation"] == "command.start"
    assert "args" not in data
    response.close()


async def subscribed(talk: Talk, uri: str) -> None:
    assert (await talk.ask("resources/subscribe", uri=uri))["result"] == {}


async def test_changes_of_resources_are_told(api: Api, talk: Talk) -> None:
    response = await talk.listen()
    for _ in range(2):  # the second one changes nothing
        await subscribed(talk, "paddock://budget")
    await subscribed(talk, "paddock://session")
    await talk.say("write_file", path="a", text="x")
    updated = {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "paddock://budget"},
    }
    assert await told(response) == updated
    await api.json("PUT", f"{talk.path}/settings", json={"settings": {"permission_level": "low"}})
    messages = [await told(response) for _ in range(3)]
    assert {each.get("params", {}).get("uri") for each in messages} == {
        None,  # the tools have changed
        "paddock://budget",
        "paddock://session",
    }
    for _ in range(2):
        assert (await talk.ask("resources/unsubscribe", uri="paddock://budget"))["result"] == {}
    await talk.say("write_file", path="b", text="x")
    await subscribed(talk, "paddock://audit")
    await talk.say("write_file", path="c", text="x")
    assert (await told(response))["params"]["uri"] == "paddock://audit"
    response.close()


async def test_changes_of_files_are_told(api: Api, talk: Talk) -> None:
    response = await talk.listen()
    uri = "paddock://files/src/a%20b.txt"
    await subscribed(talk, uri)
    assert [event["args"]["path"] for event in await talk.events("file.watch")] == ["src"]
    api.agent.change({"kind": "write", "path": "src/other"})
    await api.agent.asked("file.changes")
    api.agent.change({"kind": "move", "path": "src/c", "source": "src/a b.txt"})
    assert (await told(response))["params"] == {"uri": uri}
    await talk.ask("resources/unsubscribe", uri=uri)
    await asyncio.wait_for(api.agent.asked("file.close"), WAIT_SECONDS)
    response.close()


async def test_a_watch_ends_with_its_conversation(api: Api, talk: Talk) -> None:
    await subscribed(talk, "paddock://files/a.txt")
    headers = {"Mcp-Session-Id": talk.id}
    await api.call("DELETE", f"{talk.path}/mcp", key=talk.key, headers=headers)
    await asyncio.wait_for(api.agent.asked("file.close"), WAIT_SECONDS)


async def test_a_watch_that_ends_is_told_and_can_begin_again(api: Api, talk: Talk) -> None:
    response = await talk.listen()
    uri = "paddock://files/a.txt"
    await subscribed(talk, uri)
    api.agent.change(ends=True)
    assert (await told(response))["params"] == {"uri": uri}
    api.agent.watch_ends = False
    await asyncio.wait_for(api.agent.asked("file.close"), WAIT_SECONDS)
    await subscribed(talk, uri)
    api.agent.change({"kind": "write", "path": "a.txt"})
    assert (await told(response))["params"] == {"uri": uri}
    response.close()


async def test_subscriptions_that_can_not_be(api: Api, talk: Talk) -> None:
    unknown = await talk.ask("resources/subscribe", uri="file:///etc/passwd")
    assert unknown["error"]["code"] == -32002
    outside = await talk.ask("resources/subscribe", uri="paddock://files/../x")
    assert outside["error"]["data"]["rule"] == "path-outside-workspace"
    assert not [event for event in await talk.events("file.watch") if event["decision"] != "deny"]


async def test_subscriptions_are_few(api: Api, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_SUBSCRIPTIONS <= 64
    monkeypatch.setattr("api.mcp.subscriptions.MOST_SUBSCRIPTIONS", 2)
    for name in ("session", "budget"):
        await subscribed(talk, f"paddock://{name}")
    refused = await talk.ask("resources/subscribe", uri="paddock://audit")
    assert refused["error"]["data"]["code"] == "busy"
    refused = await talk.ask("resources/subscribe", uri="paddock://files/a")
    assert refused["error"]["data"]["code"] == "busy"
    assert await talk.events("file.watch") == []


async def test_files_are_resources(api: Api, talk: Talk) -> None:
    templates = (await talk.ask("resources/templates/list"))["result"]["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == ["paddock://files/{+path}"]
    api.agent.files |= {"src/a b.md": "häll".encode(), "b": b"\xff\x00", "large": b"x" * MOST_BYTES}
    uri = "paddock://files/src/a%20b.md"
    (content,) = (await talk.ask("resources/read", uri=uri))["result"]["contents"]
    assert content == {"uri": uri, "mimeType": "text/markdown", "text": "häll"}
    (content,) = (await talk.ask("resources/read", uri="paddock://files/b"))["result"]["contents"]
    assert base64.b64decode(content["blob"]) == b"\xff\x00"
    assert content["mimeType"] == "application/octet-stream"
    assert "result" in await talk.ask("resources/read", uri="paddock://files/large")
    api.agent.files["large"] += b"x"
    refused = await talk.ask("resources/read", uri="paddock://files/large")
    assert refused["error"]["data"]["code"] == "too_large"
    missing = await talk.ask("resources/read", uri="paddock://files/none")
    assert missing["error"]["data"]["code"] == "not_found"
    reads = await talk.events("file.read")
    assert reads[0]["args"]["path"] == "src/a b.md"


@pytest.mark.parametrize(
    "path", ["a", "a b/c", "ä/ü%20", "a?b#c", "a+b;c=d", "{+path}", "~", "a\\xff"]
)
def test_uris_of_files(path: str) -> None:
    assert path_of("paddock://files/" + quote(path, safe="/-._~!$&'()*+,;=:@")) == path
    assert path_of("paddock://files/" + quote(path, safe="")) == path


@given(st.text(max_size=40))
def test_any_text_as_a_uri(text: str) -> None:
    for uri in (text, "paddock://files/" + text):
        with suppress(McpError):
            path = path_of(uri)
            assert path is None or (path and "\0" not in path)
