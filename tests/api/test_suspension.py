"""Suspended sessions: idle ones give way, come back at their next use, and lose nothing unsaid."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.sessions.idleness import can_be_suspended
from orchestrator.settings.settings import Settings
from orchestrator.state.lifecycle import Suspension
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from paddock.contract.words import IdleAction, Status
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api, served
from tests.api.test_packs import FILES, opened
from tests.api.test_stopping import ADMIN, full
from tests.support.fake_agent import Agents, Play
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

pytestmark = pytest.mark.slow

BOX = "/api/sessions/box"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_active": 2})


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time after which what was not recorded is recorded again."""
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 0.01)


def find(api: Api, name: str = "box") -> Session:
    session = api.plane.sessions.registry.get(name)
    assert session is not None
    return session


async def suspended(api: Api, name: str = "box") -> Session:
    session = find(api, name)
    assert await api.plane.sessions.suspensions.suspend(session, "room")
    return session


async def operations(api: Api, name: str = "box") -> list[str]:
    items = (await api.json("GET", f"/api/sessions/{name}/audit?limit=1000"))["items"]
    assert (await api.json("GET", f"/api/sessions/{name}/audit/verify"))["ok"]
    return [event["operation"] for event in items]


async def test_the_least_recently_used_idle_session_gives_way_and_comes_back(api: Api) -> None:
    handles = {name: (await api.session(id=name))["handle"] for name in ("a", "b")}
    await api.json("POST", "/api/sessions/a/exec", json={"command": "ls"})
    await api.session(id="c")  # `b` was used before `a`

    async def activities() -> dict[str, tuple[str, str, bool]]:
        page = await api.json("GET", "/api/sessions")
        return {
            item["id"]: (item["status"], item["activity"], item["sandbox"] is not None)
            for item in page["items"]
        }

    idle, gone = ("active", "idle", True), ("active", "suspended", False)
    assert await activities() == {"a": idle, "b": gone, "c": idle}
    assert len(api.engine.containers) == 2
    assert api.plane.sessions.registry.with_sandbox == 2
    # Its handle uses it as before, and `a` gives way.
    path = "/api/sessions/b"
    ran = await api.json("POST", path + "/exec", json={"command": "ls"}, key=handles["b"])
    assert ran["exit_code"] == 0
    assert await activities() == {"a": gone, "b": idle, "c": idle}
    assert len(api.engine.containers) == 2
    found = await operations(api, "b")
    assert found[-4:] == ["session.suspended", "session.restored", "command.start", "command.exit"]
    assert "paddock_sessions_suspended 1.0" in await (await api.call("GET", "/metrics")).text()


async def test_who_creates_a_session_learns_which_of_its_own_gave_way(api: Api) -> None:
    assert (await api.session(id="a", key=OPERATOR_KEY))["gave_way"] == []
    await api.session(id="b", key=OPERATOR_KEY)
    assert (await api.session(id="c", key=OPERATOR_KEY))["gave_way"] == ["a"]
    assert (await api.session(id="d", key=OTHER_KEY))["gave_way"] == []
    assert [find(api, name).suspended for name in "abcd"] == [True, True, False, False]
    assert (await api.session(id="e"))["gave_way"] == ["c"]  # the admin's


async def test_running_sessions_never_give_way(api: Api) -> None:
    api.agents.plays["work"] = Play(holds=True)
    for name in ("a", "b"):
        await api.session(id=name, permission_level="high")
        body = {"argv": ["work"], "background": True}
        await api.json("POST", f"/api/sessions/{name}/exec", json=body, status=202)
    response = await api.call("POST", "/api/sessions", json={"id": "c"})
    assert (response.status, response.headers["Retry-After"]) == (503, "10")
    assert (await response.json())["code"] == "capacity_exhausted"
    assert not can_be_suspended(find(api, "a"))
    agents = list(api.agents.by_run_dir.values())
    (command,) = find(api, "b").running
    agents[1].end(command.id)
    await command.done
    await api.session(id="c")
    assert [find(api, name).suspended for name in ("a", "b", "c")] == [False, True, False]
    # Everything is running or new: the suspended one finds no room, and stays as it is.
    with find(api, "c").using():
        where = ("POST", "/api/sessions/b/exec")
        await api.problem(503, "capacity_exhausted", *where, json={"command": "ls"})
    assert find(api, "b").suspended


