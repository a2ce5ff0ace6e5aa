"""Streams of the Model Context Protocol that are read on after a break."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientResponse

from api.mcp import streams
from api.mcp.conversations import MOST_PER_SESSION
from api.mcp.streams import RETRY_MILLISECONDS
from paddock import Paddock
from tests.api.conftest import Api
from tests.api.test_mcp import SSE, Talk
from tests.support.cutter import Cutter, cutting
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS

NEWEST, OLD = "2025-11-25", "2025-06-18"


class Frame(NamedTuple):
    """One event as it is on the wire."""

    id: str | None
    retry: str | None
    data: str

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


async def frame(response: ClientResponse) -> Frame | None:
    """The next event; None at the end. Comments are skipped."""
    fields: dict[str, str] = {}
    while line := (await response.content.readline()).decode():
        name, _, value = line.rstrip("\n").partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            return Frame(fields.get("id"), fields.get("retry"), fields["data"])
    return None


async def following(response: ClientResponse) -> Frame:
    found = await frame(response)
    assert found is not None
    return found


async def newest(api: Api, **body: Any) -> Talk:
    talk = Talk(api, await api.session(**{"permission_level": "medium", **body}))
    await talk.begin(NEWEST)
    return talk


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request ends because its client has not come back."""
    monkeypatch.setattr(streams, "RESUME_SECONDS", 3600.0)


@pytest.fixture
async def talk(api: Api) -> Talk:
    return await newest(api)


async def held(api: Api, talk: Talk) -> tuple[ClientResponse, str]:
    """A call in progress, and the id of its command."""
    api.agents.plays["grep"] = Play(holds=True)
    response = await talk.stream("exec", argv=["grep"])
    return response, str((await api.agent.asked("exec"))["command_id"])


async def test_a_call_is_read_on_after_a_break(api: Api, talk: Talk) -> None:
    response, command = await held(api, talk)
    first = await following(response)
    assert (first.retry, first.data) == (str(RETRY_MILLISECONDS), "")
    api.agent.print(command, "stdout", b"one\n")
    told = await following(response)
    assert told.message["params"]["message"] == "one\n"
    response.close()
    api.agent.print(command, "stdout", b"two\n")
    again = await talk.listen(**{"Last-Event-ID": str(told.id)})
    assert (await following(again)).data == ""
    assert (await following(again)).message["params"]["message"] == "two\n"
    api.agent.end(command, 0)
    answer = await following(again)
    assert answer.message["result"]["structuredContent"]["stdout"] == "one\ntwo\n"
    assert await frame(again) is None
    # And once more, from the first event on: all of it is kept a while.
    whole = await talk.listen(**{"Last-Event-ID": str(first.id)})
    told_again = [await following(whole) for _ in range(4)]
    assert told_again[1:3] == [Frame(told.id, None, told.data), told_again[2]]
    assert told_again[3].message == answer.message
    assert not [each for each in await talk.events("command.exit") if each["error"]]


