"""Bounds of a key's sessions: highest level, images, tools and time-outs, and expiry."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError
from pydantic import SecretStr

from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, IMAGE, OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_inspection import ended
from tests.support.fake_agent import Agents, Play
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.slow

TOOLS = Path(__file__).parents[1] / "fixtures" / "governed"
MINE: dict[str, Any] = {"key": OPERATOR_KEY}


@pytest.fixture
def bounds(request: pytest.FixtureRequest) -> str:
    """Further fields of the operator's entry in the keys file."""
    return getattr(request, "param", "")


@pytest.fixture
def settings(settings: Settings, bounds: str) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY, more=bounds) + entry("other", OTHER_KEY)
    )
    members = settings.model_dump(exclude={"admin_key"})
    return Settings(
        **{**members, "tools_dir": TOOLS, "images": ("other/image:1", "third:1")},
        admin_key=SecretStr(ADMIN_KEY),
    )


@pytest.fixture
def engine(agents: Agents) -> FakeEngine:
    """An engine with two images."""
    image = Image("sha256:1", {LABEL_IMAGE: "sandbox"})
    images = {IMAGE: image, "other/image:1": image}
    return FakeEngine(images=images, on_start=agents.start, on_stop=agents.stop)


async def denied(api: Api, rule: str, method: str, path: str, **arguments: Any) -> None:
    body = await api.problem(403, "permission_denied", method, path, **MINE, **arguments)
    assert body["rule"] == rule


async def change(api: Api, bounds: str) -> None:
    """Replaces the bounds in the operator's entry."""
    path = api.plane.settings.keys_path
    path.write_text(entry("operator", OPERATOR_KEY, more=bounds) + entry("other", OTHER_KEY))
    await api.plane.reload.look()


@pytest.mark.parametrize("bounds", ['max_level = "low"'], indirect=True)
async def test_no_session_is_higher_than_its_keys_level(api: Api) -> None:
    for level in ("medium", "high"):
        body = {"permission_level": level}
        await denied(api, "key-max-level", "POST", "/api/sessions", json=body)
        await denied(api, "key-max-level", "PUT", "/api/sessions/box", json=body)
    assert (await api.json("GET", "/api/sessions", **MINE))["items"] == []
    listed = (await api.json("GET", "/api/policies", **MINE))["items"]
    refused = {each["name"]: (each["allowed"], each["rule"]) for each in listed}
    above = (False, "key-max-level")
    assert refused == {"low": (True, None), "medium": above, "high": above}
    # A request without a level gets a level that the key may have.
    session = await api.session(**MINE, id="box")
    assert session["permission_level"] == "low"
    path = "/api/sessions/box"
    for level in ("medium", "high"):
        wanted = {"settings": {"permission_level": level}}
        await denied(api, "key-max-level", "PUT", f"{path}/settings", json=wanted)
        run = {"command": "ls", "permission_level": level}
        await denied(api, "key-max-level", "POST", f"{path}/exec", json=run)
    shown = await api.json("GET", path)
    assert shown["permission_level"] == "low"
    refusals = [(each["operation"], each["rule"]) for each in shown["denials"]]
    assert refusals == [("session.settings", "key-max-level")] * 4
    # Other keys have no such bound, and an admin may raise this key's session.
    await api.session(key=OTHER_KEY, permission_level="high")
    high = {"settings": {"permission_level": "high"}}
    await api.json("PUT", f"{path}/settings", json=high)
    # The owner can't raise the session, only lower it, and can't go back up.
    await denied(api, "key-max-level", "PUT", f"{path}/settings", json=high)
    medium, low = ({"settings": {"permission_level": level}} for level in ("medium", "low"))
    await api.json("PUT", f"{path}/settings", json=low, **MINE)
    await denied(api, "key-max-level", "PUT", f"{path}/settings", json=medium)


@pytest.mark.parametrize("bounds", ['max_level = "gone"'], indirect=True)
async def test_a_level_that_is_none_allows_none(api: Api) -> None:
    await denied(api, "key-max-level", "POST", "/api/sessions", json={"permission_level": "low"})
    await denied(api, "key-max-level", "POST", "/api/sessions", json={})


@pytest.mark.parametrize("bounds", ['images = ["other/image:1"]'], indirect=True)
async def test_a_key_uses_its_own_images(api: Api) -> None:
    for image in (IMAGE, "third:1"):
        await denied(api, "key-images", "POST", "/api/sessions", json={"image": image})
    assert (await api.session(**MINE))["sandbox"]["image"] == "other/image:1"
    named = await api.session(**MINE, image="other/image:1")
    assert named["sandbox"]["image"] == "other/image:1"
    assert (await api.session(key=OTHER_KEY))["sandbox"]["image"] == IMAGE


