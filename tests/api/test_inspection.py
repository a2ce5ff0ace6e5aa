"""The content of an inspection, and what ends with a credential."""

import asyncio
import errno
import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from api.app import create_app
from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.base import Container
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node.base import Resources
from orchestrator.host.node.control_groups import find_groups, this_host
from orchestrator.host.node.kernel import check_prompts
from orchestrator.host.node.processes import Earlier, Measured, Process, Usage
from orchestrator.rules.access.admin_key import rotate_admin_key
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.access.keys_file import add_key, remove_key
from orchestrator.settings.settings import Settings
from paddock.contract.inspection import InspectedSession
from sandbox_agent.decide.redaction import MARK
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

MEASURED = Measured(
    [Process(1, 4000, 3999, "python3", ["python3"], "sleeping", 0.5, 0.0, 9000)],
    Usage(1.5, 2.5, 9000, 3),
)


async def ended(response: ClientResponse) -> None:
    """Reads a stream to its end; the stream may be cut off."""
    with suppress(ClientError):
        await response.read()


async def test_processes_use_commands_and_denials(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "orchestrator.host.node.local_node.measure", lambda *_: (MEASURED, Earlier())
    )
    created = await api.session(permission_level="low")
    path = f"/api/sessions/{created['id']}"
    for number in range(12):
        body = {"command": f"curl {number}"}
        await api.problem(403, "permission_denied", "POST", path + "/exec", json=body)
    api.engine.calls.clear()
    shown = await api.json("GET", path)
    assert api.engine.calls == []
    assert shown["processes"][0]["argv"] == ["python3"]
    assert shown["usage"] == {
        "cpu_seconds": 1.5,
        "cpu_percent": 2.5,
        "memory_bytes": 9000,
        "pids": 3,
    }
    assert set(shown["streams"].values()) == {0}
    refused = shown["denials"]
    words = [denial["args"]["argv"][-1].split()[-1] for denial in refused]
    assert words == [str(number) for number in range(11, 1, -1)]
    assert refused[0]["operation"] == "command.start"
    assert refused[0]["rule"]
    InspectedSession.model_validate(shown)

    ended = await api.json("DELETE", path)
    assert "processes" not in ended
    shown = await api.json("GET", path)
    assert (shown["processes"], shown["usage"]) == (None, None)
    assert len(shown["denials"]) == 10
    InspectedSession.model_validate(shown)