async def test_what_needs_its_sandbox_is_not_suspended(api: Api) -> None:
    await api.session(id="box")
    session, suspend = find(api), api.plane.sessions.suspensions.suspend
    session.terminals.add("pty-1")
    assert not await suspend(session, "room")
    session.terminals.clear()
    await api.json("POST", BOX + "/ports", json={"port": 8000, "seconds": 60}, status=201)
    assert not await suspend(session, "room")
    await api.json("DELETE", BOX + "/ports/8000")
    with session.streaming("downloads"):
        assert not await suspend(session, "room")
    with session.using():
        assert not await suspend(session, "room")
    async with session.lock:
        assert not await suspend(session, "room")
    await api.json("POST", BOX + "/pause")
    assert not await suspend(session, "room")
    await api.json("POST", BOX + "/resume")
    assert can_be_suspended(session)
    sandbox = session.sandbox
    assert sandbox is not None
    await api.agent.close()
    await until(lambda: not sandbox.link.connected)
    assert not await suspend(session, "room")
    assert "session.suspended" not in await operations(api)
    await api.session(id="other", secrets={"SECRET_A": "a-secret-value"})
    assert not await suspend(find(api, "other"), "room")


async def test_a_session_with_a_context_pack_is_compared_with_it_again(api: Api) -> None:
    await opened(api, "notes", id="box", consume={"shell_allowlist": ["ls"]})
    await suspended(api)
    del api.agents.files["notes"]
    where = ("POST", BOX + "/exec")
    problem = await api.problem(409, "conflict", *where, json={"command": "ls"})
    assert problem["paths"] == ["/workspace/notes"]
    assert find(api).suspended
    api.agents.files["notes"] = FILES["notes"]
    assert (await api.json(*where, json={"command": "ls"}))["exit_code"] == 0
    configuration = api.agent.configuration
    assert configuration is not None
    assert configuration["consume"]["entries"] == ["notes"]
    # What it may have changed could not be compared.
    await api.json("DELETE", BOX)
    await opened(api, "notes", id="other", consume={"write_allowlist": ["/workspace/notes"]})
    assert not await api.plane.sessions.suspensions.suspend(find(api, "other"), "room")


async def test_every_kind_of_use_restores_it(api: Api) -> None:
    await api.session(id="box", permission_level="high")
    needed: list[tuple[str, str, Any]] = [
        ("POST", "/exec", {"json": {"command": "ls"}}),
        ("PUT", "/files?path=a.txt", {"data": b"text"}),
        ("GET", "/files/list", {}),
        ("POST", "/files/mkdir", {"json": {"path": "b"}}),
        ("GET", "/files/archive", {}),
    ]
    for method, rest, how in needed:
        session = await suspended(api)
        response = await api.call(method, BOX + rest, **how)
        assert response.status in (200, 201), rest
        await response.read()
        assert not session.suspended
        assert session.sandbox is not None
        assert session.uses == 0
    # What needs no sandbox does not start one.
    session = await suspended(api)
    unneeded: list[tuple[str, str, Any]] = [
        ("GET", "", {}),
        ("GET", "/settings", {}),
        ("GET", "/processes", {}),
        ("GET", "/ports", {}),
        ("POST", "/interrupt", {}),
        ("POST", "/handle", {}),
        ("PUT", "/episode", {"json": {"episode_id": "x"}}),
        ("POST", "/pause", {}),
    ]
    for method, rest, how in unneeded:
        response = await api.call(method, BOX + rest, **how)
        assert response.status == 200, rest
    assert session.suspended
    assert api.engine.containers == {}
    # A paused one must be resumed first.
    exec_ = ("POST", BOX + "/exec")
    await api.problem(409, "invalid_transition", *exec_, json={"command": "ls"})
    shown = await api.json("POST", BOX + "/resume")
    assert (shown["status"], shown["activity"]) == ("active", "suspended")
    await api.json(*exec_, json={"command": "ls"})


