"""Runs by the Python client and the command line, with a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from orchestrator.settings.operator_models import OperatorModel
from paddock import (
    Paddock,
    PaddockSync,
    PermissionDeniedError,
    Run,
    RunText,
    RunTick,
    RunToolCall,
    RunToolResult,
    Session,
    SpawnEnd,
    SpawnStart,
    ValidationError,
)
from paddock.client.run_events import RunEvent
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside
from tests.support.models import Answer, ModelServer, calling, model_server

READ = ("read_file", {"path": "README.md"})


@pytest_asyncio.fixture
async def model(api: Api) -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        api.plane.models.configured["small"] = OperatorModel.model_validate(server.setting())
        yield server


@pytest_asyncio.fixture
async def session(api: Api) -> AsyncIterator[Session]:
    async with Paddock(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
        session = await paddock.sessions.create(id="web-1")
        api.agent.files["README.md"] = b"hello\n"
        yield session


async def test_a_session_is_sent_messages(session: Session, model: ModelServer) -> None:
    model.answers = [calling(READ), Answer("It says hello.")]
    run = await session.send("What does it say?", model="small", max_ticks=3)
    assert (run.text, run.turn_number) == ("It says hello.", 1)
    assert run.outcome is not None
    assert run.outcome.tag == "ok"
    assert await session.queue("one", "two") == 2
    model.answers = [Answer("Done.")]
    assert (await session.render(system="Be brief.")).text == "Done."
    assert model.bodies[-1]["messages"][0]["content"].startswith("Be brief.")
    page = await session.timeline(after=4)
    assert [(each.role, each.content) for each in page.items] == [
        ("user", "one"),
        ("user", "two"),
        ("assistant", "Done."),
    ]
    await session.interrupt("later")
    assert (await session.render()).text == "Done."
    assert model.bodies[-1]["messages"][-1]["content"] == "later"
    with pytest.raises(ValidationError, match="model must be one of small"):
        await session.send("x", model="absent")


async def test_a_run_is_followed(session: Session, model: ModelServer) -> None:
    model.answers = [calling(READ, text="I look into it now."), Answer("It says hello.")]
    events: list[RunEvent] = []
    async with aclosing(session.send_stream("read")) as stream:
        events = [event async for event in stream]
    kinds = [type(each) for each in events if not isinstance(each, RunText)]
    assert kinds[1:] == [RunTick, RunToolCall, RunToolResult, RunTick, Run]
    texts = "".join(each.text for each in events if isinstance(each, RunText))
    assert texts == "I look into it now.It says hello."


async def test_the_blocking_client(api: Api, session: Session, model: ModelServer) -> None:
    def send() -> str | None:
        with PaddockSync(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
            return paddock.sessions.get("web-1").send("hello").text

    assert await asyncio.to_thread(send) == "done"


async def test_the_command_line_shows_a_run(
    api: Api, session: Session, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    model.answers = [calling(READ, text="I look."), Answer("It says hello.")]
    ended = await run_beside("send", "web-1", "read", "--model", "small", "--max-ticks", "4")
    assert ended.status == 0, ended.err
    assert ended.out.splitlines() == [
        "I look.",
        'read_file {"path": "README.md"}',
        "  hello",
        "It says hello.",
    ]
    assert "turn 1: ok, 3 operations, 30 tokens" in ended.err
    model.answers = [calling(READ)]
    ended = await run_beside("send", "web-1", "again", "--max-ticks", "2", "--json")
    assert ended.status == 1
    last = json.loads(ended.out.splitlines()[-1])
    assert last["outcome"]["reason"] == "max-iterations"
    ended = await run_beside("send", "web-1", "", "--model", "small")
    assert ended.status == 2


async def test_the_command_line_queues_renders_and_shows_what_was_said(
    api: Api, session: Session, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    queued = await run_beside("queue", "web-1", "read", "-", stdin=b"and tell me", terminal=False)
    assert (queued.status, queued.line) == (0, "2 wait for the next run")
    assert model.bodies == []
    model.answers = [calling(READ, text="I look."), Answer("It says hello.")]
    ended = await run_beside("render", "web-1")
    assert ended.status == 0, ended.err
    assert ended.out.splitlines()[-1] == "It says hello."
    assert "turn 1: ok" in ended.err
    told = await run_beside("timeline", "web-1", "--json")
    assert [json.loads(line)["role"] for line in told.out.splitlines()] == [
        *("user", "user", "assistant", "tool", "assistant")
    ]
    shown = (await run_beside("timeline", "web-1", "--after", "1")).out
    assert [line.split() for line in shown.splitlines()[:2]] == [
        ["2", "user"],
        ["and", "tell", "me"],
    ]
    assert 'read_file {"path": "README.md"}' in shown


async def test_a_session_spawns_children(session: Session, model: ModelServer) -> None:
    child = await session.spawn(
        label="reader", workspace="read-only", permission_level="low", budget={"commands": 5}
    )
    assert child.handle is not None
    assert (child.info.parent, child.info.depth) == (session.id, 1)
    assert child.info.spawn is not None
    assert (child.info.spawn.label, child.info.permission_level) == ("reader", "low")
    assert (await session.refresh()).children == [child.id]
    async with Paddock(session._api.pool.url, ADMIN_KEY) as paddock:
        assert [each.id for each in await paddock.sessions.list(parent=session.id)] == [child.id]
    await child.close(purge=True)
    model.answers = [calling(READ), Answer("It says hello.")]
    ran = await session.spawn_run("read", label="reader", max_ticks=3)
    assert (ran.text, ran.is_error, ran.label) == ("It says hello.", False, "reader")
    assert ran.turn is not None
    assert ran.turn.tokens_used == 30
    model.answers = [calling(READ), Answer("It says hello.")]
    async with aclosing(session.spawn_stream("read")) as stream:
        told = [event async for event in stream]
    start, *between, end = told
    assert isinstance(start, SpawnStart)
    assert isinstance(end, SpawnEnd)
    assert all(each.spawn_path == [start.spawn_id] for each in between)
    assert (end.text, end.tokens_used, end.spawn_path) == ("It says hello.", 30, [])
    with pytest.raises(PermissionDeniedError, match="permission_level"):
        await session.spawn(permission_level="high")


async def test_the_blocking_client_spawns(api: Api, session: Session, model: ModelServer) -> None:
    def spawn() -> list[object]:
        with PaddockSync(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
            parent = paddock.sessions.get("web-1")
            with parent.spawn() as child:
                assert child.info.parent == "web-1"
            ran = parent.spawn_run("hello")
            return [ran.text, *(type(each) for each in parent.spawn_stream("hello"))]

    text, first, *_, last = await asyncio.to_thread(spawn)
    assert (text, first, last) == ("done", SpawnStart, SpawnEnd)


async def test_the_command_line_spawns(
    api: Api, session: Session, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    made = await run_beside("spawn", "web-1", "--label", "a", "--level", "low", "--json")
    assert made.status == 0, made.err
    child = json.loads(made.out)
    assert (child["parent"], child["permission_level"]) == ("web-1", "low")
    listed = await run_beside("sessions", "list", "--parent", "web-1", "--json")
    assert [each["id"] for each in json.loads(listed.out)] == [child["id"]]
    for shown, line in (("web-1", f"children {child['id']}"), (child["id"], "parent web-1")):
        told = (await run_beside("sessions", "show", shown)).out
        assert line in [" ".join(each.split()) for each in told.splitlines()]
    model.answers = [calling(READ, text="I look."), Answer("It says hello.")]
    ended = await run_beside("spawn", "web-1", "read", "--workspace", "read-only")
    assert ended.status == 0, ended.err
    assert ended.out.splitlines()[0] == "I look."
    assert ended.out.splitlines()[-1] == "It says hello."
    assert ": 30 tokens" in ended.err
    model.answers = [calling(READ)]
    ended = await run_beside("spawn", "web-1", "read", "--max-ticks", "1")
    assert ended.status == 1
    assert "max-iterations" in ended.err
    assert (await run_beside("spawn", "web-1", "--max-ticks", "1")).status == 2
