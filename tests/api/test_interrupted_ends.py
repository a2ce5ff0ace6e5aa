"""Sessions whose end was on record when the control plane was killed, but nothing after it."""

import sqlite3
from contextlib import closing

import pytest

from orchestrator.config.settings import Settings
from orchestrator.engine.fake import FakeEngine
from orchestrator.fault_points import FaultPoint
from tests.api.conftest import Api, served
from tests.support.fake_agent import Agents, Play
from tests.support.restart import reopened


class Killed(BaseException):
    """The control plane does nothing more for this session."""


@pytest.mark.parametrize("age", ["recent", "old"])
async def test_what_its_sandbox_did_not_report_is_a_gap(
    api: Api,
    settings: Settings,
    engine: FakeEngine,
    agents: Agents,
    monkeypatch: pytest.MonkeyPatch,
    age: str,
) -> None:
    agents.plays["work"] = Play(holds=True)
    await api.session(id="box", permission_level="high")
    body = {"argv": ["work"], "background": True}
    command = await api.json("POST", "/api/sessions/box/exec", json=body, status=202)

    def reached(point: FaultPoint) -> None:
        if point is FaultPoint.CLOSE_RECORDED:
            raise Killed

    (container,) = await engine.list()
    session = api.plane.sessions.registry.live[0]
    with monkeypatch.context() as patch:
        patch.setattr(FaultPoint, "reached", reached)
        with pytest.raises(Killed):
            await api.plane.sessions.ending.crashed(session, container)
    await api.plane.close()
    assert len(engine.containers) == 1
    if age == "old":
        with closing(sqlite3.connect(settings.state_dir / "paddock.db")) as database, database:
            database.execute("UPDATE sessions SET terminated_at = '2020-01-01T00:00:00.000000Z'")
    plane = await reopened(settings, engine, agents)
    try:
        assert engine.containers == {}
        async with served(plane, engine, agents) as again:
            found = await again.json("GET", "/api/audit?operation=audit.gap&session=box")
            assert [e["args"]["commands"] for e in found["items"]] == [[command["command_id"]]]
    finally:
        await plane.close()
