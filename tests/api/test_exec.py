"""Commands over HTTP: results, streams, processes, and clients that disconnect."""

import asyncio
import base64
import io
import json
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientTimeout

from paddock.contract.words import MAX_ARGUMENT_BYTES
from sandbox_agent.decide.protocol import MOST_CHUNKS, MOST_EVENT_OUTPUT_BYTES
from tests.api.conftest import OPERATOR_KEY, Api
from tests.support.cases import each
from tests.support.contract import check_event
from tests.support.fake_agent import AgentRefusalError, Play

SSE = {"Accept": "text/event-stream"}
BACKGROUND = {"command": "sleep 9", "background": True}


async def read_event(response: ClientResponse) -> tuple[str, Any, str | None]:
    """Skips comments; returns the next event's name, data and id."""
    fields: dict[str, str] = {}
    while True:
        line = (await response.content.readline()).decode()
        if not line:
            raise EOFError
        name, _, value = line.rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            data = json.loads(fields["data"])
            check_event(response, fields["event"], data)
            return fields["event"], data, fields.get("id")


async def read_piece(response: ClientResponse) -> tuple[str, Any, str | None]:
    """An event of output without its time."""
    name, data, event_id = await read_event(response)
    data.pop("time")
    return name, data, event_id


async def read_events(response: ClientResponse) -> list[tuple[str, Any, str | None]]:
    events = []
    while True:
        try:
            events.append(await read_event(response))
        except EOFError:
            return events


@pytest.fixture
async def path(api: Api) -> str:
    session = await api.session(permission_level="high")
    return f"/api/sessions/{session['id']}"


async def test_result(api: Api, path: str) -> None:
    api.agents.plays["make"] = Play(b"out \xff\n", b"err\n", exit_code=2)
    result = await api.json("POST", path + "/exec", json={"argv": ["make", "it"]})
    assert result["stdout"] == "out \ufffd\n"
    assert result["stderr"] == "err\n"
    assert result["exit_code"] == 2
    assert result["truncated"] is False
    audit = await api.json("GET", path + "/audit?operation=command.exit")
    assert result["audit"] == {key: audit["items"][0][key] for key in ("seq", "hash")}
    started = await api.json("GET", path + "/audit?operation=command.start")
    assert started["items"][0]["args"]["command_id"] == result["command_id"]


async def test_large_output(api: Api, path: str) -> None:
    piece = "é".encode() * 50_000
    api.agents.plays["yes"] = Play(chunks=[("stdout", piece), ("stderr", b"!"), ("stdout", piece)])
    result = await api.json("POST", path + "/exec", json={"command": "yes"})
    assert result["stdout"] == "é" * 100_000
    assert result["stderr"] == "!"


async def test_events_while_it_runs(api: Api, path: str) -> None:
    api.agents.plays["build"] = Play(b"one\n", holds=True)
    response = await api.call("POST", path + "/exec", json={"command": "build"}, headers=SSE)
    assert response.content_type == "text/event-stream"
    name, data, _ = await read_event(response)
    command_id = data["command_id"]
    assert name == "start"
    assert await read_piece(response) == ("stdout", {"offset": 0, "text": "one\n"}, "4")
    api.agent.print(command_id, "stderr", "é".encode()[:1])
    await api.json("GET", path)
    api.agent.print(command_id, "stderr", "é".encode()[1:])
    assert await read_piece(response) == ("stderr", {"offset": 5, "text": "é"}, "6")
    api.agent.print(command_id, "stdout", b"\xe2")
    api.agent.end(command_id, 3)
    rest = await read_events(response)
    rest[0][1].pop("time")
    cut = {"offset": 7, "text": "\ufffd", "data_base64": base64.b64encode(b"\xe2").decode()}
    assert rest[0][:2] == ("stdout", cut)
    assert rest[1][0] == "exit"
    assert rest[1][1]["command_id"] == command_id
    assert rest[1][1]["exit_code"] == 3
    assert len(rest) == 2


