"""A start reads of ended sessions what it needs, and the rest when somebody asks for it."""

import sqlite3

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.store.database import Database
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from tests.api.conftest import Api, served
from tests.support.counted_steps import counted_steps
from tests.support.fake_agent import Agents
from tests.support.grown_record import grow
from tests.support.restart import reopened

_ENDED = 5
# What a start may do more than another one because its tasks run in another order.
_SLACK_STEPS = 300


@pytest.fixture
async def settings_of_ended(settings: Settings, engine: FakeEngine, agents: Agents) -> Settings:
    """Settings whose state has ended sessions that have executed a command each."""
    plane = await ControlPlane.open(settings, engine)
    async with served(plane, engine, agents) as api:
        for number in range(_ENDED):
            path = f"/api/sessions/{(await api.session(id=f'box-{number}'))['id']}"
            await api.json("POST", path + "/exec", json={"argv": ["ls"]})
            await api.json("DELETE", path)
    await plane.close()
    return settings


async def _copied(settings: Settings, times: int) -> None:
    """Adds sessions like those that have ended, so many for each."""
    with sqlite3.connect(settings.state_dir / "paddock.db") as connection:
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(sessions)")]
        other = ", ".join(name for name in columns if name not in ("key", "id"))
        for number in range(times):
            connection.execute(
                f"INSERT INTO sessions (key, id, {other})"
                f" SELECT key || '-{number}', id || '-{number}', {other} FROM sessions"
                " WHERE id GLOB 'box-?'"
            )


async def test_the_commands_of_ended_sessions_are_read_when_somebody_asks(
    settings_of_ended: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await reopened(settings_of_ended, engine, agents)
    try:
        assert not any(session.commands for session in plane.sessions.registry.all)
        async with served(plane, engine, agents) as api:
            await _asks(api)
        one = plane.sessions.registry.get("box-0")
        other = plane.sessions.registry.get("box-4")
        assert one is not None
        assert other is not None
        assert (len(one.commands), len(other.commands)) == (1, 0)
    finally:
        await plane.close()


async def _asks(api: Api) -> None:
    (command,) = (await api.json("GET", "/api/sessions/box-0/processes"))["items"]
    assert (command["argv"], command["exit"]["exit_code"]) == (["ls"], 0)
    shown = await api.json("GET", "/api/sessions/box-1")
    assert [each["argv"] for each in shown["commands"]] == [["ls"]]
    path = f"/api/sessions/box-0/processes/{command['command_id']}"
    assert (await api.json("GET", path))["argv"] == ["ls"]
    path = f"/api/sessions/box-2/processes/{command['command_id']}"
    await api.problem(404, "not_found", "GET", path)


async def test_more_ended_sessions_take_no_more_statements(
    settings_of_ended: Settings,
    engine: FakeEngine,
    agents: Agents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[str] = []
    opening = Database.open

    async def traced(*given: object) -> Database:
        database = await opening(*given)  # type: ignore[arg-type]
        for call in (database.read, database.browse, database.write):
            await call(lambda connection: connection.set_trace_callback(counted.append))
        return database

    monkeypatch.setattr(Database, "open", traced)
    costs = []
    for copies in (0, 20):
        await _copied(settings_of_ended, copies)
        counted.clear()
        plane = await reopened(settings_of_ended, engine, agents)
        assert len(plane.sessions.registry.all) == _ENDED * (1 + copies)
        costs.append(len(counted))
        await plane.close()
    assert costs[0] > 10
    assert costs[1] <= costs[0], costs


async def test_more_events_take_no_more_steps(
    settings: Settings, engine: FakeEngine, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instructions of SQLite's machine are counted: one for each row that a scan looks at."""
    costs = []
    for sessions in (20, 380):  # 1,000 events, then 20,000
        grow(settings.state_dir, sessions, 50)
        with monkeypatch.context() as counting:
            steps = counted_steps(counting)
            plane = await reopened(settings, engine, agents)
        await plane.close()
        costs.append(steps[0])
    assert costs[0] > 1000
    assert costs[1] <= costs[0] + _SLACK_STEPS, costs