@pytest.mark.parametrize("bounds", ['images = ["not/listed:1"]'], indirect=True)
async def test_a_keys_images_add_none_to_the_operators_list(api: Api) -> None:
    await api.problem(400, "validation_error", "POST", "/api/sessions", json={}, **MINE)


@pytest.mark.parametrize("bounds", ['tools = ["other"]'], indirect=True)
async def test_a_key_opens_its_own_tools(api: Api) -> None:
    body = {"tools": ["fake", "other"]}
    await denied(api, "key-tools", "POST", "/api/sessions", json=body)
    session = await api.session(**MINE)
    assert session["tools"] == ["other"]
    path = f"/api/sessions/{session['id']}"
    for key in (OPERATOR_KEY, session["handle"]):
        asked = {"json": {"tool": "fake"}, "key": key}
        refused = await api.problem(403, "permission_denied", "POST", f"{path}/ptys", **asked)
        assert refused["rule"] == "key-tools"
        listed = (await api.json("GET", f"{path}/tools", key=key))["items"]
        assert {item["rule"] for item in listed if item["tool"] == "fake"} == {"key-tools"}
    assert api.agent.terminals.all == {}
    events = (await api.json("GET", f"{path}/audit?operation=pty.open"))["items"]
    assert [(event["decision"], event["rule"]) for event in events] == [("deny", "key-tools")] * 2


async def test_a_change_of_the_entry_holds_for_sessions_that_are_there(api: Api) -> None:
    session = await api.session(**MINE, permission_level="high")
    path = f"/api/sessions/{session['id']}"
    open_fake = {"json": {"tool": "fake"}, "key": session["handle"]}
    await api.json("POST", f"{path}/ptys", status=201, **open_fake)
    await change(api, 'tools = []\nmax_level = "medium"')
    body = await api.problem(403, "permission_denied", "POST", f"{path}/ptys", **open_fake)
    assert body["rule"] == "key-tools"
    wanted = {"settings": {"permission_level": "high"}}
    await denied(api, "key-max-level", "PUT", f"{path}/settings", json=wanted)


@pytest.mark.parametrize("bounds", ['tools = ["other"]\nmax_audit_bytes = 1'], indirect=True)
async def test_a_removed_key_bounds_the_sessions_that_it_leaves(api: Api) -> None:
    """The last version of its entry still holds for their handles."""
    await change(api, 'tools = ["other"]')
    session = await api.session(**MINE, permission_level="high")
    path, handle = f"/api/sessions/{session['id']}", session["handle"]
    await change(api, 'tools = ["other"]\nmax_audit_bytes = 1')
    api.plane.settings.keys_path.write_text(entry("other", OTHER_KEY))
    await api.plane.reload.look()
    assert (await api.call("GET", path, key=OPERATOR_KEY)).status == 401
    listed = (await api.json("GET", f"{path}/tools", key=handle))["items"]
    assert {item["rule"] for item in listed if item["tool"] == "fake"} == {"key-tools"}
    work = {"json": {"argv": ["ls"]}, "key": handle}
    problem = await api.problem(429, "rate_limited", "POST", f"{path}/exec", **work)
    assert problem["limit"] == "max_audit_bytes"
    assert "exec" not in [method for method, _ in api.agent.requests]
    assert (await api.json("POST", f"{path}/abort"))["status"] == "aborted"


# Time-outs


TIMES = "max_idle_timeout = 60\nmax_wall_timeout = 600"
SETTINGS = "/api/sessions/box/settings"


async def too_long(api: Api, field: str, method: str, path: str, **members: Any) -> None:
    problem = await api.problem(400, "validation_error", method, path, json=members, **MINE)
    assert problem["field"] == field
    bound = "600 seconds" if field.endswith("wall_timeout") else "60 seconds"
    assert f"at most {bound}, the max_" in problem["detail"], problem


