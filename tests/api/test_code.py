"""Code: cells and contexts over HTTP and from the client, with a program that follows a script."""

import asyncio
import json
from typing import Any

import pytest

from orchestrator.work.code.context import ContextStatus
from orchestrator.work.code.contexts import MOST_CONTEXTS
from paddock import CodeExit, CodeOutput, CodeValue, Paddock
from tests.api.conftest import ADMIN_KEY, Api
from tests.api.test_exec import SSE, read_events
from tests.api.test_mcp import begun
from tests.support.cli import run_beside
from tests.support.fake_runner import FakeRunner
from tests.support.until import until


@pytest.fixture
async def runner(api: Api) -> FakeRunner:
    runner = FakeRunner()
    api.agents.plays["python3"] = runner.play()
    return runner


@pytest.fixture
async def path(api: Api, runner: FakeRunner) -> str:
    created = await api.session(id="code-1", permission_level="high")
    return f"/api/sessions/{created['id']}"


async def recorded(api: Api, path: str, operation: str) -> list[dict[str, Any]]:
    found = await api.json("GET", f"{path}/audit?operation={operation}")
    return list(found["items"])


async def test_a_cell_has_its_output_its_value_and_its_record(api: Api, path: str) -> None:
    body = {"code": "print héllo\nvalue 42"}
    found = await api.json("POST", path + "/code", json=body)
    assert (found["stdout"], found["stderr"], found["status"]) == ("héllo", "", "ok")
    assert found["results"] == [{"main": True, "text": "42"}]
    assert found["execution_count"] == 1
    (start,) = await recorded(api, path, "code.start")
    (end,) = await recorded(api, path, "code.exit")
    assert start["args"]["code"] == body["code"]
    assert start["args"]["command_id"] == found["command_id"]
    assert start["args"]["cell"] == end["args"]["cell"] == found["cell"]
    assert (end["seq"], end["hash"]) == (found["audit"]["seq"], found["audit"]["hash"])
    assert end["result"]["status"] == "ok"


async def test_cells_are_streamed(api: Api, path: str) -> None:
    body = {"code": "print a\nvalue b\nraise c"}
    response = await api.call("POST", path + "/code", json=body, headers=SSE)
    events = await read_events(response)
    assert [name for name, *_ in events] == ["start", "stdout", "result", "exception", "exit"]
    assert events[3][1]["message"] == "c"
    assert events[4][1]["status"] == "error"


async def test_a_cell_is_counted_and_a_used_up_budget_refuses_it(api: Api) -> None:
    api.agents.plays["python3"] = FakeRunner().play()
    created = await api.session(permission_level="high", budget={"commands": 2})
    path = f"/api/sessions/{created['id']}"
    await api.json("POST", path + "/code", json={"code": ""})  # the program, and the cell
    problem = await api.problem(
        429, "budget_exceeded", "POST", path + "/code", json={"code": "print a"}
    )
    assert problem["kind"] == "commands"


async def test_levels_without_an_interpreter_refuse_code(api: Api) -> None:
    path = f"/api/sessions/{(await api.session(permission_level='medium'))['id']}"
    for url in ("/code", "/code/contexts"):
        body = {"code": "1"} if url == "/code" else {}
        problem = await api.problem(403, "permission_denied", "POST", path + url, json=body)
        assert problem["rule"] == "code-level"
    assert [each["rule"] for each in await recorded(api, path, "code.start")] == ["code-level"] * 2
    assert await api.json("GET", path + "/code/contexts") == {"items": [], "next": None}


async def test_a_cell_that_takes_too_long_is_interrupted(api: Api, path: str) -> None:
    body = {"code": "print a\nhang", "timeout": 0.1}
    found = await api.json("POST", path + "/code", json=body)
    assert (found["status"], found["lost"], found["stdout"]) == ("timed_out", False, "a")
    assert found["error"]["message"] == "signal 2"


async def test_a_client_that_leaves_interrupts_its_cell(api: Api, path: str) -> None:
    asking = asyncio.ensure_future(
        api.call("POST", path + "/code", json={"code": "hang"}, headers=SSE)
    )
    (await asking).close()
    after = await api.json("POST", path + "/code", json={"code": "value 1"})
    assert after["execution_count"] == 2  # it waited for its turn
    first, _ = await recorded(api, path, "code.exit")
    assert first["result"]["status"] == "interrupted"


