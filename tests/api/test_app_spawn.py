"""Where the children of an app's session work: in its sandbox, or in sandboxes below it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from paddock import Paddock, PaddockError
from paddock.app import Agent, App, LocalRunner, SpawnError, ToolContext
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.apps import ScriptedModel, calls
from tests.support.fake_agent import Play


@pytest_asyncio.fixture
async def paddock(api: Api) -> AsyncIterator[Paddock]:
    async with Paddock(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
        yield paddock


async def live(paddock: Paddock) -> set[str]:
    return {each.id for each in await paddock.sessions.list() if each.info.status == "active"}


async def workspaces(api: Api) -> set[str]:
    directory = api.plane.settings.workspaces_dir
    assert directory is not None
    return {each.name for each in directory.iterdir() if each.is_dir()}


async def test_children_may_work_in_their_parent_s_sandbox(paddock: Paddock, api: Api) -> None:
    worker = ScriptedModel(
        calls(("read_file", {"path": "a.txt"}), ("write_file", {"path": "b.txt", "text": "two"})),
        "written",
    )

    async def delegate(context: ToolContext) -> str:
        run = context.spawn(Agent(model=worker), "Go on.", workspace="shared")
        assert context.sandbox is not None
        return f"{(await run).text} in {context.sandbox.id}"

    model = ScriptedModel(
        calls(("write_file", {"path": "a.txt", "text": "one"}), ("delegate", {})),
        calls(("read_file", {"path": "b.txt"})),
    )
    async with App(paddock, model=model, tools=[delegate], level="low") as app:
        session = await app.session("user-123")
        assert (await session.send("Work.")).status == "completed"
        assert ("tool", "one") in worker.said()
        told = [text for role, text in model.said() if role == "tool"]
        assert told == ["3 bytes are written", "written in user-123", "two"]
        # The child's end is not the sandbox's.
        assert await live(paddock) == {"user-123"}
        parts = [session.spawn(None, "x", workspace="shared") for _ in range(3)]
        await asyncio.gather(*parts)
        assert await live(paddock) == {"user-123"}
    assert await live(paddock) == set()


async def test_an_interrupt_ends_what_a_child_does_in_its_parent_s_sandbox(
    paddock: Paddock, api: Api
) -> None:
    model = ScriptedModel()
    worker = Agent(model=ScriptedModel(calls(("exec", {"argv": ["sleep", "60"]}))))
    async with App(paddock, model=model) as app:
        session = await app.session("a")
        await session.send("x")
        api.agent.plays["sleep"] = Play(holds=True)
        run = session.spawn(worker, "x", workspace="shared")
        async for event in run.events():
            if event.kind == "tool_call":
                break
        session.interrupt()
        assert (await run).reason == "Parent interrupted"
        assert (await session.send("y")).status == "completed"


@pytest.mark.parametrize("workspace", ["own", "read-only"])
async def test_a_child_s_sandbox_is_below_its_parent_s_and_ends_with_it(
    paddock: Paddock, api: Api, workspace: Any
) -> None:
    worker = ScriptedModel(calls(("list_files", {})))
    worker.gate.clear()
    async with App(paddock, model=ScriptedModel(), level="medium") as app:
        session = await app.session("a")
        agent = Agent(model=worker, level="low")
        run = session.spawn(agent, "x", label="scout", workspace=workspace)
        await worker.asked.wait()
        # The parent has a sandbox now: its child's is below it.
        assert await live(paddock) == {"a"}
        [child] = await paddock.sessions.list(parent="a")
        assert (child.info.parent, child.info.permission_level) == ("a", "low")
        assert child.info.spawn is not None
        assert (child.info.spawn.label, child.info.spawn.workspace) == ("scout", workspace)
        worker.gate.set()
        assert (await run).text == "done"
        [child] = await paddock.sessions.list(parent="a")
        assert child.info.status == "completed"
        assert await workspaces(api) == {"a"}


async def test_sandboxes_of_children_end_with_their_parent(paddock: Paddock, api: Api) -> None:
    model = ScriptedModel()
    model.gate.clear()
    app = App(paddock, model=model)
    session = await app.session("a")
    runs = [session.spawn(None, "x")]
    await model.asked.wait()
    model.asked.clear()
    [child] = session.children
    runs.append(child.spawn(None, "x"))
    await model.asked.wait()
    [first] = await paddock.sessions.list(parent="a")
    [second] = await paddock.sessions.list(parent=first.id)
    assert second.info.depth == 2
    await app.aclose()
    assert await live(paddock) == set()
    assert [(await run).status for run in runs] == ["aborted", "aborted"]
    assert await workspaces(api) == {"a"}


async def test_a_level_above_the_parent_s_is_the_handle_s_failure(paddock: Paddock) -> None:
    async with App(paddock, model=ScriptedModel(), level="low") as app:
        session = await app.session("a")
        with pytest.raises(PaddockError, match="level"):
            await session.spawn(Agent(level="high"), "x")
        assert (session.status, session.children) == ("idle", ())
        assert (await session.send("y")).status == "completed"


async def test_another_runner_has_sandboxes_of_its_own(paddock: Paddock, api: Api) -> None:
    seen = list[str]()

    async def where(context: ToolContext) -> str:
        assert context.sandbox is not None
        seen.append(context.sandbox.id)
        return context.session.id

    worker = ScriptedModel(calls(("where", {})))
    other = LocalRunner(paddock)
    async with App(paddock, model=ScriptedModel(), tools=[where]) as app:
        session = await app.session("a")
        await session.spawn(Agent(model=worker), "x", runner=other)
        assert worker.said()[-1] == ("tool", seen[0])
        assert await live(paddock) == {"a"}
        assert seen[0] not in await workspaces(api)
        for workspace in ("read-only", "shared"):
            with pytest.raises(SpawnError, match="the parent has no sandbox of this runner"):
                await session.spawn(None, "x", runner=other, workspace=workspace)
