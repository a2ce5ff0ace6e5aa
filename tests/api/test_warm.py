"""Sessions that get a sandbox that was started ahead."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import CapacityExhaustedError, SandboxUnavailableError
from orchestrator.host.engine.base import LABEL_SESSION, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node.base import Resources
from orchestrator.sandbox.sandboxes.subscribers import Subscribers
from orchestrator.settings.operator_mounts import OperatorMount
from orchestrator.settings.settings import Settings
from tests.api.conftest import IMAGE, OPERATOR_KEY, Api, served
from tests.support.fake_agent import AgentRefusalError, Agents
from tests.support.restart import reopened
from tests.support.until import until

DATA = OperatorMount(source="/usr/share", target="/mnt/data")


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    more = getattr(request, "param", {})
    warm = {"warm_sandboxes": 2, "warm_least": {"low": 1}}
    return settings.model_copy(update={**warm, **more})


@pytest.fixture
async def warm(api: Api) -> Api:
    """An API with a sandbox that waits."""
    await ready(api.plane)
    return api


async def ready(plane: ControlPlane, *levels: str) -> None:
    """Waits until these sandboxes wait, by default one at low."""
    wanted = sorted(levels or ("low",))
    await until(lambda: sorted(shape.level_name for shape in plane.pool.shapes) == wanted)


async def test_a_session_takes_it_and_works_as_usual(warm: Api) -> None:
    (waiting,) = warm.engine.containers.values()
    assert LABEL_SESSION not in waiting.labels
    assert [method for method, _ in warm.agent.requests] == ["prepare"]  # it knows no session
    agent = warm.agent
    made = await warm.session(permission_level="low", secrets={"SECRET_A": "a-secret-value"})
    assert made["sandbox"]["start"] == "warm"
    assert waiting.name == f"paddock-{made['sandbox']['id']}"
    assert agent.configuration is not None
    assert agent.configuration["level"] == "low"
    assert [method for method, _ in agent.requests] == ["prepare", "secrets"]
    session = warm.plane.sessions.registry.get(made["id"])
    assert session is not None
    assert session.sandbox is not None
    names = session.sandbox.directory.passwd.read_text()
    assert f"sandbox:x:{session.workspace.uid}:" in names
    answer = await warm.json("POST", f"/api/sessions/{made['id']}/exec", json={"command": "ls"})
    assert answer["exit_code"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {
            "images": ["another"],
            "mounts": {"data": OperatorMount(source="/usr/share", target="/mnt/data")},
        }
    ],
    indirect=True,
)
async def test_another_level_image_or_limit_or_a_mount_is_cold(warm: Api) -> None:
    assert warm.engine._images is not None
    warm.engine._images["another"] = warm.engine._images[IMAGE]
    (waiting,) = warm.engine.containers
    for body in (
        {"permission_level": "high"},
        {"image": "another"},
        {"limits": {"pids": 40}},
        {"mounts": ["data"]},
    ):
        made = await warm.session(**{"permission_level": "low", **body})
        assert made["sandbox"]["start"] == "cold"
    assert waiting in warm.engine.containers
    made = await warm.session(permission_level="low")
    assert made["sandbox"]["start"] == "warm"


async def test_its_events_are_those_of_a_cold_one(warm: Api) -> None:
    async def events(**body: Any) -> list[str]:
        made = await warm.session(**body)
        page = await warm.json("GET", f"/api/sessions/{made['id']}/audit")
        return [event["operation"] for event in page["items"]]

    assert await events(permission_level="low") == await events(permission_level="high")


async def test_a_level_change_takes_one(warm: Api) -> None:
    made = await warm.session(permission_level="high")
    assert made["sandbox"]["start"] == "cold"
    await warm.json(
        "PUT",
        f"/api/sessions/{made['id']}/settings",
        json={"settings": {"permission_level": "low"}},
    )
    shown = await warm.json("GET", f"/api/sessions/{made['id']}")
    assert (shown["permission_level"], shown["sandbox"]["start"]) == ("low", "warm")


async def test_a_restored_session_takes_one(warm: Api) -> None:
    made = await warm.session(permission_level="low")
    await ready(warm.plane)
    (session,) = warm.plane.sessions.registry.live
    assert await warm.plane.sessions.suspensions.suspend(session, "idle")
    path = f"/api/sessions/{made['id']}"
    await warm.json("POST", path + "/exec", json={"command": "ls"})
    assert (await warm.json("GET", path))["sandbox"]["start"] == "warm"


async def test_one_that_can_t_be_taken_over_is_removed(
    warm: Api, caplog: pytest.LogCaptureFixture
) -> None:
    (waiting,) = warm.engine.containers

    def refuse(_params: Any) -> Any:
        raise AgentRefusalError("internal_error", "the session's workspace is not mounted")

    warm.agent.overrides["configure"] = refuse
    made = await warm.session(permission_level="low")
    assert made["sandbox"]["start"] == "cold"
    assert waiting not in warm.engine.containers
    assert "can't be taken over" in caplog.text
    text = await (await warm.call("GET", "/metrics")).text()
    assert 'paddock_warm_claims_total{level="low",outcome="hit"} 0.0' in text
    assert 'paddock_warm_claims_total{level="low",outcome="miss"} 1.0' in text


@pytest.mark.parametrize("settings", [{"warm_least": {"high": 1}}], indirect=True)
async def test_without_the_rules_of_the_open_network_nothing_is_taken_over(api: Api) -> None:
    """The host's firewall may have been emptied since the sandbox was started."""
    await ready(api.plane, "high")
    (waiting,) = api.engine.containers
    api.engine.fail_next("ensure_open_network")
    body = {"permission_level": "high"}
    await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
    assert waiting not in api.engine.containers
    assert "configure" not in [method for method, _ in api.agent.requests]


