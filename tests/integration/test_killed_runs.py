"""A control plane that is killed in the middle of a tick: the run has ended once, and is whole."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from images.builder import build
from paddock import Paddock
from tests.api.test_run_tools import POLICY, Host, serving_host
from tests.support.limits import WAIT_SECONDS
from tests.support.models import Answer, ModelServer, calling, model_server
from tests.support.server import Server, leaving_nothing

LINE = ("python3__calculate", {"command": "2 + 3"})
TICKET = ("create_ticket", {"title": "a"})
WAITS = ("exec", {"command": "sleep 600"})
LOST = "The run was interrupted before the result of this call was known."


async def recorded(server: Server, path: str, operation: str) -> None:
    """Waits until the session has an event of that operation."""
    async with asyncio.timeout(WAIT_SECONDS), server.client.get(f"{path}/events?after=0") as stream:
        async for line in stream.content:
            if line.startswith(b"data:") and json.loads(line[5:])["operation"] == operation:
                return
    raise AssertionError("the events end")


async def model_is_called(server: Server, path: str, model: ModelServer, host: Host) -> None:
    await recorded(server, path, "llm.complete")
    async with asyncio.timeout(WAIT_SECONDS):
        await model.hanging.wait()


async def command_runs(server: Server, path: str, model: ModelServer, host: Host) -> None:
    await recorded(server, path, "command.start")


async def host_is_called(server: Server, path: str, model: ModelServer, host: Host) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        await host.called.wait()


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


Moment = Callable[[Server, str, ModelServer, Host], Awaitable[None]]


@pytest.mark.parametrize(
    ("answers", "moment"),
    [
        ([calling(LINE), Answer(hangs=True, body=[])], model_is_called),
        ([calling(WAITS)], command_runs),
        ([calling(LINE, TICKET)], host_is_called),
    ],
)
async def test_a_killed_run_has_ended_once(answers: list[Answer], moment: Moment) -> None:
    calls = len(answers[0].calls)
    async with (
        model_server(*answers) as model,
        serving_host() as host,
        serving(model, host) as server,
    ):
        members = {"permission_level": "high", "policy": POLICY}
        session = await server.ok("POST", "/api/sessions", members)
        path = f"/api/sessions/{session['id']}"
        body = {"messages": [{"content": "go"}], "tools": [host.tool()]}
        sending = asyncio.create_task(server.call("POST", f"{path}/send", body))
        await moment(server, path, model, host)
        await server.kill()
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever way the connection breaks
            await sending
        await server.start()
        await check_ended_once(server, path)
        # The next run knows what was said, and that results are missing.
        model.answers = [Answer("on")]
        async with Paddock(server.url, server.key) as paddock:
            run = await (await paddock.sessions.get(session["id"])).send("go on")
        assert (run.text, run.turn_number) == ("on", 2)
        sent = model.bodies[-1]["messages"]
        assert [each["content"] for each in sent if each["role"] == "tool"] == [LOST] * calls
        assert [each["content"] for each in sent if each["role"] == "user"] == ["go", "go on"]


@asynccontextmanager
async def serving(model: ModelServer, host: Host) -> AsyncIterator[Server]:
    """A server that calls both; at the end its sessions are closed, and nothing of them is left."""
    host.free.clear()
    settings = {
        "PADDOCK_MODELS": json.dumps({"small": model.setting()}),
        "PADDOCK_TOOL_URLS": host.url,
    }
    async with leaving_nothing(**settings) as server:
        try:
            yield server
        finally:
            host.free.set()
            for session in (await server.ok("GET", "/api/sessions"))["items"]:
                await server.ok("DELETE", f"/api/sessions/{session['id']}?purge=true")


async def check_ended_once(server: Server, path: str) -> None:
    """The turn is on record once, as interrupted, and the record and the timeline are whole."""
    (turn,) = (await server.ok("GET", f"{path}/turns"))["items"]
    assert (turn["turn_number"], turn["status"]) == (1, "ended")
    outcome = turn["outcome"]
    assert (outcome["error_type"], outcome["message"]) == (
        *("interrupted", "the control plane was restarted"),
    )
    events = (await server.ok("GET", f"{path}/audit?limit=1000"))["items"]
    names = [each["operation"] for each in events]
    assert (names.count("turn.start"), names.count("turn.end")) == (1, 1)
    assert names.count("tool.call") == 0
    assert turn["operations_count"] == names.count("llm.complete") + names.count("world.tool")
    assert (await server.ok("GET", f"{path}/audit/verify"))["ok"]
    # What follows the last operation on record is not kept.
    kept = (await server.ok("GET", f"{path}/timeline"))["items"]
    assert [each["role"] for each in kept] == ["user", "assistant"]
    for terminal in (await server.ok("GET", f"{path}/ptys"))["items"]:
        assert (terminal["status"], terminal["reason"]) == (
            *("terminated", "control_plane_restarted"),
        )
    limits: dict[str, Any] = (await server.ok("GET", f"{path}/budget"))["consumed"]
    assert limits["tokens"] == sum(each["tokens_used"] or 0 for each in events)