async def test_refusal_has_its_rule(api: Api) -> None:
    path = f"/api/sessions/{(await api.session(permission_level='low'))['id']}"
    for body, rule in [
        ({"command": "curl x"}, "command-allowlist"),
        ({"command": "ls; rm"}, "shell-operators"),
        ({"argv": ["cat", "/etc/passwd"]}, "path-outside-workspace"),
        ({"argv": ["find", ".", "-exec", "id"]}, "option-not-allowed"),
        ({"argv": ["ls"], "env": {"LD_PRELOAD": "x"}}, "environment-allowlist"),
    ]:
        problem = await api.problem(403, "permission_denied", "POST", path + "/exec", json=body)
        assert problem["rule"] == rule
    denied = await api.json("GET", path + "/audit?decision=deny")
    assert len(denied["items"]) == 5
    assert not any(method == "exec" for method, _ in api.agent.requests)


async def test_refused_by_the_agent(api: Api, path: str) -> None:
    def refuse(_params: Any) -> Any:
        raise AgentRefusalError("permission_denied", "not here", "path-outside-workspace")

    api.agent.overrides["exec"] = refuse
    body = {"command": "ls"}
    problem = await api.problem(403, "permission_denied", "POST", path + "/exec", json=body)
    assert problem["rule"] == "path-outside-workspace"


@pytest.mark.parametrize("accept", [{}, SSE])
async def test_client_gone_ends_its_command(api: Api, path: str, accept: dict[str, str]) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    request = asyncio.create_task(
        api.call("POST", path + "/exec", json={"command": "sleep 9"}, headers=accept)
    )
    await api.agent.asked("output" if accept else "exec")
    if accept:
        (await request).close()
    else:
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    cancelled = await api.agent.asked("cancel")
    assert cancelled["reason"] == "client_gone"
    commands = await api.json("GET", path + "/processes")
    assert commands["items"][0]["command_id"] == cancelled["command_id"]


async def test_client_gone_before_the_start(api: Api, path: str) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    release = asyncio.Event()
    start = api.agent._on_exec

    async def late(params: Any) -> Any:
        await release.wait()
        return await start(params)

    api.agent._on_exec = late  # type: ignore[method-assign]
    request = asyncio.create_task(api.call("POST", path + "/exec", json={"command": "sleep 9"}))
    await api.agent.asked("exec")
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    # Once it answers another request, the control plane has noticed the lost connection.
    await api.json("GET", path)
    release.set()
    assert (await api.agent.asked("cancel"))["reason"] == "client_gone"


async def test_commands_outlive_the_control_plane(api: Api, path: str) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    request = asyncio.create_task(api.call("POST", path + "/exec", json={"command": "sleep 9"}))
    await api.agent.asked("exec")
    await api.server.close()
    await asyncio.gather(request, return_exceptions=True)
    assert not any(method == "cancel" for method, _ in api.agent.requests)


async def test_background(api: Api, path: str) -> None:
    api.agents.plays["serve"] = Play(b"ready\n", holds=True)
    body = {"command": "serve", "background": True, "stdin_open": True}
    started = await api.json("POST", path + "/exec", json=body, status=202)
    assert started["status"] == "running"
    assert started["exit"] is None
    process = f"{path}/processes/{started['command_id']}"
    page = await api.json("GET", process)
    (piece,) = page["output"]
    assert piece | {"time": ""} == {"stream": "stdout", "offset": 0, "text": "ready\n", "time": ""}
    assert (await api.json("GET", f"{process}?after={page['next']}"))["output"] == []

    watcher = await api.call("GET", f"{process}?after=6", headers=SSE)
    assert (await read_event(watcher))[0] == "start"
    api.agent.print(started["command_id"], "stdout", b"more")
    assert await read_piece(watcher) == ("stdout", {"offset": 6, "text": "more"}, "10")
    watcher.close()
    resumed = await api.call("GET", process, headers={**SSE, "Last-Event-ID": "8"})
    assert (await read_event(resumed))[0] == "start"
    assert (await read_piece(resumed))[1] == {"offset": 8, "text": "re"}

    await api.json("POST", process + "/stdin", json={"data": "é"})
    assert api.agent.stdin[started["command_id"]] == "é".encode()
    taken = await api.json("POST", process + "/stdin", json={"data_base64": "AP8="})
    assert taken["bytes"] == 2
    assert api.agent.stdin[started["command_id"]] == "é".encode() + b"\x00\xff"
    for wrong in ({"data": "x", "data_base64": "eA=="}, {"data_base64": "?"}):
        await api.problem(400, "validation_error", "POST", process + "/stdin", json=wrong)
    assert api.agent.stdin[started["command_id"]] == "é".encode() + b"\x00\xff"
    assert (await api.json("POST", process + "/signal", json={"signal": "SIGTERM"}))["signal"] == 15
    assert (await read_event(resumed))[1]["exit_code"] == 143
    ended = await api.json("GET", process)
    assert ended["status"] == "exited"
    assert not any(method == "cancel" for method, _ in api.agent.requests)


