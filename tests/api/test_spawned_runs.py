"""Runs in children: of a host, and of a model that calls the tool `spawn`."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.settings.operator_models import OperatorModel
from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_spawn import SESSIONS, events, root
from tests.support.limits import WAIT_SECONDS
from tests.support.models import Answer, ModelServer, calling, model_server
from tests.support.until import until

SSE = {"Accept": "text/event-stream"}
READ = ("read_file", {"path": "README.md"})


@pytest_asyncio.fixture
async def model(api: Api) -> AsyncIterator[ModelServer]:
    """The model `small`, whose answers use 15 tokens each."""
    async with model_server() as server:
        api.plane.models.configured["small"] = OperatorModel.model_validate(server.setting())
        yield server


def asked(text: str = "child", **others: Any) -> dict[str, Any]:
    return {"messages": [{"content": text}], **others}


def spawning(*tasks: str, **others: Any) -> Answer:
    """An answer that spawns a child for each task."""
    return calling(*(("spawn", {"task": task, "label": task, **others}) for task in tasks))


async def run(api: Api, path: str, **others: Any) -> dict[str, Any]:
    return await api.json("POST", f"{path}/spawn", json=asked(**others), key=OPERATOR_KEY)


async def sent(api: Api, path: str, text: str = "parent") -> list[tuple[str, dict[str, Any]]]:
    """The events of a run in the session."""
    return await streamed(api, f"{path}/send", asked(text))


async def streamed(api: Api, url: str, body: Any) -> list[tuple[str, dict[str, Any]]]:
    response = await api.call("POST", url, json=body, key=OPERATOR_KEY, headers=SSE)
    text = await response.text()
    assert response.status == 200, text
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def results(model: ModelServer) -> list[str]:
    """What the latest call of the model had as results of tools."""
    return [each["content"] for each in model.bodies[-1]["messages"] if each["role"] == "tool"]


async def test_a_child_runs_to_its_end_and_nothing_of_it_is_left(
    api: Api, model: ModelServer
) -> None:
    path = await root(api)
    model.answers = [calling(("write_file", {"path": "src/a", "text": "x"})), Answer("Done.")]
    ran = await run(api, path, label="writer")
    assert {name: ran[name] for name in ("text", "is_error", "error", "label")} == {
        "text": "Done.",
        "is_error": False,
        "error": None,
        "label": "writer",
    }
    assert (ran["turn"]["outcome"]["tag"], ran["turn"]["tokens_used"]) == ("ok", 30)
    assert [each["operation"] for each in ran["turn"]["operations"]][1] == "world.write"
    child = await api.json("GET", f"{SESSIONS}/{ran['child_session_id']}")
    assert (child["status"], child["spawn"]["spawn_id"]) == ("completed", ran["spawn_id"])
    assert not Path(child["workspace"]["root_dir"]).exists()
    parent = await api.json("GET", path)
    assert (parent["children"], parent["budget"]["consumed"]["tokens"]) == ([], 30)
    (end,) = await events(api, path, "session.spawn_end")
    assert (end["result"], end["tokens_used"]) == ({"is_error": False}, 30)
    # What was said to it stays.
    timeline = await api.json("GET", f"{SESSIONS}/{child['id']}/timeline")
    assert [each["role"] for each in timeline["items"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_its_events_come_between_one_start_and_one_end(api: Api, model: ModelServer) -> None:
    path = await root(api)
    model.answers = [calling(READ), Answer("It says hello.")]
    told = await streamed(api, f"{path}/spawn", asked(label="reader"))
    names = [name for name, _ in told]
    assert names[0] == "spawn_start"
    assert names[-1] == "spawn_end"
    assert {"tick", "tool_call", "tool_result", "text"} == set(names[1:-1])
    start, end = told[0][1], told[-1][1]
    assert (start["label"], start["call_id"]) == ("reader", None)
    assert all(each["spawn_path"] == [start["spawn_id"]] for _, each in told[1:-1])
    assert "spawn_path" not in end
    assert {name: end[name] for name in start} == start
    assert (end["text"], end["is_error"], end["tokens_used"]) == ("It says hello.", False, 30)


async def test_a_failure_is_the_child_s(api: Api, model: ModelServer) -> None:
    path = await root(api)
    for answer, error in (
        (Answer(status=500, said="broken"), "error: "),
        (calling(READ), "nonconverged: max-iterations"),
    ):
        model.answers = [answer]
        ran = await run(api, path, max_ticks=1)
        assert ran["is_error"]
        assert ran["error"].startswith(error)
        child = await api.json("GET", f"{SESSIONS}/{ran['child_session_id']}")
        assert child["status"] == "aborted"
    assert (await api.json("GET", path))["status"] == "active"
    model.answers = [Answer("long")]
    ran = await run(api, path, budget={"tokens": 15})
    assert not ran["is_error"]
    errors = [each["result"]["is_error"] for each in await events(api, path, "session.spawn_end")]
    assert errors == [True, True, False]


async def test_a_model_spawns_where_its_policy_permits_it(api: Api, model: ModelServer) -> None:
    path = await root(api)
    model.conversations = {
        "parent": [spawning("child"), Answer("The child says: fine.")],
        "child": [Answer("fine")],
    }
    told = await sent(api, path)
    assert results(model) == ["fine"]
    names = [name for name, _ in told]
    first, last = names.index("spawn_start"), names.index("spawn_end")
    start, end = told[first][1], told[last][1]
    assert [each.get("spawn_path") for _, each in told[first + 1 : last]] == [
        [start["spawn_id"]]
    ] * (last - first - 1)
    call = next(each for name, each in told if name == "tool_call")
    assert start["call_id"] == end["call_id"] == call["id"]
    assert (end["text"], end["tokens_used"]) == ("fine", 15)
    ended = told[-1][1]
    assert [each["operation"] for each in ended["operations"]] == [
        *("llm.complete", "spawn", "llm.complete")
    ]
    operation = ended["operations"][1]
    assert operation["args"]["call"] == call["id"]
    assert operation["result"]["spawn_id"] == start["spawn_id"]
    (begun,) = await events(api, path, "session.spawn")
    assert begun["args"]["call_id"] == call["id"]
    # The built-in policies do not permit it.
    for policy in ("SAFE_ANALYSIS", "SAFE_EDIT"):
        other = await root(api, policy=policy)
        model.conversations["parent"] = [spawning("child"), Answer("no")]
        await sent(api, other)
        tools = [each["function"]["name"] for each in model.bodies[-1]["tools"]]
        assert "spawn" not in tools
        assert results(model)[0].startswith("Refused by policy-operation")
        assert await events(api, other, "session.spawn") == []


async def test_events_come_over_a_websocket_too(api: Api, model: ModelServer) -> None:
    path = await root(api)
    model.conversations = {
        "parent": [spawning("child"), Answer("a")],
        "child": [Answer("fine")],
    }
    headers = {"Authorization": f"Bearer {OPERATOR_KEY}"}
    url = api.server.make_url(f"{path}/run")
    told: list[dict[str, Any]] = []
    async with api.client.session.ws_connect(url, headers=headers) as socket:
        session_id = path.rsplit("/", 1)[1]
        await socket.send_json({"type": "run", "session_id": session_id, "input": "parent"})
        while not told or told[-1]["event"] != "end":
            told.append(await socket.receive_json(timeout=WAIT_SECONDS))
    names = [each["event"] for each in told]
    first, last = names.index("spawn_start"), names.index("spawn_end")
    spawn_id = told[first]["data"]["spawn_id"]
    assert all(each["data"]["spawn_path"] == [spawn_id] for each in told[first + 1 : last])
    assert told[1] == {"event": "tick", "id": 1, "data": {"tick": 1}}


async def test_calls_of_one_tick_run_at_the_same_time(api: Api, model: ModelServer) -> None:
    path = await root(api, budget={"tokens": 1000})
    both = asyncio.Event()
    going: list[str] = []
    spawn = api.plane.turns.start

    async def meeting(principal: Any, session: Any, script: Any, *more: Any) -> Any:
        if session.family.depth:
            going.append(session.id)
            if len(going) == 2:
                both.set()
            await both.wait()
        return await spawn(principal, session, script, *more)

    api.plane.turns.start = meeting  # type: ignore[method-assign,assignment]
    model.conversations = {
        "parent": [
            calling(
                ("spawn", {"task": "one"}),
                ("list_files", {}),
                ("spawn", {"task": "two"}),
                ("spawn", {"workspace": "elsewhere"}),
            ),
            Answer("done"),
        ],
        "one": [Answer("1")],
        "two": [Answer("2")],
    }
    async with asyncio.timeout(WAIT_SECONDS):
        told = await sent(api, path)
    one, _, two, refused = results(model)
    assert (one, two) == ("1", "2")
    assert refused.startswith("Refused: ")
    assert [name for name, _ in told].count("spawn_end") == 2
    # Each had its share, and the parent one.
    limits = [each["args"]["budget"]["tokens"] for each in await events(api, path, "session.spawn")]
    assert sum(limits) < 1000
    assert min(limits) > 200
    assert (await api.json("GET", f"{path}/budget"))["consumed"]["tokens"] == 60


async def test_nested_events_have_the_whole_path(api: Api, model: ModelServer) -> None:
    path = await root(api)
    model.conversations = {
        "parent": [spawning("child"), Answer("a")],
        "child": [spawning("grandchild"), Answer("b")],
        "grandchild": [Answer("c")],
    }
    told = await sent(api, path)
    starts = [each for name, each in told if name == "spawn_start"]
    ends = [each for name, each in told if name == "spawn_end"]
    outer, inner = (each["spawn_id"] for each in starts)
    assert [each.get("spawn_path") for each in starts] == [None, [outer]]
    assert [each["spawn_id"] for each in ends] == [inner, outer]
    paths = {tuple(each.get("spawn_path", ())) for _, each in told}
    assert paths == {(), (outer,), (outer, inner)}
    assert ends[1]["tokens_used"] == 45


async def test_an_interrupted_parent_interrupts_and_ends_its_children(
    api: Api, model: ModelServer
) -> None:
    path = await root(api)
    model.conversations = {"parent": [spawning("child")], "child": [Answer(hangs=True, body=[])]}
    sending = asyncio.create_task(sent(api, path))
    await until(lambda: len(model.bodies) == 2)
    await api.json("POST", f"{path}/interrupt", json={})
    told = await sending
    names = [name for name, _ in told]
    assert names.count("spawn_end") == 1
    assert told[-1][1]["outcome"]["error_type"] == "interrupted"
    end = next(each for name, each in told if name == "spawn_end")
    assert end["is_error"]
    parent = await api.json("GET", path)
    assert (parent["status"], parent["children"]) == ("active", [])
    child = await api.json("GET", f"{SESSIONS}/{end['child_session_id']}")
    assert child["status"] == "aborted"
    assert len(api.engine.containers) == 1


async def test_a_parent_that_ends_ends_the_runs_of_its_children(
    api: Api, model: ModelServer
) -> None:
    path = await root(api)
    model.conversations = {"parent": [spawning("child")], "child": [Answer(hangs=True, body=[])]}
    sending = asyncio.create_task(sent(api, path))
    running = asyncio.create_task(run(api, path))
    await until(lambda: len(model.bodies) == 3)
    await api.json("POST", f"{path}/abort", json={})
    told, ran = await sending, await running
    assert [name for name, _ in told].count("spawn_end") == 1
    assert ran["is_error"]
    assert len(await events(api, path, "session.spawn_end")) == 2
    assert api.engine.containers == {}
    assert len(api.plane.sessions.registry) == 0


async def test_a_client_that_goes_away_ends_nothing(api: Api, model: ModelServer) -> None:
    path = await root(api)
    model.answers = [Answer(hangs=True, body=[])]
    running = asyncio.create_task(run(api, path))
    await until(lambda: len(model.bodies) == 1)
    running.cancel()
    (child,) = (await api.json("GET", path))["children"]
    model.left.clear()
    await api.json("POST", f"{SESSIONS}/{child}/interrupt", json={})
    session = api.plane.sessions.registry.get(child)
    assert session is not None
    await until(lambda: session.family.parent is None)
    assert (await api.json("GET", path))["children"] == []


async def test_programs_spawn_too_but_not_within_a_part_of_them(
    api: Api, model: ModelServer
) -> None:
    path = await root(api)
    model.answers = [Answer("fine")]
    turn = await api.json(
        "POST", f"{path}/turns", json={"code": '(spawn "child" "label" "read-only" "low")'}
    )
    assert turn["outcome"]["tag"] == "ok", turn
    assert turn["outcome"]["value"][0] == ["text", "fine"]
    for code, said in (
        ('(with-budget ((tokens 5)) (spawn "child"))', "can't spawn"),
        ('(spawn "child" "" "elsewhere")', "workspace must be one of"),
        ('(spawn "child" "" "own" "high")', "more than the parent's"),
        ('(spawn "")', "task must have"),
    ):
        turn = await api.json("POST", f"{path}/turns", json={"code": code})
        assert said in turn["outcome"]["message"], turn["outcome"]
    assert len(await events(api, path, "session.spawn")) == 1


@pytest.mark.parametrize("level", ["medium", "high"])
async def test_text_of_a_child_changes_no_permission(
    api: Api, model: ModelServer, level: str
) -> None:
    path = await root(api, permission_level="low")
    model.conversations = {
        "parent": [spawning("child", permission_level=level), Answer("ok")],
    }
    await sent(api, path)
    assert results(model)[0].startswith("Refused by parent-level: ")
    assert await events(api, path, "session.spawn") == []