async def test_uses_at_once_share_one_restoration(api: Api) -> None:
    await api.session(id="box")
    session = await suspended(api)
    api.engine.calls.clear()
    ran = await asyncio.gather(
        *(api.json("POST", BOX + "/exec", json={"command": "ls"}) for _ in range(8))
    )
    assert [each["exit_code"] for each in ran] == [0] * 8
    assert api.engine.calls.count("create") == 1
    assert session.uses == 0
    assert (await operations(api)).count("session.restored") == 1


async def test_a_use_that_comes_while_it_is_suspended_waits_and_restores_it(api: Api) -> None:
    await api.session(id="box")
    session = find(api)
    removing = api.engine.hang_next("remove")
    suspending = asyncio.ensure_future(api.plane.sessions.suspensions.suspend(session, "room"))
    async with asyncio.timeout(WAIT_SECONDS):
        await until(lambda: "remove" in api.engine.calls)
        assert session.suspension is Suspension.BEGINNING
        assert api.plane.sessions.registry.with_sandbox == 1  # its place is not free yet
        work = asyncio.ensure_future(api.json("POST", BOX + "/exec", json={"command": "ls"}))
        await until(lambda: session.uses == 1)
        removing.set()
        assert await suspending
        assert (await work)["exit_code"] == 0
    assert len(api.engine.containers) == 1


async def test_an_end_while_it_is_suspended_leaves_nothing(api: Api) -> None:
    await api.session(id="box")
    await suspended(api)
    ended = await api.json("DELETE", BOX + "?purge=true")
    assert (ended["status"], ended["activity"]) == ("completed", "closed")
    assert api.engine.containers == {}
    await api.problem(410, "session_terminated", "POST", BOX + "/exec", json={"command": "ls"})
    assert (await operations(api))[-2:] == ["session.close", "session.terminated"]
    await api.session(id="box")


async def test_a_level_of_a_suspended_session_holds_from_its_next_use_on(api: Api) -> None:
    await api.session(id="box", permission_level="medium")
    session = await suspended(api)
    for level in ("high", "low"):
        body = {"settings": {"permission_level": level}}
        assert (await api.json("PUT", BOX + "/settings", json=body))["permission_level"] == level
        assert session.suspended
        assert session.limits.memory_bytes == api.plane.levels[level].limits.memory_bytes
    await api.problem(403, "permission_denied", "POST", BOX + "/exec", json={"command": "curl x"})
    assert api.agent.configuration is not None
    assert api.agent.configuration["level"] == "low"
    await suspended(api)
    with full(api.plane):
        body = {"settings": {"permission_level": "high"}}
        await api.problem(503, "audit_unavailable", "PUT", BOX + "/settings", json=body)
    assert session.level.name == "low"


async def test_lost_output_is_said(api: Api) -> None:
    api.agents.plays["make"] = Play(b"text")
    await api.session(id="box", permission_level="high")
    done = await api.json("POST", BOX + "/exec", json={"command": "make"})
    await suspended(api)
    page = await api.json("GET", f"{BOX}/processes/{done['command_id']}")
    assert page["lost"]
    (event,) = (await api.json("GET", BOX + "/audit?operation=session.suspended"))["items"]
    assert event["result"] == {"output_lost": [done["command_id"]]}
    assert event["args"] == {"reason": "room"}