async def test_text_is_not_cut_inside_a_character(api: Api, path: str) -> None:
    api.agents.plays["serve"] = Play(b"a\xc3", holds=True)
    body = {"command": "serve", "background": True}
    started = await api.json("POST", path + "/exec", json=body, status=202)
    process = f"{path}/processes/{started['command_id']}"
    page = await api.json("GET", process)
    assert (page["output"][0]["text"], page["next"]) == ("a", 1)
    api.agent.print(started["command_id"], "stdout", b"\xa9")
    page = await api.json("GET", f"{process}?after=1")
    assert (page["output"][0]["text"], page["next"]) == ("é", 3)


async def test_what_was_cut_is_said_where_it_was(api: Api, path: str) -> None:
    def cut(_params: Any) -> Any:
        chunks = [
            (stream, offset, base64.b64encode(data).decode())
            for stream, offset, data in (
                ("stdout", 0, b"first"),
                ("stderr", 5, b"warned"),
                ("stdout", 1011, b"last"),
                # A second gap, which an agent must not report.
                ("stdout", 2000, b"!"),
            )
        ]
        return {"chunks": chunks, "next": 2001, "ended": True}

    api.agents.plays["make"] = Play(b"text")
    api.agent.tells_output = False
    api.agent.overrides["output"] = cut
    result = await api.json("POST", path + "/exec", json={"command": "make"})
    said = "\n[1000 bytes of output were cut here]\n"
    assert (result["stdout"], result["stderr"]) == (f"first{said}last!", f"warned{said}")


async def test_pages_of_very_many_pieces_are_not_taken_for_the_last(api: Api, path: str) -> None:
    def paged(params: Any) -> Any:
        after = params["after"]
        pieces = range(after, min(after + MOST_CHUNKS, 5000))
        chunks = [[("stdout", "stderr")[number % 2], number, "eA=="] for number in pieces]
        return {"chunks": chunks, "next": after + len(chunks), "ended": True}

    api.agents.plays["make"] = Play(b"x" * 5000)
    api.agent.tells_output = False
    api.agent.overrides["output"] = paged
    result = await api.json("POST", path + "/exec", json={"command": "make"})
    assert (result["stdout"], result["stderr"]) == ("x" * 2500, "x" * 2500)


async def test_a_result_has_what_is_kept_and_its_process_all(api: Api, path: str) -> None:
    api.agents.plays["make"] = Play(b"x" * (MOST_EVENT_OUTPUT_BYTES + 1))
    result = await api.json("POST", path + "/exec", json={"command": "make"})
    assert result["stdout"] == "x" * (MOST_EVENT_OUTPUT_BYTES + 1)
    process = f"{path}/processes/{result['command_id']}"
    await api.json("GET", process)
    asked = [params["whole"] for method, params in api.agent.requests if method == "output"]
    assert asked == [False, True]


async def test_short_output_comes_with_the_end(api: Api, path: str) -> None:
    """The agent is asked only to run the command; the output is requested by later readers."""
    api.agents.plays["make"] = Play(b"made", b"warned", exit_code=3)
    result = await api.json("POST", path + "/exec", json={"command": "make"})
    found = (result["stdout"], result["stderr"], result["exit_code"], result["truncated"])
    assert found == ("made", "warned", 3, False)
    (session,) = api.plane.sessions.registry.live
    assert session.commands[result["command_id"]].output is None
    asked = [(method, params["collect"]) for method, params in api.agent.requests if "ex" in method]
    assert asked == [("exec", True)]
    assert not any(method == "output" for method, _ in api.agent.requests)
    process = await api.json("GET", f"{path}/processes/{result['command_id']}")
    assert process["output"][0]["text"] == "made"