async def test_cells_of_a_context_wait_for_each_other(api: Api, path: str) -> None:
    hanging = await api.call("POST", path + "/code", json={"code": "hang"}, headers=SSE)
    others = [
        asyncio.ensure_future(api.json("POST", path + "/code", json={"code": f"value {number}"}))
        for number in range(3)
    ]
    found = api.plane.contexts.listed(api.plane.sessions.registry.live[0])
    await until(lambda: found[0].waiting == 3)
    (shown,) = (await api.json("GET", path + "/code/contexts"))["items"]
    assert shown["status"] == "busy"
    await api.json("POST", path + "/code/contexts/python/interrupt", json={})
    answers = await asyncio.gather(*others)
    assert sorted(each["execution_count"] for each in answers) == [2, 3, 4]
    hanging.close()


async def test_contexts_are_created_listed_restarted_and_removed(api: Api, path: str) -> None:
    url = path + "/code/contexts"
    made = await api.json("POST", url, status=201, json={"name": "a", "cwd": "src"})
    assert (made["kernel"], made["status"], made["cwd"]) == ("fake-1", "idle", "src")
    await api.problem(409, "conflict", "POST", url, json={"name": "a"})
    unnamed = await api.json("POST", url, status=201, json={})
    listed = (await api.json("GET", url))["items"]
    assert [each["name"] for each in listed] == ["a", unnamed["name"]]
    ran = await api.json("POST", path + "/code", json={"code": "value 1", "context": "a"})
    assert (ran["context"], ran["command_id"]) == ("a", made["command_id"])
    again = await api.json("POST", url + "/a/restart", json={})
    assert again["command_id"] != made["command_id"]
    assert again["execution_count"] == 0
    assert (await api.json("DELETE", url + "/a"))["name"] == "a"
    await api.problem(404, "not_found", "DELETE", url + "/a")
    await api.problem(404, "not_found", "POST", path + "/code", json={"code": "1", "context": "a"})
    session = api.plane.sessions.registry.live[0]
    await until(lambda: [each.id for each in session.running] == [unnamed["command_id"]])


async def test_a_session_has_a_limited_number_of_contexts(api: Api, path: str) -> None:
    for _ in range(MOST_CONTEXTS):
        await api.json("POST", path + "/code/contexts", status=201, json={})
    await api.problem(409, "busy", "POST", path + "/code/contexts", json={})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "code"),
        ({"code": "1", "language": "a b"}, "language"),
        ({"code": "1", "context": "../x"}, "context"),
        ({"code": "1", "timeout": 0}, "timeout"),
        ({"code": "1", "timeout": 10**6}, "timeout"),
        ({"code": "1", "context": "a", "language": "bash"}, "language"),
        ({"code": "x" * 300_000}, "code"),
    ],
)
async def test_bad_cells_are_refused(api: Api, path: str, body: dict[str, Any], field: str) -> None:
    if "context" in body:
        await api.json("POST", path + "/code/contexts", status=201, json={"name": "a"})
    problem = await api.problem(400, "validation_error", "POST", path + "/code", json=body)
    assert problem["field"] == field
    assert await recorded(api, path, "code.start") == []


async def test_idle_contexts_keep_no_session_busy(api: Api, path: str) -> None:
    await api.json("POST", path + "/code", json={"code": "value 1"})
    session = api.plane.sessions.registry.live[0]
    assert [command.waits for command in session.running] == [True]
    assert session.at_work == 0


async def test_a_program_that_has_ended_is_begun_anew(api: Api, path: str) -> None:
    first = await api.json("POST", path + "/code", json={"code": "value 1"})
    api.agent.end(first["command_id"], 1)
    (context,) = api.plane.contexts.listed(api.plane.sessions.registry.live[0])
    await until(lambda: context.status is ContextStatus.ENDED)
    again = await api.json("POST", path + "/code", json={"code": "value 1"})
    assert again["restarted"]
    assert again["command_id"] != first["command_id"]


