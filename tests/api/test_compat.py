"""Interfaces of other sandboxes: what is served, and to whom. Each has tests of its own besides."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api.app import create_app
from orchestrator.control_plane import ControlPlane
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.fake_agent import Play
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

ROOT = Path(__file__).parents[2]
VIEWER = "pdk_viewer-of-the-operators-sessions"
SLOW = "pdk_slow-key-of-the-tests"
REX_KEY, HANDS_KEY = "X-API-Key", "X-Session-API-Key"
REX, HANDS = "/compat/swerex", "/compat/openhands"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY)
        + entry("other", OTHER_KEY)
        + entry("dash", VIEWER, "viewer", 'owner = "operator"')
        + entry("slow", SLOW, more="requests_per_second = 0.01")
    )
    return settings.model_copy(update={"compat": ("swerex", "openhands")})


def paths(plane: ControlPlane) -> set[str]:
    router = create_app(plane).router
    return {route.resource.canonical for route in router.routes() if route.resource is not None}


async def test_only_what_is_named_is_served(plane: ControlPlane) -> None:
    assert any(path.startswith(REX) for path in paths(plane))
    for names in ((), ("swerex",), ("openhands",)):
        object.__setattr__(plane, "settings", plane.settings.model_copy(update={"compat": names}))
        served = {path.split("/")[2] for path in paths(plane) if path.startswith("/compat/")}
        assert served == set(names)


def test_nothing_is_imported_that_is_not_named() -> None:
    program = "import sys, api.app; print(*[n for n in sys.modules if n.startswith('api.compat.')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found = set(done.stdout.split())
    assert found
    assert not {name for name in found if name.count(".") > 2}
    assert "api.compat.endpoint" not in found


async def asked(
    api: Api, path: str, header: str, key: str | None, body: Any = None
) -> tuple[int, dict[str, Any]]:
    method = "GET" if body is None else "POST"
    headers = {} if key is None else {header: key}
    async with api.client.request(method, path, headers=headers, json=body) as response:
        found: dict[str, Any] = await response.json()
        return response.status, found


async def refusals(api: Api, session_id: str, key: str | None) -> tuple[int, int]:
    """The statuses of a request in each protocol."""
    rex, text = await asked(api, f"{REX}/{session_id}/execute", REX_KEY, key, {"command": "x"})
    assert "Traceback" not in str(text)
    path = f"{HANDS}/{session_id}/api/bash/start_bash_command"
    hands, text = await asked(api, path, HANDS_KEY, key, {"command": "x"})
    assert "Traceback" not in str(text)
    return rex, hands


async def test_who_may_use_a_session_may_use_it_so(api: Api) -> None:
    first = await api.session(id="first", permission_level="high", key=OPERATOR_KEY)
    second = await api.session(id="second", permission_level="high", key=OPERATOR_KEY)
    for key in (OPERATOR_KEY, ADMIN_KEY, first["handle"]):
        assert await refusals(api, "first", key) == (200, 200)
    for key in (None, "", "pdk_unknown", "pdh_unknown"):
        assert await refusals(api, "first", key) == (403, 401)
    # What exists for others is told to nobody.
    for key in (second["handle"], OTHER_KEY):
        assert await refusals(api, "first", key) == (403, 404)
        assert await refusals(api, "never", key) == (403, 404)
    assert await refusals(api, "first", VIEWER) == (511, 403)
    ran = (await api.json("GET", "/api/sessions/first/audit?operation=command.start"))["items"]
    actors = {event["actor"] for event in ran}
    assert actors == {"operator", "admin", "handle:first"}
    assert not (await api.json("GET", "/api/sessions/second/audit?operation=command.start"))[
        "items"
    ]


async def test_requests_are_on_record_under_their_own_names(api: Api) -> None:
    await api.session(id="box", permission_level="high", key=OPERATOR_KEY)
    await refusals(api, "box", OPERATOR_KEY)
    await api.json("POST", "/api/sessions/box/exec", json={"argv": ["true"]}, key=OPERATOR_KEY)
    page = await api.json("GET", "/api/sessions/box/audit")
    named = {
        (event["operation"], event["args"].get("asked_as"))
        for event in page["items"]
        if event["operation"] in ("session.create", "command.start", "command.exit")
    }
    assert named == {
        ("session.create", None),
        ("command.start", "swerex POST /execute"),
        ("command.start", "openhands POST /api/bash/start_bash_command"),
        ("command.start", None),
        # The agent tells of ends, which nobody asks for.
        ("command.exit", None),
    }


async def test_the_callers_own_credential_is_on_record_only(api: Api) -> None:
    made = await api.session(id="box", permission_level="high", key=OPERATOR_KEY)
    await refusals(api, "box", made["handle"])
    record = await (await api.call("GET", "/api/sessions/box/audit")).text()
    assert "handle:box" in record
    assert made["handle"] not in record


async def test_a_key_that_is_revoked_ends_its_requests(api: Api) -> None:
    key = (await api.json("POST", "/api/keys", status=201, json={"name": "ci"}))["key"]
    await api.session(id="box", permission_level="high", key=key)
    api.agent.plays["sleep"] = Play(holds=True)
    command = {"command": ["sleep", "100"]}
    ask = asyncio.ensure_future(asked(api, f"{REX}/box/execute", REX_KEY, key, command))
    await api.agent.asked("exec")
    assert (await api.call("DELETE", "/api/keys/ci")).status == 204
    with pytest.raises(aiohttp.ClientError):
        async with asyncio.timeout(WAIT_SECONDS):
            await ask
    session = api.plane.sessions.registry.get("box")
    assert session is not None
    await until(lambda: not session.running)
    assert (await refusals(api, "box", key)) == (403, 401)


async def test_requests_count_as_in_this_api(api: Api) -> None:
    await api.session(id="box", permission_level="high", key=SLOW)
    for path, header in (
        (f"{REX}/box/is_alive", "X-API-Key"),
        (f"{HANDS}/box/server_info", HANDS_KEY),
    ):
        async with api.client.get(path, headers={header: SLOW}) as response:
            assert response.status in (429, 511)
            assert int(response.headers["Retry-After"]) > 1
            assert "requests_per_second" in await response.text()
    # What stops something is not counted before: it is told that there is nothing to stop.
    path = f"{HANDS}/box/api/bash/bash_commands/none/stop"
    async with api.client.post(path, headers={HANDS_KEY: SLOW}) as response:
        assert response.status == 429
