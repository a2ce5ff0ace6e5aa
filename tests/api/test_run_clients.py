"""Runs by the Python client and the command line, with a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from orchestrator.config.operator_models import OperatorModel
from paddock import (
    Paddock,
    PaddockSync,
    Run,
    RunText,
    RunTick,
    RunToolCall,
    RunToolResult,
    Session,
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