async def test_output_that_nobody_collects_is_not_kept(api: Api, path: str) -> None:
    body = {"command": "make", "background": True}
    api.agents.plays["make"] = Play(holds=True)
    started = await api.json("POST", path + "/exec", json=body, status=202)
    (session,) = api.plane.sessions.registry.live
    command = session.commands[started["command_id"]]
    ended = {"exit_code": 0, "output_bytes": 2}
    told = [["stdout", 0, "eHg="]]
    api.agent.emit("command.exit", command_id=command.id, result=ended, output=told)
    await command.done
    assert command.output_bytes == 2
    assert command.output is None


async def test_lost_output_is_said(api: Api, path: str) -> None:
    def lose(_params: Any) -> Any:
        raise AgentRefusalError("not_found", "no longer kept")

    api.agents.plays["make"] = Play(b"text")
    api.agent.tells_output = False
    api.agent.overrides["output"] = lose
    result = await api.json("POST", path + "/exec", json={"command": "make"})
    assert (result["stdout"], result["truncated"]) == ("", True)
    process = f"{path}/processes/{result['command_id']}"
    assert (await api.json("GET", process))["lost"] is True


def _large(body: Any) -> dict[str, Any]:
    """As a stream: the client library warns about large bodies in one piece."""
    return {"data": io.BytesIO(json.dumps(body).encode())}


async def test_words_up_to_the_kernels_limits(api: Api, path: str) -> None:
    """128 KiB per word, 2 MiB in all, whichever way a client writes its JSON."""
    for ascii_only in (True, False):
        words = ["echo", *["é" * 65_000] * 15]
        data = json.dumps({"argv": words}, ensure_ascii=ascii_only).encode()
        await api.json("POST", path + "/exec", data=io.BytesIO(data))
    asked = [params["argv"] for method, params in api.agent.requests if method == "exec"]
    assert asked == [words, words]
    longest = ["echo", "x" * (128 * 1024 - 1)]
    await api.json("POST", path + "/exec", json={"argv": longest})
    for argv, field in (
        (["echo", "x" * 128 * 1024], "argv.1"),
        (["echo", *["x" * 131_000] * 16, "x" * 2000], "argv"),
    ):
        body = {"argv": argv}
        problem = await api.problem(400, "validation_error", "POST", path + "/exec", **_large(body))
        assert problem["field"] == field
        assert "bytes" in problem["detail"]
    assert len([method for method, _ in api.agent.requests if method == "exec"]) == 3


async def test_words_and_variables_have_one_limit(api: Api) -> None:
    """Variables of the session, of the command and its secrets count as the kernel counts them."""
    value = "x" * 32_000
    session = await api.session(
        permission_level="high", env={f"S{number}": value for number in range(10)}
    )
    path = f"/api/sessions/{session['id']}/exec"
    argv = ["echo", *["x" * 130_000] * 13, "x" * 60_000]
    used = sum(len(word) + 9 for word in argv) + 10 * (len("S0=") + 32_000 + 9)
    room = MAX_ARGUMENT_BYTES - used
    env = {"A": "x" * (room - len("A=") - 9)}
    assert (await api.json("POST", path, **_large({"argv": argv, "env": env})))["exit_code"] == 0
    before = await api.json("GET", f"/api/sessions/{session['id']}/processes")
    for more in ({"env": {"A": env["A"] + "x"}}, {"env": env, "secrets": {"C": "secret-0"}}):
        body = {"argv": argv, **more}
        problem = await api.problem(400, "validation_error", "POST", path, **_large(body))
        assert problem["field"] == "argv"
        assert "argv and the variables must have at most 2080768 bytes" in problem["detail"]
    assert await api.json("GET", f"/api/sessions/{session['id']}/processes") == before


async def test_garbage_output_does_not_hang(api: Api, path: str) -> None:
    api.agents.plays["make"] = Play(b"text")
    api.agent.tells_output = False
    api.agent.overrides["output"] = lambda _params: {"chunks": "garbage"}
    result = await api.json("POST", path + "/exec", json={"command": "make"})
    assert (result["exit_code"], result["stdout"]) == (0, "")
    # All that was printed is missing.
    assert (result["output_bytes"], result["truncated"]) == (4, True)


