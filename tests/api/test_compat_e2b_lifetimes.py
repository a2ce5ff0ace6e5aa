"""How long sandboxes of E2B's clients live, and how they are found again, over plain HTTP."""

from datetime import timedelta

import pytest

from orchestrator.settings.settings import Settings
from tests.api.conftest import OTHER_KEY, Api
from tests.support.e2b import SANDBOXES, made, refused, seconds_left, told


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("e2b",)})


async def test_older_sdks_append_the_clients_id(api: Api) -> None:
    body = {"templateID": "base"}
    sandbox = await told(api, "POST", "/sandboxes", status=201, json=body)
    path = f"/sandboxes/{sandbox['sandboxID']}-{sandbox['clientID']}"
    assert (await told(api, "GET", path))["sandboxID"] == sandbox["sandboxID"]
    # They send the handle besides the key.
    both = {"X-Access-Token": sandbox["envdAccessToken"]}
    await told(*(api, "POST", path + "/timeout"), status=204, json={"timeout": 50}, headers=both)
    await told(api, "POST", path + "/pause", status=204, json={}, headers=both)
    await told(api, "POST", path + "/resume", status=201, json={"timeout": 50})
    assert [each["sandboxID"] for each in await told(api, "GET", "/sandboxes")] == [
        sandbox["sandboxID"]
    ]
    await told(api, "DELETE", path, status=204)
    assert not api.engine.containers


async def test_a_repeated_request_makes_one_sandbox(api: Api) -> None:
    headers = {"Idempotency-Key": "order-66"}
    first = await told(
        api, "POST", SANDBOXES, status=201, json={"templateID": "base"}, headers=headers
    )
    again = await told(
        api, "POST", SANDBOXES, status=201, json={"templateID": "base"}, headers=headers
    )
    assert again["sandboxID"] == first["sandboxID"]
    handle = first["envdAccessToken"]
    assert (handle[:2], again["envdAccessToken"], again["trafficAccessToken"]) == (
        *("H-", handle, handle),
    )
    theirs = await told(
        *(api, "POST", SANDBOXES),
        status=201,
        json={"templateID": "base"},
        headers=headers,
        key=OTHER_KEY,
    )
    assert theirs["sandboxID"] != first["sandboxID"]
    assert len(api.engine.containers) == 2
    await refused(
        *(api, 400, "POST", SANDBOXES),
        json={"templateID": "base"},
        headers={"Idempotency-Key": "x" * 256},
    )


async def test_time_is_set_from_now(api: Api) -> None:
    sandbox = await made(api, timeout=100)
    path = f"/sandboxes/{sandbox['sandboxID']}"
    for seconds in (3600, 60):
        await told(api, "POST", path + "/timeout", status=204, json={"timeout": seconds})
        assert seconds - 30 < seconds_left(await told(api, "GET", path)) <= seconds + 1
    # A connection lengthens it, and never shortens it.
    for seconds, left in ((600, 600), (30, 600)):
        body = {"timeout": seconds}
        await told(api, "POST", "/v2" + path + "/connect", json=body)
        assert left - 30 < seconds_left(await told(api, "GET", path)) <= left + 1
    await told(api, "POST", path + "/refreshes", status=204, json={"duration": 900})
    assert seconds_left(await told(api, "GET", path)) > 850
    for bad in (-1, "9", None, 1.5, 10**10, True):
        await refused(api, 400, "POST", path + "/timeout", json={"timeout": bad})
    session = api.plane.sessions.registry.get(sandbox["sandboxID"])
    assert session is not None
    session.budget.started_at -= timedelta(seconds=9)
    await told(api, "POST", path + "/timeout", status=204, json={"timeout": 0})
    await refused(api, 404, "GET", path)
    await refused(api, 404, "POST", path + "/timeout", json={"timeout": 9})


async def test_pause_and_connect(api: Api) -> None:
    sandbox = await made(api, timeout=100)
    path = f"/sandboxes/{sandbox['sandboxID']}"
    await told(api, "POST", path + "/pause", status=204, json={})
    shown = await told(api, "GET", path)
    assert shown["state"] == "paused"
    assert seconds_left(shown) > 24 * 3600  # its time is no longer used up
    await refused(api, 409, "POST", path + "/pause", json={})
    again = await told(api, "POST", "/v2" + path + "/connect", status=201, json={"timeout": 200})
    assert again["sandboxID"] == sandbox["sandboxID"]
    shown = await told(api, "GET", path)
    assert (shown["state"], 150 < seconds_left(shown) <= 201) == ("running", True)
    await refused(api, 409, "POST", path + "/resume", json={"timeout": 5})
    await told(api, "POST", path + "/pause", status=204)
    await told(api, "POST", path + "/resume", status=201, json={"timeout": 50})
    assert seconds_left(await told(api, "GET", path)) <= 51


async def test_a_sandbox_that_pauses_is_suspended_and_comes_back(api: Api) -> None:
    sandbox = await made(api, timeout=100, autoPause=True, autoResume={"enabled": True})
    path = f"/sandboxes/{sandbox['sandboxID']}"
    shown = await told(api, "GET", path)
    assert shown["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
    session = api.plane.sessions.registry.get(sandbox["sandboxID"])
    assert session is not None
    assert session.terms.wall_timeout is None
    assert await api.plane.sessions.suspensions.suspend(session, "idle")
    assert (await told(api, "GET", path))["state"] == "paused"
    await refused(api, 409, "POST", path + "/pause")
    await told(api, "POST", path + "/connect", status=201, json={"timeout": 300})
    shown = await told(api, "GET", path)
    assert (shown["state"], seconds_left(shown) > 250) == ("running", True)
