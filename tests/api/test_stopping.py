"""Stops take effect at once, whatever state the ledger, the database or the disk is in."""

import asyncio
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import (
    AuditUnavailableError,
    CapacityExhaustedError,
    EngineUnavailableError,
    RateLimitedError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.engine.base import ContainerState
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node.container_kill import FirstProcess
from orchestrator.host.node.control_groups import HostPaths
from orchestrator.host.node.requirements import UnmetError
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from orchestrator.state import session_rows
from orchestrator.state.requests import ExecRequest, NewSession
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import MAX_RUNNING
from paddock.contract.words import Rationale, Status
from sandbox_agent.decide.protocol import Message
from tests.api.conftest import Api
from tests.support.fake_agent import Agents, Play
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

pytestmark = pytest.mark.slow

ADMIN = Principal("admin", Role.ADMIN)
PATH = "/api/sessions/box"
LOWER = {"settings": {"permission_level": "low"}}
# Each way to end a session, and the status that the session gets.
ENDS: dict[str, tuple[str, str, str]] = {
    "abort": ("POST", PATH + "/abort", "aborted"),
    "complete": ("POST", PATH + "/complete", "completed"),
    "close": ("DELETE", PATH, "completed"),
}


@pytest.fixture(autouse=True)
def retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a disk that works again noticed at once."""
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 0.01)


@contextmanager
def impatient() -> Iterator[None]:
    """Shortens the time for which stops wait for a disk, until it works again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.record.audit.stop_records.PATIENCE_SECONDS", 0.2)
        patch.setattr("orchestrator.ground.store.database._WRITE_SECONDS", 0.3)
        yield


@contextmanager
def full(plane: ControlPlane) -> Iterator[None]:
    """The disk is full, and nothing can be written."""

    async def refuse(_: Any, **how: Any) -> Any:
        raise StoreError("the disk is full")

    write = plane.database.write
    plane.database.write = refuse  # type: ignore[method-assign, assignment]
    try:
        with impatient():
            yield
    finally:
        plane.database.write = write  # type: ignore[method-assign]


@contextmanager
def hung(plane: ControlPlane) -> Iterator[None]:
    """The disk never answers, so the writer's thread waits."""
    answers = threading.Event()
    waiting = asyncio.ensure_future(plane.database._writer.run(answers.wait))
    try:
        with impatient():
            yield
    finally:
        answers.set()
        waiting.cancel()


Dead = Callable[[ControlPlane], Any]
DEAD = pytest.mark.parametrize("dead", [full, hung])


@pytest.fixture
async def command(api: Api) -> str:
    """A session at high, whose command runs forever."""
    api.agents.plays["work"] = Play(holds=True)
    await api.session(id="box", permission_level="high")
    body = {"argv": ["work"], "background": True}
    started = await api.json("POST", PATH + "/exec", json=body, status=202)
    return str(started["command_id"])


async def operations(api: Api) -> list[str]:
    items = (await api.json("GET", PATH + "/audit?limit=1000"))["items"]
    return [event["operation"] for event in items]


async def recorded(api: Api, operation: str) -> list[str]:
    """Waits until the operation is recorded; returns all operations of the verified chain."""
    session, seq = api.plane.sessions.finder.find(ADMIN, "box"), 0
    async with asyncio.timeout(WAIT_SECONDS):
        while operation not in (found := await operations(api)):
            seq = await api.plane.ledger.wait(session.key, seq)
    assert (await api.json("GET", PATH + "/audit/verify"))["ok"]
    await until(lambda: session.key not in api.plane.sessions._stops._queues)
    return found


@DEAD
@pytest.mark.parametrize("way", sorted(ENDS))
async def test_an_end_is_carried_out_and_recorded_later(
    api: Api, command: str, dead: Dead, way: str
) -> None:
    method, path, status = ENDS[way]
    with dead(api.plane):
        await api.json(method, path)
        assert api.engine.containers == {}
        assert (await api.json("GET", PATH))["status"] == status
    found = await recorded(api, "audit.gap")
    assert found[-3:] == (
        ["session.close", "session.terminated", "audit.gap"]
        if way == "close"
        else ["command.start", "session.terminated", "audit.gap"]
    )
    (event,) = (await api.json("GET", PATH + "/audit?operation=audit.gap"))["items"]
    assert event["args"] == {"commands": [command], "terminals": []}
    # The id can be used again.
    assert (await api.session(id="box"))["status"] == "active"


@DEAD
async def test_a_deadline_is_kept(api: Api, dead: Dead) -> None:
    api.agents.plays["work"] = Play(holds=True)
    await api.session(id="box", permission_level="high", wall_timeout=1)
    body = {"argv": ["work"], "background": True}
    await api.json("POST", PATH + "/exec", json=body, status=202)
    with dead(api.plane):
        await until(lambda: not api.engine.containers)
        await until(lambda: not api.plane.sessions.registry.live)
    await recorded(api, "session.terminated")
    shown = await api.json("GET", PATH)
    assert shown["termination"]["rationale_code"] == "timeout"


@DEAD
async def test_a_pause_is_carried_out_and_recorded_later(
    api: Api, command: str, dead: Dead
) -> None:
    with dead(api.plane):
        assert (await api.json("POST", PATH + "/pause"))["status"] == "paused"
        (container,) = api.engine.containers.values()
        assert container.state is ContainerState.PAUSED
        # An operation that starts something must be recorded first.
        await api.problem(503, "audit_unavailable", "POST", PATH + "/resume")
        (container,) = api.engine.containers.values()
        assert container.state is ContainerState.PAUSED
    await recorded(api, "session.pause")
    await api.json("POST", PATH + "/resume")
    assert (await operations(api))[-2:] == ["session.pause", "session.resume"]


@DEAD
async def test_a_level_is_lowered_and_recorded_later(api: Api, command: str, dead: Dead) -> None:
    with dead(api.plane):
        problem = await api.problem(503, "audit_unavailable", "PUT", PATH + "/settings", json=LOWER)
        assert "ended" in problem["detail"]
        assert api.engine.containers == {}
        await api.problem(
            502, "sandbox_unavailable", "POST", PATH + "/exec", json={"argv": ["true"]}
        )
        # The level is already lowered; the caller need not repeat the request.
        assert (await api.json("GET", PATH))["permission_level"] == "low"
    await recorded(api, "audit.gap")
    # If the disk hung, the abandoned attempt may have been recorded, too.
    events = (await api.json("GET", PATH + "/audit?operation=session.settings"))["items"]
    assert {(event["args"]["from"], event["args"]["to"]) for event in events} == {("high", "low")}
    assert api.plane.sessions.finder.find(ADMIN, "box").running == []
    await api.json("PUT", PATH + "/settings", json=LOWER)
    assert (await api.json("GET", PATH))["permission_level"] == "low"
    done = await api.json("POST", PATH + "/exec", json={"argv": ["ls"]})
    assert done["exit_code"] == 0


async def hang(_: Message) -> Message:
    await asyncio.Event().wait()
    return {}


@pytest.mark.parametrize("level", ["low", "high"])
async def test_a_level_change_loses_no_command_of_an_agent_that_hangs(
    api: Api, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Runs as many commands as are allowed, so that lost ones would leave no room for others."""
    monkeypatch.setattr("orchestrator.sandbox.sandboxes.session_sandboxes._SHUTDOWN_SECONDS", 0.1)
    api.agents.plays["ls"] = Play(holds=True)
    await api.session(id="box", permission_level="medium")
    body = {"argv": ["ls"], "background": True}
    started = [
        (await api.json("POST", PATH + "/exec", json=body, status=202))["command_id"]
        for _ in range(MAX_RUNNING)
    ]
    await api.problem(409, "busy", "POST", PATH + "/exec", json=body)
    monkeypatch.setattr(api.agent, "_on_shutdown", hang)
    settings = {"settings": {"permission_level": level}}
    await api.json("PUT", PATH + "/settings", json=settings)
    (event,) = (await api.json("GET", PATH + "/audit?operation=audit.gap"))["items"]
    assert event["args"] == {"commands": started, "terminals": []}
    for command_id in started:
        shown = await api.json("GET", f"{PATH}/processes/{command_id}")
        assert shown["status"] == "lost"
    done = await api.json("POST", PATH + "/exec", json={"argv": ["pwd"]})
    assert done["exit_code"] == 0


async def test_a_lowered_sandbox_that_does_not_thaw_leaves_a_gap(api: Api, command: str) -> None:
    api.engine.fail_next("resume", EngineUnavailableError("can't"))
    await api.json("PUT", PATH + "/settings", json=LOWER)
    (event,) = (await api.json("GET", PATH + "/audit?operation=audit.gap"))["items"]
    assert event["args"]["commands"] == [command]


async def test_a_level_change_that_a_restart_finds_unfinished_leaves_a_gap(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    """The new level is recorded, and the sandbox with the old level may still exist."""
    agents.plays["work"] = Play(holds=True)
    plane = await ControlPlane.open(settings, engine)
    started = {}
    for name in ("found", "gone"):
        session, *_ = await plane.sessions.create(
            ADMIN, NewSession(id=name, permission_level="high")
        )
        body = ExecRequest(argv=["work"], background=True)
        started[name] = (await plane.executions.start(ADMIN, session, body)).id
        low = plane.levels.named("low")
        nothing = {"sandbox": None, "container_id": None}
        await plane.database.write(session_rows.with_level(session, low, **nothing))
    await plane.close()
    await engine.remove(list(engine.containers)[-1])
    plane = await reopened(settings, engine, agents)
    try:
        assert engine.containers == {}
        for name, command_id in started.items():
            session = plane.sessions.finder.find(ADMIN, name)
            assert session.running == []
            (event,) = await query.events(plane.database, session.key, operation="audit.gap")
            assert event["args"]["commands"] == [command_id]
        # The next start knows that they ended, and records no second gap.
        await plane.close()
        plane = await reopened(settings, engine, agents)
        for name in started:
            session = plane.sessions.finder.find(ADMIN, name)
            assert session.running == []
            found = await query.events(plane.database, session.key, operation="audit.gap")
            assert len(found) == 1
    finally:
        await plane.close()


async def test_a_sandbox_of_another_level_than_its_sessions_is_never_adopted(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    """Earlier versions recorded a lower level before they removed the sandbox of the old one."""
    plane = await ControlPlane.open(settings, engine)
    session, *_ = await plane.sessions.create(ADMIN, NewSession(id="s", permission_level="high"))
    await plane.database.write(session_rows.with_level(session, plane.levels.named("low")))
    await plane.close()
    plane = await reopened(settings, engine, agents)
    try:
        assert engine.containers == {}
        session = plane.sessions.finder.find(ADMIN, "s")
        assert (session.live, session.sandbox, session.level.name) == (True, None, "low")
        assert "set the permission level again" in (session.gate or "")
    finally:
        await plane.close()


@DEAD
async def test_what_was_not_recorded_is_purged_later(api: Api, command: str, dead: Dead) -> None:
    with dead(api.plane):
        await api.problem(503, "audit_unavailable", "DELETE", PATH + "?purge=true")
        assert api.engine.containers == {}
    await recorded(api, "audit.gap")
    await api.json("DELETE", PATH + "?purge=true")


@pytest.fixture
def small_disk(state_dir: Path) -> Path:
    """A file system of its own for the state; returns the path of a file that can fill it."""
    (state_dir / "state").mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "none", str(state_dir / "state")]
    subprocess.run(mount, check=True)
    return state_dir / "state" / "filler"


def fill(filler: Path) -> None:
    with suppress(OSError), filler.open("wb", 0) as file:
        while True:
            file.write(b"x" * 4096)


async def test_on_a_full_disk_there_is_room_for_stops(small_disk: Path, api: Api) -> None:
    api.agents.plays["work"] = Play(holds=True)
    names = [f"box-{number}" for number in range(6)]
    for name in names:
        await api.session(id=name, permission_level="high")
        body = {"argv": ["work"], "background": True}
        await api.json("POST", f"/api/sessions/{name}/exec", json=body, status=202)
    fill(small_disk)
    path = f"/api/sessions/{names[0]}"
    while (await api.call("POST", path + "/exec", json={"argv": ["true"]})).status != 503:
        pass
    ends = [
        api.json("POST", path + "/abort"),
        api.json("DELETE", f"/api/sessions/{names[1]}?purge=true"),
        api.json("POST", f"/api/sessions/{names[2]}/complete"),
        api.json("POST", f"/api/sessions/{names[3]}/pause"),
    ]
    await asyncio.gather(*ends)
    for name, last in zip(names, ("terminated", "terminated", "terminated", "pause"), strict=False):
        items = (await api.json("GET", f"/api/sessions/{name}/audit?limit=1000"))["items"]
        assert f"session.{last}" in [event["operation"] for event in items]
        assert (await api.json("GET", f"/api/sessions/{name}/audit/verify"))["ok"]
    running = [c for c in api.engine.containers.values() if c.state is ContainerState.RUNNING]
    assert len(running) == 2
    # The remaining sessions can be used again once there is room.
    path = f"/api/sessions/{names[4]}"
    await api.problem(503, "audit_unavailable", "POST", path + "/exec", json={"argv": ["true"]})
    small_disk.unlink()
    await api.json("POST", path + "/exec", json={"argv": ["true"]})


async def test_room_for_stops_is_there_after_the_log_was_emptied(small_disk: Path) -> None:
    """The disk fills up before any further ordinary write."""
    database = await Database.open(small_disk.with_name("paddock.db"))
    try:

        def write(connection: sqlite3.Connection) -> None:
            values = ("x" * 100_000, "")
            connection.execute(
                "INSERT INTO schema_version (name, applied_at) VALUES (?, ?)", values
            )

        await database.write(write)
        assert await database.scrub()
        fill(small_disk)
        await database.write(write, reserve=True)
        assert (
            await database.read(
                lambda conn: conn.execute(
                    "SELECT count(*) FROM schema_version WHERE name LIKE 'xx%'"
                ).fetchone()[0]
            )
            == 2
        )
    finally:
        await database.close()


async def test_its_id_is_in_use_until_its_end_is_recorded(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 1000)
    with full(api.plane):
        await api.json("POST", PATH + "/abort")
    await api.problem(409, "conflict", "POST", "/api/sessions", json={"id": "box"})
    assert api.engine.containers == {}


@pytest.mark.parametrize("way", [*sorted(ENDS), "pause", "lower", "wall"])
async def test_it_stands_still_before_anything_is_recorded(
    api: Api, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    wall = {"wall_timeout": 1} if way == "wall" else {}
    await api.session(id="box", permission_level="high", **wall)
    states: list[ContainerState] = []
    append = api.plane.ledger.append

    async def look(draft: EventDraft, effect: Any = None) -> Any:
        if draft.operation.startswith("session."):
            states.extend(container.state for container in api.engine.containers.values())
        return await append(draft, effect)

    monkeypatch.setattr(api.plane.ledger, "append", look)
    if way in ENDS:
        await api.json(*ENDS[way][:2])
    elif way == "pause":
        await api.json("POST", PATH + "/pause")
    elif way == "lower":
        await api.json("PUT", PATH + "/settings", json=LOWER)
    else:
        await until(lambda: not api.plane.sessions.registry.live)
    assert set(states) == {ContainerState.PAUSED}


async def test_an_end_does_not_wait_for_who_has_the_session(api: Api, command: str) -> None:
    """Commands stop even while another change of the session waits for a disk."""
    session = api.plane.sessions.finder.find(ADMIN, "box")
    async with session.lock:
        aborting = asyncio.create_task(api.json("POST", PATH + "/abort"))
        (container,) = api.engine.containers
        await until(lambda: api.engine.containers[container].state is ContainerState.PAUSED)
    assert (await aborting)["status"] == "aborted"


@pytest.mark.parametrize("way", ["pause", "lower"])
async def test_what_stands_still_does_not_wait_for_who_has_the_session(
    api: Api, command: str, way: str
) -> None:
    session = api.plane.sessions.finder.find(ADMIN, "box")
    async with session.lock:
        call = ("POST", PATH + "/pause") if way == "pause" else ("PUT", PATH + "/settings")
        body = {} if way == "pause" else LOWER
        stopping = asyncio.create_task(api.json(*call, json=body))
        (container,) = api.engine.containers
        await until(lambda: api.engine.containers[container].state is ContainerState.PAUSED)
    await stopping
    assert session.status is (Status.PAUSED if way == "pause" else Status.ACTIVE)
    assert session.level.name == ("high" if way == "pause" else "low")


async def test_a_pause_that_fails_once_kills_nothing(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = kills(monkeypatch)
    api.engine.fail_next("pause", EngineUnavailableError("can't"))
    assert (await api.json("POST", PATH + "/pause"))["status"] == "paused"
    assert killed == []


async def test_a_pause_that_fails_kills_what_runs_and_spares_the_agent(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    killed = kills(monkeypatch)
    (container,) = api.engine.containers
    for _ in range(2):
        api.engine.fail_next("pause", EngineUnavailableError("can't"))
    assert (await api.json("POST", PATH + "/pause"))["status"] == "paused"
    assert killed == [(container, True)]
    assert "can't be frozen" in caplog.text


async def test_a_pause_that_always_fails_kills_everything(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = kills(monkeypatch)
    (container,) = api.engine.containers
    for _ in range(3):
        api.engine.fail_next("pause", EngineUnavailableError("can't"))
    await api.problem(502, "sandbox_unavailable", "POST", PATH + "/pause")
    assert killed == [(container, True), (container, False)]


async def test_a_level_whose_file_is_stricter_needs_no_room(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes on that only the old version of the level permits."""
    (container,) = api.engine.containers
    stricter = replace(api.plane.levels["high"], sha256="0" * 64)
    monkeypatch.setattr(api.plane.levels, "named", lambda _: stricter)

    def check_room(_: object) -> None:
        raise CapacityExhaustedError("the disk is full", retry_after=1)

    monkeypatch.setattr(api.plane.executions._recorder, "check_room", check_room)
    await api.json("PUT", PATH + "/settings", json={"settings": {"permission_level": "high"}})
    assert container not in api.engine.containers
    assert api.plane.sessions.finder.find(ADMIN, "box").level is stricter


async def test_a_lower_level_that_the_quota_has_no_room_for_ends_what_runs(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(*_: object) -> Any:
        raise RateLimitedError("too much memory", limit="max_memory_bytes", retry_after=1)

    with monkeypatch.context() as patch:
        patch.setattr(api.plane.sessions.shares, "changing", changing)
        await api.problem(429, "rate_limited", "PUT", PATH + "/settings", json=LOWER)
    assert api.engine.containers == {}
    assert (await api.json("GET", PATH))["permission_level"] == "low"
    await api.problem(502, "sandbox_unavailable", "POST", PATH + "/exec", json={"argv": ["ls"]})
    await api.json("PUT", PATH + "/settings", json=LOWER)
    assert (await api.json("POST", PATH + "/exec", json={"argv": ["ls"]}))["exit_code"] == 0


async def test_what_is_held_for_a_level_that_is_refused_goes_on(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unmet(*_: object) -> None:
        raise UnmetError("level low can not be enforced")

    monkeypatch.setattr(api.plane.sessions._sandboxes, "check_level", unmet)
    await api.problem(503, "engine_unavailable", "PUT", PATH + "/settings", json=LOWER)
    (container,) = api.engine.containers.values()
    assert container.state is ContainerState.RUNNING
    await api.json("POST", PATH + "/pause")
    await api.json("POST", PATH + "/resume")


async def test_a_sandbox_that_can_not_be_frozen_is_killed(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    killed = kills(monkeypatch)
    (container,) = api.engine.containers
    for _ in range(3):
        api.engine.fail_next("pause", EngineUnavailableError("can't"))
    await api.json("POST", PATH + "/abort")
    assert killed == [(container, True), (container, False)]
    assert api.engine.containers == {}
    assert "frozen" not in caplog.text  # it was to end anyway
    assert (await operations(api))[-2:] == ["session.terminated", "audit.gap"]


async def test_what_can_not_be_frozen_is_killed_and_its_agent_goes_on(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = kills(monkeypatch)
    (container,) = api.engine.containers
    for _ in range(2):
        api.engine.fail_next("pause", EngineUnavailableError("can't"))
    await api.json("POST", PATH + "/abort")
    assert killed == [(container, True)]
    assert "audit.gap" not in await operations(api)


def kills(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Records which control groups are killed, and whether their first processes are spared.

    Not the kills that go before every removal.
    """
    killed: list[tuple[str, bool]] = []

    def kill_all(
        container_id: str,
        _first: FirstProcess | None,
        _host: HostPaths,
        *,
        spare_first: bool | None = None,
    ) -> int:
        if spare_first is not None:
            killed.append((container_id, spare_first))
        return 0

    monkeypatch.setattr("orchestrator.host.node.local_node.kill_all", kill_all)
    return killed


async def test_a_freeze_that_fails_by_anything_keeps_no_session_alive(
    api: Api, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = kills(monkeypatch)
    (container,) = api.engine.containers
    api.engine.fail_next("pause", RuntimeError("can't start new thread"))
    await api.json("POST", PATH + "/abort")
    assert killed == [(container, False)]
    assert api.engine.containers == {}


async def test_a_session_that_is_ending_is_not_resumed(api: Api, command: str) -> None:
    await api.json("POST", PATH + "/pause")
    session = api.plane.sessions.finder.find(ADMIN, "box")
    assert session.sandbox is not None
    freezing = asyncio.get_running_loop().create_task(asyncio.sleep(0, result=True))
    session.sandbox.freezing = freezing
    (container,) = api.engine.containers
    await api.problem(502, "sandbox_unavailable", "POST", PATH + "/resume")
    assert api.engine.containers[container].state is ContainerState.PAUSED


async def test_one_that_ends_twice_is_ended_once(api: Api, command: str) -> None:
    ways = [api.call("DELETE", PATH), api.call("POST", PATH + "/abort"), api.call("DELETE", PATH)]
    await asyncio.gather(*ways)
    assert (await operations(api)).count("session.terminated") == 1
    # For the first end, the agent ended the running commands.
    assert "audit.gap" not in await operations(api)


async def test_what_could_not_be_recorded_is_found_by_the_next_start(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    agents.plays["work"] = Play(holds=True)
    plane = await ControlPlane.open(settings, engine)
    made = {}
    for name in ("aborted", "paused", "lowered"):
        request = NewSession(id=name, permission_level="high")
        session, *_ = await plane.sessions.create(ADMIN, request)
        await plane.executions.start(ADMIN, session, ExecRequest(argv=["work"], background=True))
        made[name] = session
    with full(plane):
        await plane.sessions.abort(ADMIN, made["aborted"])
        await plane.sessions.pause(ADMIN, made["paused"])
        with pytest.raises(AuditUnavailableError):
            await plane.sessions.changes.set_level(ADMIN, made["lowered"], "low", {})
        await plane.close()
    plane = await reopened(settings, engine, agents)
    try:
        found = {name: plane.sessions.finder.find(ADMIN, name) for name in made}
        assert found["paused"].status is Status.PAUSED
        for name in ("aborted", "lowered"):
            termination = found[name].termination
            assert termination is not None
            assert termination.rationale_code is Rationale.CRASH
        await plane.sessions.close(ADMIN, found["paused"], purge=False)
        assert engine.containers == {}
    finally:
        await plane.close()


async def test_a_refused_lowering_thaws_no_session_that_is_paused_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.session(id="box", permission_level="high")
    session = api.plane.sessions.registry.get("box")
    assert session is not None
    checked, paused = asyncio.Event(), asyncio.Event()
    thaw, hold = api.engine.resume, api.plane.sessions._pauses._stopper.hold

    async def refuse(_session: Any, _level: Any) -> None:
        checked.set()
        await paused.wait()
        raise UnmetError("level low can not be enforced")

    async def slowly(container_id: str) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        await thaw(container_id)

    async def held(sandbox: Sandbox) -> None:
        await hold(sandbox)
        paused.set()

    monkeypatch.setattr(api.plane.engine, "resume", slowly)
    monkeypatch.setattr(api.plane.sessions._pauses._stopper, "hold", held)
    monkeypatch.setattr(api.plane.sessions._sandboxes, "check_level", refuse)
    lowering = asyncio.create_task(api.call("PUT", PATH + "/settings", json=LOWER))
    await checked.wait()
    shown = await api.json("POST", PATH + "/pause")
    assert (await lowering).status == 503
    assert shown["status"] == "paused"
    assert [each.state for each in api.engine.containers.values()] == [ContainerState.PAUSED]
