"""100 sessions with turns at once: each has its own, and none waits for another one's command."""

import asyncio
from typing import Any

import pytest

from orchestrator.settings.settings import Settings
from tests.api.conftest import Api
from tests.api.test_turns import EDIT
from tests.support.fake_agent import Play
from tests.support.until import until

pytestmark = pytest.mark.slow

COUNT = 100


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_active": COUNT})


def _operations(name: str, middle: dict[str, Any]) -> list[dict[str, Any]]:
    read = {"operation": "world.read", "args": {"ref": "own"}}
    return [read, {"operation": "assert", "args": {"fact": name}}, middle, read]


async def test_turns_of_100_sessions_at_once(api: Api) -> None:
    names = [f"box-{number}" for number in range(COUNT)]
    agents = {}
    for name in names:
        await api.session(id=name, permission_level="high", policy=EDIT)
        agents[name] = api.agent
        api.agent.files = {"own": name.encode()}
        api.agent.plays["sleep"] = Play(holds=True)
    held, others = names[::2], names[1::2]

    def run(name: str, middle: dict[str, Any]) -> asyncio.Task[dict[str, Any]]:
        body = {"operations": _operations(name, middle)}
        path = f"/api/sessions/{name}/turns"
        return asyncio.create_task(api.json("POST", path, json=body))

    sleep = {"operation": "world.run", "args": {"command": "sleep 60"}}
    waiting = {name: run(name, sleep) for name in held}
    # While the commands of half of them run, the others' turns end.
    ended = await asyncio.gather(*(run(name, {"operation": "facts"}) for name in others))
    assert [turn.result() for turn in waiting.values() if turn.done()] == []
    for name, turn in zip(others, ended, strict=True):
        assert turn["outcome"]["value"] == [name, True, [name], name]
    for name in held:
        await agents[name].asked("exec")
        await api.json("POST", f"/api/sessions/{name}/interrupt")
    for turn in await asyncio.gather(*waiting.values()):
        assert turn["outcome"]["error_type"] == "interrupted"
        assert [each["error"] for each in turn["operations"]] == [None, None, "interrupted"]
    for name in names:
        page = await api.json("GET", f"/api/sessions/{name}/turns")
        assert [turn["turn_number"] for turn in page["items"]] == [1]
        events = (await api.json("GET", f"/api/sessions/{name}/audit?turn=1"))["items"]
        assert [events[0]["operation"], events[-1]["operation"]] == ["turn.start", "turn.end"]
        assert {event["session_id"] for event in events} == {name}
        facts = [event["args"] for event in events if event["operation"] == "assert"]
        assert facts == [{"fact": name}]
    await until(lambda: all(api.plane.turns.running(s.key) is None for s in _live(api)))


def _live(api: Api) -> list[Any]:
    return list(api.plane.sessions.registry.live)