# What a program may send that is not ours. `lost` ones end the context.
WRONG = {
    "no header": (r"send " + "x" * 400, "lost"),
    "a wrong header": (r"send out - 3x\nabc", "lost"),
    "a frame that is too long": (r"send out - 99999999\n", "lost"),
    "a kind of frame that is not ours": (r"send run x 0\n", "lost"),
    "no number": (r"send cut - 1\nx", "lost"),
    "data that is no JSON": (r"send part application/json 2\n[1result - 0\n", "ok"),
    "a picture that is no base64": (r"send part image/png 2\n!!result - 0\n", "ok"),
    "text that is not UTF-8": (r"send out - 1\n\xff", "ok"),
    "the end of another cell": (r"send end other 1\n1", "ok"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_frames_end_only_the_context(api: Api, path: str, name: str) -> None:
    code, end = WRONG[name]
    found = await api.json("POST", path + "/code", json={"code": code})
    assert found["lost"] == (end == "lost"), found
    if found["lost"]:
        assert (found["status"], found["error"]["name"]) == ("died", "RunnerError")
    again = await api.json("POST", path + "/code", json={"code": "value 1"})
    assert again["results"][0]["text"] == "1"
    assert again["restarted"] == found["lost"]


async def test_secrets_in_code_are_not_on_record(api: Api, runner: FakeRunner) -> None:
    secret = "a-secret-of-the-test"
    created = await api.session(permission_level="high", secrets={"TOKEN": secret})
    path = f"/api/sessions/{created['id']}"
    await api.json("POST", path + "/code", json={"code": f"raise {secret}"})
    for operation in ("code.start", "code.exit"):
        (event,) = await recorded(api, path, operation)
        assert secret not in str(event)


async def test_the_client_runs_cells(api: Api, path: str) -> None:
    url = str(api.server.make_url(""))
    async with Paddock(url, ADMIN_KEY) as paddock:
        session = await paddock.sessions.get("code-1")
        found = await session.run_code("print a\nvalue 42", language="python")
        assert (found.ok, found.text, found.stdout) == (True, "42", "a")
        events = [event async for event in session.run_code_stream("print b\nvalue 7")]
        assert events[1] == CodeOutput(stream="stdout", text="b")
        assert isinstance(events[2], CodeValue)
        assert isinstance(events[-1], CodeExit)
        made = await session.code_contexts.create("mine")
        assert [each.name for each in await session.code_contexts.list()] == ["python", "mine"]
        assert (await session.code_contexts.restart("mine")).command_id != made.command_id
        assert (await session.code_contexts.interrupt("mine")).status == "idle"
        await session.code_contexts.remove("mine")


async def test_a_tool_of_agents_runs_cells(api: Api, runner: FakeRunner) -> None:
    talk = await begun(api, permission_level="high")
    result = await talk.call("run_code", code="print a\nvalue 42")
    assert result["content"][0]["text"] == "a\n42\n[ok]"
    assert result["structuredContent"]["execution_count"] == 1
    failed = await talk.call("run_code", code="raise bad")
    assert failed["isError"]
    assert "Traceback: bad" in failed["content"][0]["text"]


async def test_at_the_command_line(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    ran = await run_beside("code", "run", "code-1", "print a\nvalue 42")
    assert (ran.status, ran.out) == (0, "a42\n")
    failed = await run_beside("code", "run", "code-1", "-", stdin=b"raise bad")
    assert (failed.status, failed.err) == (1, "Traceback: bad\n")
    shown = await run_beside("code", "run", "code-1", "value 1", "--json")
    assert json.loads(shown.out)["execution_count"] == 3
    contexts = ("code", "contexts")
    made = await run_beside(*contexts, "create", "code-1", "mine", "--cwd", "src", "--json")
    assert json.loads(made.out)[0]["cwd"] == "src"
    for action in ("restart", "interrupt"):
        assert (await run_beside(*contexts, action, "code-1", "mine")).status == 0
    listed = await run_beside(*contexts, "list", "code-1", "--json")
    assert [each["name"] for each in json.loads(listed.out)] == ["python", "mine"]
    assert (await run_beside(*contexts, "remove", "code-1", "mine")).status == 0
    assert (await run_beside(*contexts, "remove", "code-1", "mine")).status == 5
