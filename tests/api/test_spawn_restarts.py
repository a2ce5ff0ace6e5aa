"""Restarts with children: each is found again or ended, each end and each use is counted once."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.host.engine.fake import FakeEngine
from orchestrator.programs.turns.inheritance import SpawnRequest
from orchestrator.sessions.sessions import Sessions
from orchestrator.sessions.spawn_ends import SpawnEnds
from tests.api.conftest import OPERATOR_KEY, Api, served
from tests.api.test_spawn import SESSIONS, events, path_of, root, spawned
from tests.support.fake_agent import Agents
from tests.support.restart import reopened

Restart = Callable[[], AbstractAsyncContextManager[Api]]


@pytest_asyncio.fixture
async def restart(api: Api, engine: FakeEngine, agents: Agents) -> AsyncIterator[Restart]:
    """Closes the control plane, and serves the next one."""

    @asynccontextmanager
    async def again() -> AsyncIterator[Api]:
        await api.plane.close()
        plane = await reopened(api.plane.settings, engine, agents)
        try:
            async with served(plane, engine, agents) as next_api:
                yield next_api
        finally:
            await plane.close()

    yield again


async def exec_(api: Api, path: str) -> None:
    await api.json("POST", f"{path}/exec", json={"argv": ["ls"]})


async def test_parents_find_their_children_and_what_was_reserved_and_used(
    api: Api, restart: Restart
) -> None:
    path = await root(api, budget={"commands": 100})
    ended = await spawned(api, path, budget={"commands": 10})
    below = await spawned(api, path_of(ended), budget={"commands": 5})
    live = await spawned(api, path, budget={"commands": 30}, workspace="read-only", label="l")
    for each in (path, path_of(ended), path_of(below), path_of(live)):
        await exec_(api, each)
    await api.json("DELETE", path_of(ended))
    before = await api.json("GET", path)
    budget = {name: before["budget"][name]["commands"] for name in ("consumed", "remaining")}
    assert budget == {"consumed": 4, "remaining": 67}
    async with restart() as again:
        parent, child = await again.json("GET", path), await again.json("GET", path_of(live))
        assert parent["children"] == [live["id"]]
        for name in ("parent", "depth", "spawn", "workspace", "limits"):
            assert child[name] == live[name]
        assert child["policy"]["world_rules"]["read_only"]
        for name in ("consumed", "remaining"):
            assert parent["budget"][name]["commands"] == budget[name]
            assert parent["budget"][name]["audit_bytes"] == pytest.approx(
                before["budget"][name]["audit_bytes"], abs=2000
            )
        assert len(await events(again, path, "session.spawn_end")) == 1
        await again.json("DELETE", path)
        assert (await again.json("GET", path_of(live)))["status"] == "completed"
        assert len(await events(again, path, "session.spawn_end")) == 2
        assert again.engine.containers == {}


async def test_a_child_whose_run_nobody_follows_any_more_ends(api: Api, restart: Restart) -> None:
    path = await root(api)
    parent = api.plane.sessions.registry.get(path.rsplit("/", 1)[1])
    owner = api.plane.keys.named("operator")
    assert parent is not None
    assert owner is not None
    born = await api.plane.spawning.spawn(owner, parent, SpawnRequest(), runs=True)
    async with restart() as again:
        child = await again.json("GET", f"{SESSIONS}/{born.session.id}")
        assert child["status"] == "aborted"
        assert not Path(child["workspace"]["root_dir"]).exists()
        assert (await again.json("GET", path))["children"] == []
        (end,) = await events(again, path, "session.spawn_end")
        assert (end["result"], end["error"]) == (
            {"is_error": True},
            "the control plane was restarted",
        )


async def test_ends_that_are_not_on_record_are_recorded_once(
    api: Api, restart: Restart, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await root(api, budget={"commands": 100})
    child = await spawned(api, path)
    await exec_(api, path_of(child))
    with monkeypatch.context() as patch:
        # As if it was killed before the child was created, and before an end was recorded.
        patch.setattr(SpawnEnds, "record", lambda *_: None)

        async def killed(*_: Any) -> None:
            raise RuntimeError("killed")

        patch.setattr(Sessions, "create", killed)
        answer = await api.call("POST", f"{path}/spawn", json={}, key=OPERATOR_KEY)
        assert answer.status == 500
        await api.json("DELETE", path_of(child))
    assert await events(api, path, "session.spawn_end") == []
    async with restart() as again:
        ends = await events(again, path, "session.spawn_end")
        assert len(ends) == 2
        assert {end["error"] for end in ends} == {
            "the control plane ended before the end of the spawn was recorded"
        }
        spawns = await events(again, path, "session.spawn")
        assert {e["args"]["spawn_id"] for e in ends} == {e["args"]["spawn_id"] for e in spawns}
        budget = (await again.json("GET", path))["budget"]
        assert (budget["consumed"]["commands"], budget["remaining"]["commands"]) == (1, 99)


async def test_a_child_whose_end_is_on_record_ends(api: Api, restart: Restart) -> None:
    path = await root(api)
    child = await spawned(api, path)
    parent = api.plane.sessions.registry.get(path.rsplit("/", 1)[1])
    assert parent is not None
    ends = api.plane.sessions.spawn_ends
    # As a parent that is ending does, before it and the child have ended.
    ends.of_children(parent)
    assert await ends.recorded(parent)
    async with restart() as again:
        assert (await again.json("GET", path_of(child)))["status"] == "aborted"
        assert (await again.json("GET", path))["children"] == []
        assert len(await events(again, path, "session.spawn_end")) == 1


async def test_children_of_a_lost_parent_end(api: Api, restart: Restart) -> None:
    path = await root(api)
    child = await spawned(api, path)
    grandchild = await spawned(api, path_of(child))
    parent = api.plane.sessions.registry.get(path.rsplit("/", 1)[1])
    assert parent is not None
    assert parent.sandbox is not None
    container = parent.sandbox.container_id
    await api.plane.close()
    del api.engine.containers[container]
    async with restart() as again:
        assert (await again.json("GET", path))["termination"]["rationale_code"] == "crash"
        for each in (child, grandchild):
            assert (await again.json("GET", path_of(each)))["status"] == "aborted"
        assert len(again.plane.sessions.registry) == 0
        assert again.engine.containers == {}
