"""What a host calls a session's work, its lease of the work, its episodes, and its counters."""

import logging
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_stopping import ADMIN, full
from tests.support.fake_agent import Agents, Play
from tests.support.restart import reopened

LEASE = "lease-5f0c9b1e-of-the-host"
NAMES: dict[str, Any] = {
    "work_id": "issue-4711",
    "policy_resolved_ref": "policy@3",
    "episode_id": "first",
}


async def test_sessions_are_found_by_their_work_also_long_after_their_end(api: Api) -> None:
    first = await api.session(key=OPERATOR_KEY, **NAMES)
    await api.session(key=OTHER_KEY, work_id="issue-4711")
    second = await api.session(key=OPERATOR_KEY, work_id="issue-4711")
    await api.session(key=OPERATOR_KEY, work_id="another")
    assert {name: first[name] for name in NAMES} == NAMES
    await api.json("DELETE", f"/api/sessions/{first['id']}")

    async def found(query: str) -> list[str]:
        page = await api.json("GET", f"/api/sessions?{query}", key=OPERATOR_KEY)
        return [item["id"] for item in page["items"]]

    assert await found("work_id=issue-4711") == [second["id"], first["id"]]
    assert await found("work_id=issue-4711&status=ended") == [first["id"]]


async def test_a_lease_is_never_shown_or_stored(
    api: Api, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api.agents.plays["cat"] = Play(stdout=b"x")
    created = await api.session(id="box", permission_level="high", lease_id=LEASE, **NAMES)
    path = "/api/sessions/box"
    body = {"argv": ["cat", f"the {LEASE}"]}
    ran = await api.json("POST", path + "/exec", json=body)
    shown = await api.json("GET", path)
    audit = await api.json("GET", path + "/audit")
    refusals = [
        await api.problem(
            400, "validation_error", "POST", "/api/sessions", json={"lease_id": LEASE, name: LEASE}
        )
        for name in NAMES
    ]
    refusals.append(
        await api.problem(
            400, "validation_error", "PUT", path + "/episode", json={"episode_id": LEASE}
        )
    )
    session = api.plane.sessions.registry.get("box")
    texts = (created, ran, shown, audit, refusals, caplog.text, repr(session))
    assert all(LEASE not in str(text) for text in texts)
    assert LEASE not in repr(NewSession(lease_id=LEASE))
    stored = b"".join(file.read_bytes() for file in settings.state_dir.glob("paddock.db*"))
    assert b"issue-4711" in stored
    assert LEASE.encode() not in stored
    # The sandbox never gets it, except in what the caller sends there.
    assert LEASE not in str([params for name, params in api.agent.requests if name != "exec"])
    assert LEASE not in str(api.agent.configuration)
    bad = {"lease_id": "short"}
    assert "lease_id" in str(
        await api.problem(400, "validation_error", "POST", "/api/sessions", json=bad)
    )


async def test_episodes_are_recorded_and_counted(api: Api) -> None:
    await api.session(id="box", episode_id="first", permission_level="low")
    path = "/api/sessions/box"
    for name in ("second", "second", None, "third"):
        answer = await api.json("PUT", path + "/episode", json={"episode_id": name})
        assert answer["episode_id"] == name
    await api.json("POST", path + "/exec", json={"command": "ls"})
    await api.problem(403, "permission_denied", "POST", path + "/exec", json={"command": "curl x"})
    events = (await api.json("GET", path + "/audit"))["items"]
    told = [event["args"] for event in events if event["operation"] == "session.episode"]
    assert [args["episode_id"] for args in told] == ["second", "second", None, "third"]
    counters = (await api.json("GET", path))["telemetry"]
    assert counters["episode_count"] == 3
    assert counters["tool_calls"] == 1
    assert counters["events_emitted"] == len(events)
    await api.problem(400, "validation_error", "PUT", path + "/episode", json={})
    with full(api.plane):
        where = ("PUT", path + "/episode")
        await api.problem(503, "audit_unavailable", *where, json={"episode_id": "lost"})
    assert (await api.json("GET", path))["episode_id"] == "third"
    await api.json("DELETE", path)
    lasted = (await api.json("GET", path))["telemetry"]["duration_ms"]
    assert (await api.json("GET", path))["telemetry"]["duration_ms"] == lasted
    await api.problem(410, "session_terminated", "PUT", path + "/episode", json={"episode_id": "x"})


async def test_a_restart_keeps_the_names_and_forgets_the_lease(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    request = NewSession(id="box", lease_id=LEASE, terms=Terms(**NAMES))
    await plane.sessions.create(ADMIN, request)
    await plane.close()
    plane = await reopened(settings, engine, agents)
    try:
        (found,) = plane.sessions.registry.live
        assert (found.terms.policy_resolved_ref, found.terms.episode_id) == ("policy@3", "first")
        assert (found.episodes, found.reissues) == (1, 0)
        assert LEASE in found.secrets.cut(LEASE)
        await plane.sessions.close(ADMIN, found, purge=False)
    finally:
        await plane.close()