@pytest.mark.parametrize("bounds", [TIMES], indirect=True)
async def test_no_session_lives_longer_than_its_keys_time_outs(api: Api) -> None:
    for name, seconds in (("idle_timeout", 61), ("wall_timeout", 601)):
        await too_long(api, name, "POST", "/api/sessions", **{name: seconds})
        await too_long(api, name, "PUT", "/api/sessions/box", **{name: seconds})
    assert (await api.json("GET", "/api/sessions", **MINE))["items"] == []
    # One that names none has the key's, where the usual ones are longer.
    await api.session(**MINE, id="box")
    before = await api.json("GET", SETTINGS, **MINE)
    assert (before["idle_timeout"], before["wall_timeout"]) == (60, 600)
    for wanted, field in (
        ({"idle_timeout": 61}, "settings.idle_timeout"),
        ({"wall_timeout": 601}, "settings.wall_timeout"),
        ({"idle_timeout": 30, "wall_timeout": 601}, "settings.wall_timeout"),
        ({"keep_alive": 61}, "settings.keep_alive"),
    ):
        await too_long(api, field, "PUT", SETTINGS, settings=wanted)
    assert await api.json("GET", SETTINGS, **MINE) == before
    shorter = {"settings": {"idle_timeout": 30, "wall_timeout": 300}}
    await api.json("PUT", SETTINGS, json=shorter, **MINE)
    longest = {"settings": {"idle_timeout": 60, "wall_timeout": 600}}
    after = await api.json("PUT", SETTINGS, json=longest, **MINE)
    assert after["deadlines"]["wall_at"] == before["deadlines"]["wall_at"]
    other = await api.session(key=OTHER_KEY, idle_timeout=61, wall_timeout=601)
    assert other["id"] != "box"


@pytest.mark.parametrize("bounds", [TIMES], indirect=True)
async def test_what_an_admin_lengthened_its_key_can_only_shorten(api: Api) -> None:
    await api.session(**MINE, id="box")
    long = {"settings": {"idle_timeout": 900, "wall_timeout": 9000}}
    await api.json("PUT", SETTINGS, json=long)
    longer = {"idle_timeout": 901}
    await too_long(api, "settings.idle_timeout", "PUT", SETTINGS, settings=longer)
    await too_long(api, "settings.keep_alive", "PUT", SETTINGS, settings={"keep_alive": 901})
    shorter = {"settings": {"wall_timeout": 500}}
    after = await api.json("PUT", SETTINGS, json=shorter, **MINE)
    assert (after["idle_timeout"], after["wall_timeout"]) == (900, 500)


@pytest.mark.parametrize("bounds", [TIMES], indirect=True)
async def test_children_have_the_time_outs_of_their_parents_key(api: Api) -> None:
    """Whoever spawns them, and however long an admin has made the parent's."""
    await api.session(**MINE, id="box")
    await api.json("PUT", SETTINGS, json={"settings": {"idle_timeout": 900}})
    for key in (OPERATOR_KEY, ADMIN_KEY):
        longer = {"json": {"idle_timeout": 61}, "key": key}
        path = "/api/sessions/box/spawn"
        problem = await api.problem(400, "validation_error", "POST", path, **longer)
        assert "the max_idle_timeout of this key" in problem["detail"]
        child = await api.json("POST", path, status=201, json={}, key=key)
        times = f"/api/sessions/{child['id']}/settings"
        shown = await api.json("GET", times, **MINE)
        assert (shown["idle_timeout"], shown["wall_timeout"]) == (60, 600)
        wanted = {"idle_timeout": 61}
        await too_long(api, "settings.idle_timeout", "PUT", times, settings=wanted)


# Expiry


async def test_a_key_ends_when_it_says_and_its_streams_with_it(api: Api) -> None:
    session = await api.session(**MINE)
    path = f"/api/sessions/{session['id']}"
    followed = [
        await api.call("GET", f"{path}/events", **MINE),
        await api.call("GET", "/api/events", **MINE),
    ]
    admins = await api.call("GET", f"{path}/events")
    moment = datetime.now(UTC) + timedelta(seconds=2)
    await change(api, f"expires_at = {moment.isoformat()}")
    await api.json("GET", path, **MINE)
    async with asyncio.timeout(WAIT_SECONDS):
        for stream in followed:
            await ended(stream)
    assert datetime.now(UTC) >= moment
    body = await api.problem(401, "unauthorized", "GET", path, **MINE)
    assert "has expired" in body["detail"]
    # The key's session goes on, and so do others' streams.
    await api.json("GET", path, key=session["handle"])
    assert (await admins.content.readline()).startswith(b"id: 1")
    admins.close()
    # A later expiry makes the key valid again.
    await change(api, "expires_at = 2999-01-01T00:00:00Z")
    await api.json("GET", path, **MINE)


async def test_what_is_being_answered_ends_with_the_key(api: Api) -> None:
    """This includes plain requests: their answer would come after the key's expiry."""
    session = await api.session(**MINE)
    api.agent.plays["cat"] = Play(holds=True)
    path = f"/api/sessions/{session['id']}/exec"
    waiting = asyncio.create_task(api.call("POST", path, json={"command": "cat"}, **MINE))
    await api.agent.asked("exec")
    await change(api, "expires_at = 2020-01-01T00:00:00Z")
    with pytest.raises(ClientConnectionError):
        async with asyncio.timeout(WAIT_SECONDS):
            await waiting
    # The command has lost its caller, so it ends.
    assert (await api.agent.asked("cancel"))["reason"] == "client_gone"