async def test_unknown_processes(api: Api, path: str) -> None:
    for method, rest, body in [
        ("GET", "", None),
        ("POST", "/stdin", {"data": "x"}),
        ("POST", "/signal", {"signal": "TERM"}),
    ]:
        await api.problem(404, "not_found", method, f"{path}/processes/none{rest}", json=body)


async def test_level_in_exec(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}/exec"
    body = {"command": "python3 x", "permission_level": "high"}
    await api.problem(403, "permission_denied", "POST", path, json=body, key=session["handle"])
    await api.problem(403, "permission_denied", "POST", path, json={"command": "python3 x"})
    assert (await api.json("POST", path, json=body, key=OPERATOR_KEY))["exit_code"] == 0
    for wrong in ("HIGH", "high ", 3, ["low"]):
        problem = await api.problem(
            400, "validation_error", "POST", path, json={**body, "permission_level": wrong}
        )
        assert problem["detail"] == "permission_level must be low|medium|high"
    settings = await api.json("GET", f"/api/sessions/{session['id']}/settings")
    assert settings["permission_level"] == "high"


async def test_sandbox_that_disconnects(api: Api, path: str) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    request = asyncio.create_task(
        api.call("POST", path + "/exec", json={"command": "sleep"}, timeout=ClientTimeout(30))
    )
    await api.agent.asked("exec")
    (container_id,) = api.engine.containers
    await api.engine.die(container_id)
    response = await request
    assert response.status in (200, 410, 502)
    assert (await api.json("GET", path))["termination"]["rationale_code"] == "crash"


async def test_a_command_is_lost_once(api: Api, path: str) -> None:
    """An agent that connects twice in a row is asked twice about its commands."""
    api.agents.plays["sleep"] = Play(holds=True)
    started = await api.json("POST", path + "/exec", json=BACKGROUND, status=202)
    (session,) = api.plane.sessions.registry.live
    del api.agent._running[started["command_id"]]
    await asyncio.gather(*(api.plane.executions.reconcile(session) for _ in range(2)))
    events = await api.json("GET", path + "/audit?operation=command.exit")
    assert [event["args"]["command_id"] for event in events["items"]] == [started["command_id"]]
    assert not session.running


CUT = base64.b64encode(b"a\xe2\x82").decode()


@each(
    "page",
    [
        {"chunks": [], "next": -1},
        {"chunks": [], "next": True},
        {"chunks": [], "next": "3"},
        {"chunks": [], "next": 2.5},
        {"chunks": [], "next": 10**400},
        {"chunks": [["stdout", 0, CUT]], "next": 0},
        {"chunks": [["stdout", 2**53 - 1, CUT]], "next": 5},
        {"chunks": [["stdout", -4, CUT]], "next": 3},
    ],
)
async def test_pages_of_output_that_can_not_be(api: Api, path: str, page: dict[str, Any]) -> None:
    started = await api.json("POST", path + "/exec", json=BACKGROUND, status=202)
    place = f"{path}/processes/{started['command_id']}"
    api.agent.overrides["output"] = lambda _: {**page, "ended": False}
    await api.problem(502, "sandbox_unavailable", "GET", place)
    api.agent.overrides["output"] = lambda _: {**page, "ended": True}
    await api.problem(502, "sandbox_unavailable", "GET", place)
    events = await read_events(await api.call("GET", place, headers=SSE))
    assert [name for name, _, _ in events] == ["start", "exit"]


async def test_a_result_begins_with_its_command(api: Api, path: str) -> None:
    """The order of the fields is the order in the API's documentation."""
    answer = await api.call("POST", path + "/exec", json={"argv": ["ls"]})
    assert next(iter(json.loads(await answer.text()))) == "command_id"
    stream = await api.call("POST", path + "/exec", json={"argv": ["ls"]}, headers=SSE)
    name, data, _ = (await read_events(stream))[-1]
    assert (name, next(iter(data))) == ("exit", "command_id")
