"""Contexts of code end with their sandbox, and with the control plane that had them."""

from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from paddock.contract.words import Status
from tests.api.conftest import Api, served
from tests.api.test_exec import SSE
from tests.support.fake_agent import Agents
from tests.support.fake_runner import FakeRunner
from tests.support.restart import reopened
from tests.support.until import until

PATH = "/api/sessions/code-1"
CODE = PATH + "/code"
REASON = "control_plane_restart"


@pytest.fixture
async def code(api: Api) -> dict[str, Any]:
    """What came of the first cell of a session."""
    api.agents.plays["python3"] = FakeRunner().play()
    await api.session(id="code-1", permission_level="high")
    return await api.json("POST", CODE, json={"code": "value 1"})


def session_of(plane: ControlPlane) -> Session:
    (session,) = plane.sessions.registry.live
    return session


async def events(api: Api, operation: str) -> list[dict[str, Any]]:
    found = await api.json("GET", f"{PATH}/audit?operation={operation}")
    assert (await api.json("GET", PATH + "/audit/verify"))["ok"]
    return list(found["items"])


def cancelled(agents: Agents) -> list[tuple[str, str]]:
    """The commands that the agent was told to end, and why."""
    asked = agents.latest.requests
    return [(of["command_id"], of["reason"]) for method, of in asked if method == "cancel"]


@pytest.mark.parametrize("paused", [False, True])
async def test_a_restart_ends_contexts_and_records_their_cells(
    settings: Settings, engine: FakeEngine, agents: Agents, *, paused: bool
) -> None:
    """What is paused ends when it is resumed."""
    agents.plays["python3"] = FakeRunner().play()
    plane = await ControlPlane.open(settings, engine)
    async with served(plane, engine, agents) as api:
        await api.session(id="code-1", permission_level="high")
        asked = await api.call("POST", CODE, json={"code": "hang"}, headers=SSE)
        (context,) = plane.contexts.listed(session_of(plane))
        cell, command = context.cell, context.command
        assert cell is not None
        assert command is not None
        if paused:
            await api.json("POST", PATH + "/pause")
        await plane.close()
        asked.close()
    plane = await reopened(settings, engine, agents)
    async with served(plane, engine, agents) as api:
        session = session_of(plane)
        (lost,) = await events(api, "code.exit")
        assert (lost["args"]["cell"], lost["args"]["command_id"]) == (cell.id, command.id)
        assert "the control plane was restarted" in lost["error"]
        if paused:
            assert session.status is Status.PAUSED
            assert cancelled(agents) == []
            # It keeps nobody from suspending the session.
            assert [each.waits for each in session.running] == [True]
            await api.json("POST", PATH + "/resume")
        assert cancelled(agents) == [(command.id, REASON)]
        await until(lambda: session.running == [])
        assert (await api.json("GET", CODE + "/contexts"))["items"] == []
        # Another pause ends no context that is this control plane's.
        ran = await api.json("POST", CODE, json={"code": "value 1"})
        assert ran["results"][0]["text"] == "1"
        await api.json("POST", PATH + "/pause")
        await api.json("POST", PATH + "/resume")
        assert [each.id for each in session.running] == [ran["command_id"]]
        again = await api.json("POST", CODE, json={"code": "value 2"})
        assert (again["command_id"], again["restarted"]) == (ran["command_id"], False)
        assert len(await events(api, "code.exit")) == 3
        await api.json("DELETE", PATH)
    await plane.close()


async def test_a_pause_keeps_names(api: Api, code: dict[str, Any]) -> None:
    await api.json("POST", PATH + "/pause")
    await api.problem(409, "invalid_transition", "POST", CODE, json={"code": "value 1"})
    await api.json("POST", PATH + "/resume")
    again = await api.json("POST", CODE, json={"code": "value 1"})
    assert (again["execution_count"], again["command_id"]) == (2, code["command_id"])


async def test_another_level_ends_contexts_and_their_cells(api: Api, code: dict[str, Any]) -> None:
    asked = await api.call("POST", CODE, json={"code": "hang"}, headers=SSE)
    for level in ("medium", "high"):
        body = {"settings": {"permission_level": level}}
        await api.json("PUT", PATH + "/settings", json=body)
        if level == "medium":
            problem = await api.problem(
                403, "permission_denied", "POST", CODE, json={"code": "value 1"}
            )
            assert problem["rule"] == "code-level"
    asked.close()
    await until(lambda: api.plane.contexts.listed(session_of(api.plane))[0].cell is None)
    first, second = await events(api, "code.exit")
    assert (first["result"]["status"], second["result"]["lost"]) == ("ok", True)
    again = await api.json("POST", CODE, json={"code": "value 1"})
    assert again["restarted"]
    assert again["command_id"] != code["command_id"]


async def test_a_suspension_ends_contexts(api: Api, code: dict[str, Any]) -> None:
    session = session_of(api.plane)
    assert await api.plane.sessions.suspensions.suspend(session, "room")
    ends = await events(api, "command.exit")
    assert [(end["args"]["command_id"], end["result"]["reason"]) for end in ends] == [
        (code["command_id"], "suspended")
    ]
    (shown,) = (await api.json("GET", CODE + "/contexts"))["items"]
    assert shown["status"] == "ended"
    again = await api.json("POST", CODE, json={"code": "value 1"})
    assert (again["restarted"], again["results"][0]["text"]) == (True, "1")
    assert again["command_id"] != code["command_id"]
    assert [each.id for each in session.running] == [again["command_id"]]