@pytest.mark.parametrize("settings", [{"warm_least": {"high": 1}}], indirect=True)
async def test_a_sandbox_of_another_network_is_not_taken_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(api.plane, "high")
    (waiting,) = api.engine.containers
    monkeypatch.setattr(api.engine, "_instance", "another")
    made = await api.session(permission_level="high")
    assert made["sandbox"]["start"] == "cold"
    assert waiting not in api.engine.containers


async def test_one_whose_hello_is_not_heard_is_removed(
    warm: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    (waiting,) = warm.engine.containers
    hello = Subscribers.hello

    def fail(*_: object) -> None:
        monkeypatch.setattr(Subscribers, "hello", hello)
        raise SandboxUnavailableError("not heard")

    monkeypatch.setattr(Subscribers, "hello", fail)
    made = await warm.session(permission_level="low")
    assert made["sandbox"]["start"] == "cold"
    assert waiting not in warm.engine.containers


async def test_one_that_dies_is_replaced(warm: Api) -> None:
    (waiting,) = warm.engine.containers
    await warm.engine.die(waiting)
    await until(lambda: waiting not in warm.engine.containers)
    await ready(warm.plane)
    made = await warm.session(permission_level="low")
    assert made["sandbox"]["start"] == "warm"


async def test_one_that_lost_its_agent_is_replaced(warm: Api) -> None:
    (waiting,) = warm.engine.containers
    await warm.agent.close()
    await until(lambda: waiting not in warm.engine.containers)
    await ready(warm.plane)


@pytest.mark.parametrize(
    "settings", [{"warm_sandboxes": 1, "warm_least": {}, "max_active": 1}], indirect=True
)
async def test_the_end_of_a_session_makes_room(api: Api) -> None:
    made = await api.session(permission_level="low")
    await api.json("DELETE", f"/api/sessions/{made['id']}")
    await ready(api.plane)


async def test_a_minimum_of_an_unknown_level_prevents_the_start(
    settings: Settings, engine: FakeEngine
) -> None:
    wrong = settings.model_copy(update={"warm_least": {"gone": 1}})
    with pytest.raises(ConfigError, match="warm_least: there is no level gone"):
        await ControlPlane.open(wrong, engine)


async def test_another_image_of_that_name_is_not_the_same(warm: Api) -> None:
    (waiting,) = warm.engine.containers
    assert warm.engine._images is not None
    labels = warm.engine._images[IMAGE].labels
    warm.engine._images[IMAGE] = Image("sha256:2", labels)
    made = await warm.session(permission_level="low")
    assert made["sandbox"]["start"] == "cold"
    await until(lambda: waiting not in warm.engine.containers)
    await until(lambda: {shape.image_id for shape in warm.plane.pool.shapes} == {"sha256:2"})


async def test_another_level_of_that_name_is_not_the_same(warm: Api) -> None:
    (waiting,) = warm.engine.containers
    levels = dict(warm.plane.levels)
    warm.plane.levels.replace({**levels, "low": replace(levels["low"], sha256="0" * 64)})
    await until(lambda: waiting not in warm.engine.containers)
    await ready(warm.plane)
    made = await warm.session(permission_level="low")
    assert made["sandbox"]["start"] == "warm"


async def test_a_restart_keeps_a_session_s_and_removes_the_others(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    await ready(plane)
    async with served(plane, engine, agents) as api:
        made = await api.session(permission_level="low")
        await ready(plane)
    # As after a kill: nobody removes what waits.
    plane.pool._waiting.clear()
    await plane.close()
    assert len(engine.containers) == 2
    plane = await reopened(settings, engine, agents)
    try:
        assert plane.recovered.containers_removed == 1
        async with served(plane, engine, agents) as api:
            shown = await api.json("GET", f"/api/sessions/{made['id']}")
            assert shown["sandbox"]["start"] == "warm"
            assert shown["sandbox"]["id"] == made["sandbox"]["id"]
            await api.json("DELETE", f"/api/sessions/{made['id']}?purge=true")
    finally:
        await plane.close()
    assert engine.containers == {}


async def test_what_waits_is_measured(warm: Api) -> None:
    await warm.session(permission_level="low")
    text = await (await warm.call("GET", "/metrics")).text()
    assert 'paddock_warm_claims_total{level="low",outcome="hit"} 1.0' in text
    assert "paddock_warm_age_seconds_count 1.0" in text


@pytest.mark.parametrize("settings", [{"key_max_sessions": 0}], indirect=True)
async def test_a_refused_creation_costs_the_pool_nothing(
    warm: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is short of memory, so a creation that may happen takes all that waits."""

    async def short() -> Resources:
        return Resources(free_memory_bytes=-1, free_disk_bytes=0)

    monkeypatch.setattr(warm.plane.node, "resources", short)
    call = ("POST", "/api/sessions")
    await warm.problem(429, "rate_limited", *call, json={}, key=OPERATOR_KEY)
    assert len(warm.plane.pool.shapes) == 1
    await warm.problem(503, "capacity_exhausted", *call, json={})
    assert warm.plane.pool.shapes == []


@pytest.mark.parametrize("settings", [{"warm_least": {"low": 1, "high": 1}}], indirect=True)
async def test_a_creation_short_of_memory_takes_no_more_than_it_needs(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(api.plane, "low", "high")
    before = set(api.plane.pool.container_ids)

    async def one_is_too_many() -> Resources:
        free = 2**40 if len(before & api.engine.containers.keys()) < len(before) else -1
        return Resources(free_memory_bytes=free, free_disk_bytes=2**40)

    monkeypatch.setattr(api.plane.node, "resources", one_is_too_many)
    made = await api.session(permission_level="medium")
    assert made["sandbox"]["start"] == "cold"
    assert len(before & set(api.plane.pool.container_ids)) == 1


async def test_what_waits_leaves_memory_to_sessions(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def little() -> Resources:
        return Resources(free_memory_bytes=2**20, free_disk_bytes=2**40)

    monkeypatch.setattr(api.plane.node, "resources", little)
    await api.plane.sessions.room.check(0, 2**20)
    with pytest.raises(CapacityExhaustedError, match="memory"):
        await api.plane.sessions.room.check(0, 2**20 + 1)