@pytest.mark.parametrize("secret", ["sleeping", "cpu_percent", "memory_bytes"])
async def test_a_secret_that_is_a_word_of_the_api_hides_nothing_else(
    api: Api, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    process = Process(1, 4000, 3999, secret, ["sh", f"-c {secret}"], "sleeping", 0.5, 0.0, 9000)
    measured = Measured([process], MEASURED.usage)
    monkeypatch.setattr(
        "orchestrator.host.node.local_node.measure", lambda *_: (measured, Earlier())
    )
    created = await api.session(permission_level="high")
    path, key = f"/api/sessions/{created['id']}", created["handle"]
    body = {"argv": ["ls"], "secrets": {"SECRET_X": secret}}
    await api.json("POST", path + "/exec", json=body, key=key)
    (shown,) = (await api.json("GET", path))["processes"]
    assert (shown["name"], shown["argv"]) == (MARK, ["sh", f"-c {MARK}"])
    assert (shown["state"], shown["memory_bytes"]) == ("sleeping", 9000)


async def test_the_latest_commands(api: Api) -> None:
    created = await api.session(permission_level="low")
    path = f"/api/sessions/{created['id']}"
    for number in range(12):
        await api.json("POST", path + "/exec", json={"argv": ["ls", str(number)]})
    shown = await api.json("GET", path)
    assert [command["argv"][1] for command in shown["commands"]] == [
        str(number) for number in range(2, 12)
    ]
    assert shown["activity"] == "idle"
    (listed,) = (await api.json("GET", "/api/sessions"))["items"]
    assert listed["commands"] == []


async def test_what_the_host_does_not_show_is_null(api: Api) -> None:
    created = await api.session()
    assert find_groups(api.engine.calls[0], None, this_host()) is None
    shown = await api.json("GET", f"/api/sessions/{created['id']}")
    assert (shown["processes"], shown["usage"]) == (None, None)
    assert shown["sandbox"]["state"] == "running"


async def test_the_engine_is_not_asked(api: Api) -> None:
    """The limits are known from the start of the sandbox."""
    created = await api.session()
    path = f"/api/sessions/{created['id']}"
    api.engine.calls.clear()
    shown = await api.json("GET", path)
    assert shown["sandbox"]["state"] == "running"
    limits = {name: shown["limits"][name] for name in ("cpus", "memory_bytes", "pids")}
    assert shown["sandbox"]["limits"] == limits
    assert api.engine.calls == []
    await api.json("POST", path + "/pause")
    api.engine.calls.clear()
    assert (await api.json("GET", path))["sandbox"]["state"] == "paused"
    assert api.engine.calls == []


async def test_followers_are_counted(api: Api) -> None:
    created = await api.session()
    path = f"/api/sessions/{created['id']}"
    response = await api.call("GET", path + "/events")
    await response.content.readline()
    assert (await api.json("GET", path))["streams"]["events"] == 1
    response.close()


@pytest.fixture
def no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle streams do not check their caller's credential by themselves."""
    monkeypatch.setattr("api.operations.events.HEARTBEAT_SECONDS", 600)
    monkeypatch.setattr("api.operations.output.HEARTBEAT_SECONDS", 600)


@pytest.mark.usefixtures("no_heartbeats")
async def test_a_removed_key_ends_its_streams_at_once(api: Api) -> None:
    keys = api.plane.settings.keys_path
    secret = add_key(keys, Principal("passing", Role.OPERATOR))
    await api.plane.reload.look()
    created = await api.session(key=secret)
    path = f"/api/sessions/{created['id']}"
    mine = await api.call("GET", path + "/events", key=secret)
    all_of_mine = await api.call("GET", "/api/events", key=secret)
    admins = await api.call("GET", path + "/events")
    remove_key(keys, "passing")
    async with asyncio.timeout(WAIT_SECONDS):
        await ended(mine)
        await ended(all_of_mine)
    assert (await api.json("GET", path))["streams"]["events"] == 1
    await api.problem(401, "unauthorized", "GET", path, key=secret)
    # The key's handle is still valid, and other keys' streams go on.
    assert (await api.call("GET", path, key=created["handle"])).status == 200
    assert (await admins.content.readline()).startswith(b"id: 1")
    admins.close()


@pytest.mark.usefixtures("no_heartbeats")
async def test_a_replaced_admin_key_ends_its_streams_at_once(
    settings: Settings, engine: FakeEngine
) -> None:
    members = settings.model_dump(exclude={"admin_key"})
    plane = await ControlPlane.open(Settings(**members), engine)
    try:
        path = settings.state_dir / "admin.key"
        first = path.read_text().strip()
        async with TestClient(TestServer(create_app(plane))) as client:
            old = {"Authorization": f"Bearer {first}"}
            followed = await client.get("/api/events", headers=old)
            assert followed.status == 200
            second = rotate_admin_key(path)
            async with asyncio.timeout(WAIT_SECONDS):
                await ended(followed)
            assert (await client.get("/api/sessions", headers=old)).status == 401
            new = {"Authorization": f"Bearer {second}"}
            assert (await client.get("/api/sessions", headers=new)).status == 200
    finally:
        await plane.close()


@pytest.mark.usefixtures("no_heartbeats")
async def test_a_rotated_handle_ends_its_streams_at_once(api: Api) -> None:
    created = await api.session()
    path = f"/api/sessions/{created['id']}"
    followed = await api.call("GET", path + "/events", key=created["handle"])
    await api.json("POST", path + "/handle")
    async with asyncio.timeout(WAIT_SECONDS):
        await ended(followed)


@pytest.mark.usefixtures("no_heartbeats")
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
async def test_a_void_credential_ends_the_commands_that_wait_for_it(api: Api, accept: str) -> None:
    api.agents.plays["make"] = Play(b"begun", holds=True)
    keys = api.plane.settings.keys_path
    secret = add_key(keys, Principal("passing", Role.OPERATOR))
    await api.plane.reload.look()
    first = await api.session(key=secret, permission_level="high")
    await _voided(api, first["id"], secret, accept, lambda: remove_key(keys, "passing"))
    second = await api.session(permission_level="high")
    path = f"/api/sessions/{second['id']}/handle"
    await _voided(api, second["id"], second["handle"], accept, lambda: api.json("POST", path))


async def _voided(
    api: Api, session_id: str, key: str, accept: str, void: Callable[[], Awaitable[Any] | None]
) -> None:
    """Starts a command with that key; `void` revokes the key, which ends the command unanswered."""
    path = f"/api/sessions/{session_id}/exec"
    headers = {"Accept": accept, "Authorization": f"Bearer {key}"}
    answer = asyncio.create_task(
        api.client.request("POST", path, headers=headers, json={"argv": ["make"]})
    )
    agent = api.agent
    command = (await agent.asked("exec"))["command_id"]
    voiding = void()
    if voiding is not None:
        await voiding
    async with asyncio.timeout(WAIT_SECONDS):
        with suppress(ClientError):
            await (await answer).read()
        cancelled = await agent.asked("cancel")
    assert (cancelled["command_id"], cancelled["reason"]) == (command, "client_gone")


def _append(api: Api, text: str) -> tuple[Path, str]:
    """Appends to the keys file; returns its path and its earlier text."""
    path = api.plane.settings.keys_path
    before = path.read_text()
    _write(path, before + text)
    return path, before


def _write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_a_broken_edit_shows_until_it_is_mended(api: Api) -> None:
    api.plane.ready.fresh_seconds = 0
    keys, before = _append(api, '[[keys]]\nname = "secret-name"\n')
    await api.plane.reload.look()
    ready = await api.json("GET", "/readyz", key=None)
    check = ready["checks"]["policy files"]
    assert (check["ok"], check["status"]) == (True, "warning")
    assert "keys.toml" in check["detail"]
    assert str(keys.parent) not in str(ready)
    assert "secret-name" not in str(ready)
    assert (await api.call("GET", "/api/sessions", key=ADMIN_KEY)).status == 200
    _write(keys, before)
    await api.plane.reload.look()
    ready = await api.json("GET", "/readyz", key=None)
    assert ready["checks"]["policy files"]["status"] == "ok"


async def test_readiness_is_asked_for_once_in_a_while(api: Api) -> None:
    api.engine.calls.clear()
    answers = await asyncio.gather(*(api.json("GET", "/readyz", key=None) for _ in range(8)))
    assert all(answer["status"] == "ready" for answer in answers)
    assert sorted(api.engine.calls) == ["image", "info"]


async def test_a_follower_of_the_engine_that_fails_is_started_again_and_told_of(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash that the follower could not process is found by the next full look."""
    api.plane.ready.fresh_seconds = 0
    sessions, failures = [await api.session() for _ in range(3)], iter(range(3))
    crashed = api.plane.sessions.crashed

    async def failing(container: Container) -> None:
        if next(failures, None) is not None:
            raise ZeroDivisionError("nobody thought of it")
        await crashed(container)

    monkeypatch.setattr(api.plane.sessions, "crashed", failing)
    for container_id in list(api.engine.containers):
        await api.engine.die(container_id)
    for session in sessions:
        await until(lambda: not api.plane.sessions.registry.live)
        found = await api.json("GET", f"/api/sessions/{session['id']}")
        assert found["termination"]["rationale_code"] == "crash"
    check = (await api.json("GET", "/readyz", key=None))["checks"]["tasks"]
    assert (check["status"], check["detail"]) == (
        "warning",
        "started again after a failure: engine-events",
    )
    text = await (await api.call("GET", "/metrics")).text()
    found_restarts = re.search(r'paddock_task_restarts_total{task="engine-events"} (\d)', text)
    assert found_restarts is not None
    assert int(found_restarts[1]) >= 1


async def test_prompts_that_can_not_be_told_from_sleep_are_advice(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "orchestrator.operate.checks.readiness.check_prompts", lambda: check_prompts(tmp_path)
    )
    api.plane.ready.fresh_seconds = 0
    ready = await api.json("GET", "/readyz", key=None)
    check = ready["checks"]["prompts of tools"]
    assert (ready["status"], check["ok"], check["status"]) == ("ready", True, "warning")


async def test_a_host_that_does_not_tell_what_it_has_left_takes_no_session(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests wait for a thread, never for a blocked event loop."""
    monkeypatch.setattr("orchestrator.host.node.local_node._RESOURCE_SECONDS", 0.05)
    released = threading.Event()

    def hang(_: Path) -> Resources:
        released.wait()
        return Resources(0, 0)

    monkeypatch.setattr("orchestrator.host.node.local_node.resources", hang)
    api.plane.ready.fresh_seconds = 0
    refused = await api.problem(503, "capacity_exhausted", "POST", "/api/sessions", json={})
    assert refused["retry_after"] > 0
    assert api.engine.containers == {}
    ready = await api.json("GET", "/readyz", key=None, status=503)
    assert ready["checks"]["disk"]["status"] == "failure"
    released.set()


async def test_a_failing_disk_refuses_new_sessions(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> Resources:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("orchestrator.host.node.local_node.resources", fail)
    await api.problem(503, "capacity_exhausted", "POST", "/api/sessions", json={})
    assert api.engine.containers == {}