async def test_a_client_that_does_not_come_back_ends_its_command(
    api: Api, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    response, command = await held(api, talk)
    monkeypatch.setattr(streams, "RESUME_SECONDS", 0.01)
    response.close()
    ended = await asyncio.wait_for(api.agent.asked("cancel"), WAIT_SECONDS)
    assert (ended["command_id"], ended["reason"]) == (command, "client_gone")


async def test_a_revoked_key_ends_what_it_left(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"name": "left", "role": "operator"}
    made = await api.json("POST", "/api/keys", json=asked, status=201)
    session = await api.session(key=made["key"], permission_level="medium")
    talk = Talk(api, {**session, "handle": made["key"]})
    await talk.begin(NEWEST)
    response, command = await held(api, talk)
    response.close()
    assert (await api.call("DELETE", "/api/keys/left")).status == 204
    ended = await asyncio.wait_for(api.agent.asked("cancel"), WAIT_SECONDS)
    assert ended["command_id"] == command


async def test_an_older_client_gets_what_it_knows(api: Api) -> None:
    """No event without data, no ids; and a disconnect ends its command, as it always did."""
    talk = Talk(api, await api.session(permission_level="medium"))
    await talk.begin(OLD)
    response, command = await held(api, talk)
    api.agent.print(command, "stdout", b"one\n")
    told = await following(response)
    assert (told.id, told.retry) == (None, None)
    assert told.message["params"]["message"] == "one\n"
    listening = await talk.listen(**{"Last-Event-ID": "whatever"})
    assert listening.status == 200
    response.close()
    ended = await asyncio.wait_for(api.agent.asked("cancel"), WAIT_SECONDS)
    assert ended["command_id"] == command
    listening.close()


@pytest.mark.parametrize("last", ["x", "-1", "1" * 30, "5000000001", "1.5", ""])
async def test_events_that_are_not_kept(api: Api, talk: Talk, last: str) -> None:
    headers = {"Last-Event-ID": last, "Accept": SSE, "Mcp-Session-Id": talk.id}
    path, key = f"{talk.path}/mcp", talk.key
    problem = await api.problem(400, "validation_error", "GET", path, key=key, headers=headers)
    assert problem["field"] == "Last-Event-ID"
    assert (await talk.ask("ping"))["result"] == {}


async def test_another_client_reads_none_of_it(api: Api, talk: Talk) -> None:
    response, _ = await held(api, talk)
    first = await following(response)
    other = Talk(api, talk.session)
    await other.begin(NEWEST)
    headers = {"Last-Event-ID": str(first.id), "Accept": SSE, "Mcp-Session-Id": other.id}
    await api.problem(
        400, "validation_error", "GET", f"{talk.path}/mcp", key=talk.key, headers=headers
    )
    response.close()


async def test_notifications_are_read_on(api: Api, talk: Talk) -> None:
    response = await talk.listen()
    first = await following(response)
    assert first.data == ""
    await api.json("PUT", f"{talk.path}/settings", json={"settings": {"permission_level": "high"}})
    changed = await following(response)
    assert changed.message["method"] == "notifications/tools/list_changed"
    # It may have been lost on its way.
    again = await talk.listen(**{"Last-Event-ID": str(first.id)})
    assert (await following(again)).data == ""
    assert await following(again) == changed
    assert await frame(response) is None
    again.close()


async def test_what_happens_while_nobody_listens_is_told_later(api: Api, talk: Talk) -> None:
    (await talk.listen()).close()
    await api.json("PUT", f"{talk.path}/settings", json={"settings": {"permission_level": "high"}})
    response = await talk.listen()
    await following(response)
    assert (await following(response)).message["method"] == "notifications/tools/list_changed"
    response.close()


async def test_a_client_that_left_its_request_makes_room(api: Api, talk: Talk) -> None:
    response, command = await held(api, talk)
    waiting = []
    for _ in range(MOST_PER_SESSION - 1):
        busy = Talk(api, talk.session)
        await busy.begin(NEWEST)
        waiting.append(await busy.stream("exec", argv=["grep"]))
    params = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {}}
    another = {"id": 0, "method": "initialize", "params": params}
    newest = Talk(api, talk.session)
    assert (await newest.post(another)).status == 409
    response.close()
    # The server learns of it a little later.
    async with asyncio.timeout(WAIT_SECONDS):
        while (await newest.post(another)).status == 409:
            pass
    ended = await asyncio.wait_for(api.agent.asked("cancel"), WAIT_SECONDS)
    assert ended["command_id"] == command
    for each in waiting:
        each.close()


async def test_the_end_of_a_conversation_ends_what_was_left(api: Api, talk: Talk) -> None:
    response, command = await held(api, talk)
    response.close()
    headers = {"Mcp-Session-Id": talk.id}
    await api.call("DELETE", f"{talk.path}/mcp", key=talk.key, headers=headers)
    ended = await asyncio.wait_for(api.agent.asked("cancel"), WAIT_SECONDS)
    assert ended["command_id"] == command


@pytest.fixture
async def cutter(api: Api) -> AsyncIterator[Cutter]:
    assert api.server.port is not None
    async with cutting(api.server.port) as cutter:
        yield cutter


async def test_the_client_reads_on(api: Api, talk: Talk, cutter: Cutter) -> None:
    async with Paddock(cutter.url, "unused") as paddock:
        session = await paddock.sessions.attach(talk.session["id"], talk.key)
        params = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {}}
        await session.mcp.initialize(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        )
        api.agents.plays["grep"] = Play(holds=True)
        call = {"name": "exec", "arguments": {"argv": ["grep"]}, "_meta": {"progressToken": 1}}
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        answers = session.mcp.request(message)
        begun = asyncio.ensure_future(anext(answers))
        command = (await api.agent.asked("exec"))["command_id"]
        api.agent.print(command, "stdout", b"one\n")
        assert (await begun)["params"]["message"] == "one\n"
        cutter.cut()
        api.agent.print(command, "stdout", b"two\n")
        assert (await anext(answers))["params"]["message"] == "two\n"
        api.agent.end(command, 0)
        rest = [answer async for answer in answers]
        assert rest[-1]["result"]["structuredContent"]["stdout"] == "one\ntwo\n"


async def test_the_client_listens_on(api: Api, talk: Talk, cutter: Cutter) -> None:
    """What was lost with a connection is told by the next call, and nothing twice."""
    async with Paddock(cutter.url, "unused") as paddock:
        session = await paddock.sessions.attach(talk.session["id"], talk.key)
        params = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {}}
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        await session.mcp.initialize(first)
        subscribe = {"method": "resources/subscribe", "params": {"uri": "paddock://session"}}
        async for _answer in session.mcp.request({"jsonrpc": "2.0", "id": 2, **subscribe}):
            pass
        seen: list[str] = []
        for level in ("high", "low", "medium"):
            listening = session.mcp.listen()
            next_one = asyncio.ensure_future(anext(listening))
            body = {"settings": {"permission_level": level}}
            await api.json("PUT", f"{talk.path}/settings", json=body)
            async with asyncio.timeout(WAIT_SECONDS):
                seen += [(await next_one)["method"], (await anext(listening))["method"]]
            cutter.cut()
            await listening.aclose()
        told = ["notifications/tools/list_changed", "notifications/resources/updated"]
        assert seen == told * 3