async def test_without_a_record_it_keeps_its_sandbox(api: Api) -> None:
    await api.session(id="box")
    session = find(api)
    with full(api.plane), pytest.raises(AuditUnavailableError):
        await api.plane.sessions.suspensions.suspend(session, "room")
    assert (session.suspension, len(api.engine.containers)) == (None, 1)
    await until(lambda: session.key not in api.plane.sessions._stops._queues)
    await api.json("POST", BOX + "/exec", json={"command": "ls"})
    await suspended(api)
    with full(api.plane):
        where = ("POST", BOX + "/exec")
        await api.problem(503, "audit_unavailable", *where, json={"command": "ls"})
    assert (session.suspended, api.engine.containers) == (True, {})


async def test_one_that_can_t_be_restored_stays_suspended(api: Api) -> None:
    await api.session(id="box")
    session = await suspended(api)
    api.engine.fail_next("create")
    await api.problem(503, "engine_unavailable", "POST", BOX + "/exec", json={"command": "ls"})
    assert (session.suspended, session.sandbox, api.engine.containers) == (True, None, {})
    assert await api.plane.sessions._stops.recorded(session)
    await api.json("POST", BOX + "/exec", json={"command": "ls"})
    found = [each for each in await operations(api) if each.startswith("session.")]
    assert found == ["session.create", *["session.suspended", "session.restored"] * 2]


async def test_an_idle_session_is_suspended_or_ended_as_it_asked(api: Api) -> None:
    await api.session(id="box", idle_action="suspend", wall_timeout=60)
    await api.session(id="other")
    for name, status in (("box", "active"), ("other", "aborted")):
        session = find(api, name)
        session.last_activity_at = "2020-01-01T00:00:00.000000Z"
        await api.plane.sessions.expire(session)
        shown = await api.json("GET", f"/api/sessions/{name}")
        assert (shown["status"], shown["sandbox"]) == (status, None)
        assert shown["deadlines"]["idle_at"] is None
    assert (await api.json("GET", BOX))["deadlines"]["wall_at"] is not None
    # Its other deadlines end it. One that was suspended for others' room ends when it was idle.
    session = find(api)
    session.terms = replace(session.terms, idle_action=IdleAction.END)
    await api.plane.sessions.expire(session)
    assert session.status is Status.ABORTED


async def test_a_session_that_can_t_be_suspended_ends_when_it_was_idle(api: Api) -> None:
    secrets = {"SECRET_A": "a-secret-value"}
    await api.session(id="box", idle_action="suspend", secrets=secrets)
    session = find(api)
    session.last_activity_at = "2020-01-01T00:00:00.000000Z"
    with session.using():
        await api.plane.sessions.expire(session)
        assert session.live  # it is being used
    await api.plane.sessions.expire(session)
    assert session.status is Status.ABORTED


async def test_a_restart_keeps_suspended_sessions(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    names = ("left", "paused", "half")
    for name in names:
        session, *_ = await plane.sessions.create(ADMIN, NewSession(id=name))
        assert await plane.sessions.suspensions.suspend(session, "room")
    used = session.last_activity_at
    await plane.sessions.pause(ADMIN, _get(plane, "paused"))
    await plane.database.write(
        lambda connection: connection.execute(
            "UPDATE sessions SET suspension = 'restoring' WHERE id = 'half'"
        )
    )
    await plane.close()
    plane = await reopened(settings, engine, agents)
    async with served(plane, engine, agents) as api:
        assert [_get(plane, name).suspended for name in names] == [True] * 3
        assert _get(plane, "half").last_activity_at == used
        assert _get(plane, "paused").status is Status.PAUSED
        await api.json("POST", "/api/sessions/paused/resume")
        for name in names:
            await api.json("POST", f"/api/sessions/{name}/exec", json={"command": "ls"})
        events = (await api.json("GET", "/api/sessions/half/audit"))["items"]
        assert "the control plane ended while it restored" in str(events)
        for name in names:
            await api.json("DELETE", f"/api/sessions/{name}")
    await plane.close()
    assert engine.containers == {}


def _get(plane: ControlPlane, name: str) -> Session:
    session = plane.sessions.registry.get(name)
    assert session is not None
    return session
