"""Ends and level changes during which the control plane is killed."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.engine.base import Container, ContainerState
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sandbox.sandboxes.session_sandboxes import Sandboxes
from orchestrator.settings.settings import Settings
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from tests.api.conftest import Api, served
from tests.support.fake_agent import Agents, Play
from tests.support.restart import reopened
from tests.support.until import until

pytestmark = pytest.mark.slow

ADMIN = Principal("admin", Role.ADMIN)


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
            await api.plane.sessions.ends.crashed(session, container)
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


async def test_a_session_whose_level_is_raised_goes_on(
    api: Api,
    settings: Settings,
    engine: FakeEngine,
    agents: Agents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its agent was told to end, and its container may have ended with it: that is no crash."""
    await api.session(id="box", permission_level="low")

    def reached(point: FaultPoint) -> None:
        if point is FaultPoint.LEVEL_ENDED:
            raise Killed

    body = {"settings": {"permission_level": "high"}}
    session = api.plane.sessions.registry.live[0]

    async def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(FaultPoint, "reached", reached)
        patch.setattr("orchestrator.sandbox.sandboxes.session_sandboxes.Sandboxes.discard", killed)
        with pytest.raises(Killed):
            await api.plane.sessions.changes.set_level(ADMIN, session, "high", {})
    (ended,) = engine.containers.values()
    engine.containers[ended.id] = replace(ended, state=ContainerState.EXITED)
    await api.plane.close()
    plane = await reopened(settings, engine, agents)
    try:
        assert engine.containers == {}
        async with served(plane, engine, agents) as again:
            view = await again.json("GET", "/api/sessions/box")
            assert (view["status"], view["permission_level"]) == ("active", "low")
            await again.json("PUT", "/api/sessions/box/settings", json=body)
            await again.json("POST", "/api/sessions/box/exec", json={"argv": ["ls"]})
            await again.json("DELETE", "/api/sessions/box?purge=true")
    finally:
        await plane.close()


async def test_a_session_that_ends_while_it_is_taken_up_leaves_nothing(
    api: Api,
    settings: Settings,
    engine: FakeEngine,
    agents: Agents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its agent reports at once that its budget is used up."""
    await api.session(id="box", permission_level="high", budget={"cpu_seconds": 1})
    agent = api.agent
    await api.plane.close()
    adopt = Sandboxes.adopt

    async def adopted(sandboxes: Sandboxes, session: Session, container: Container) -> Sandbox:
        sandbox = await adopt(sandboxes, session, container)
        agent.emit(
            "budget.exceeded",
            args={"kind": "cpu_seconds", "limit": 1, "consumed": 1_000_000},
            decision="deny",
        )
        await until(lambda: not session.live or "waiters" in repr(session.lock))
        return sandbox

    monkeypatch.setattr(Sandboxes, "adopt", adopted)
    plane = await reopened(settings, engine, agents)
    try:
        async with served(plane, engine, agents) as again:
            # Answered when nothing is left.
            await again.json("DELETE", "/api/sessions/box")
            view = await again.json("GET", "/api/sessions/box")
            assert (view["status"], view["sandbox"]) == ("budget-exceeded", None)
            assert engine.containers == {}
    finally:
        await plane.close()
