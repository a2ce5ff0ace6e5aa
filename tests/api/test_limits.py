"""Quotas and rates of API keys, and that one key's flood leaves the others their turn."""

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from pydantic import SecretStr

from orchestrator.config import Settings
from orchestrator.keys import digest
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.fake_agent import Play
from tests.support.until import until

_MIB = 1024 * 1024


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> str:
    """Further fields of the operator's entry in the keys file."""
    return getattr(request, "param", "")


@pytest.fixture
def settings(settings: Settings, limits: str) -> Settings:
    assert settings.keys_file is not None
    entries = {"operator": (OPERATOR_KEY, limits), "other": (OTHER_KEY, "")}
    settings.keys_file.write_text(
        "".join(
            f'[[keys]]\nname = "{name}"\nrole = "operator"\nsha256 = "{digest(key)}"\n{more}\n'
            for name, (key, more) in entries.items()
        )
    )
    members = settings.model_dump(exclude={"admin_key"})
    return Settings(
        **{**members, "max_creating": 2, "key_max_creating": 2},
        admin_key=SecretStr(ADMIN_KEY),
    )


async def refused(api: Api, limit: str, method: str, path: str, **arguments: Any) -> None:
    arguments.setdefault("key", OPERATOR_KEY)
    response = await api.call(method, path, **arguments)
    body = await response.json(content_type=None)
    assert (response.status, body["code"], body["limit"]) == (429, "rate_limited", limit), body
    assert int(response.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("limits", ["max_sessions = 2"], indirect=True)
async def test_sessions_of_a_key(api: Api) -> None:
    sessions = [await api.session(key=OPERATOR_KEY) for _ in range(2)]
    await refused(api, "max_sessions", "POST", "/api/sessions", json={})
    await refused(api, "max_sessions", "PUT", "/api/sessions/third", json={})
    # What is there can be had again, and others have quotas of their own.
    existing = f"/api/sessions/{sessions[0]['id']}"
    await api.json("PUT", existing, key=OPERATOR_KEY, json={})
    await api.session(key=OTHER_KEY)
    await api.json("DELETE", existing, key=OPERATOR_KEY)
    await api.session(key=OPERATOR_KEY)
    await refused(api, "max_sessions", "POST", "/api/sessions", json={})


@pytest.mark.parametrize("limits", ["max_sessions = 2"], indirect=True)
async def test_sessions_that_are_being_created_count(api: Api) -> None:
    started = [api.engine.hang_next("create") for _ in range(2)]
    creating = [asyncio.create_task(api.session(key=OPERATOR_KEY)) for _ in range(2)]
    await until(lambda: api.engine.calls.count("create") == 2)
    usage = api.plane.sessions.registry.usage("operator")
    assert (usage.sessions, usage.cpus) == (2, 2.0)
    queued = asyncio.create_task(refused(api, "max_sessions", "POST", "/api/sessions", json={}))
    for event in started:
        event.set()
    await asyncio.gather(*creating, queued)


@pytest.mark.parametrize(
    ("limits", "name"),
    [("max_cpus = 1.5", "max_cpus"), (f"max_memory_bytes = {1500 * _MIB}", "max_memory_bytes")],
    indirect=["limits"],
)
async def test_sizes_of_a_keys_sessions(api: Api, name: str) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}/settings"
    await refused(api, name, "POST", "/api/sessions", json={})
    small = {"limits": {"cpus": 0.5, "memory_bytes": 400 * _MIB}}
    await api.session(key=OPERATOR_KEY, **small)
    high, low = ({"settings": {"permission_level": level}} for level in ("high", "low"))
    await refused(api, name, "PUT", path, json=high)
    shown = await api.json("GET", path, key=OPERATOR_KEY)
    assert shown["permission_level"] == "medium"
    await api.json("PUT", path, key=OPERATOR_KEY, json=low)
    # The admin has no quota, and may give another's session more.
    await api.json("PUT", path, key=ADMIN_KEY, json=high)
    await refused(api, name, "POST", "/api/sessions", json=small)


async def test_defaults_for_keys_without_limits(settings: Settings) -> None:
    assert settings.key_max_sessions is None
    assert settings.key_requests_per_second >= 500


@pytest.mark.parametrize("limits", ["requests_per_second = 0.01"], indirect=True)
async def test_requests_of_a_key_and_of_its_sessions_handles(api: Api) -> None:
    # 2 s of 0.01 requests each are less than one: one is the least.
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}"
    await refused(api, "requests_per_second", "GET", path)
    await refused(api, "requests_per_second", "GET", path, key=session["handle"])
    for key in (OTHER_KEY, ADMIN_KEY):
        await api.json("GET", "/api/sessions", key=key)
    await api.json("GET", "/healthz", key=OPERATOR_KEY)


async def test_a_greedy_key_does_not_keep_another_waiting(api: Api) -> None:
    releases = [api.engine.hang_next("create") for _ in range(51)]
    served: list[str] = []

    async def create(key: str, name: str) -> None:
        await api.session(key=key)
        served.append(name)

    turns = api.plane.sessions.shares.turns
    greedy = [asyncio.create_task(create(OPERATOR_KEY, "greedy")) for _ in range(30)]
    async with asyncio.timeout(20):
        await until(lambda: turns.waiting == 28)
        other = asyncio.create_task(create(OTHER_KEY, "other"))
        await until(lambda: turns.waiting == 29)
        assert turns.working == 2
        # One of the flood is done; the next but one to start is the other key's.
        for release in releases[:4]:
            release.set()
        await other
        assert served.count("greedy") <= 4
        for release in releases:
            release.set()
        await asyncio.gather(*greedy)
    assert (turns.waiting, turns.working) == (0, 0)


async def test_at_most_so_many_creations_wait(api: Api) -> None:
    releases = [api.engine.hang_next("create") for _ in range(2)]
    turns = api.plane.sessions.shares.turns
    headers = {"Authorization": f"Bearer {OPERATOR_KEY}"}
    async with asyncio.timeout(20), ClientSession(connector=TCPConnector(limit=0)) as flood:
        url = api.server.make_url("/api/sessions")

        async def create() -> None:
            async with flood.post(url, json={}, headers=headers):
                pass

        clients = [asyncio.create_task(create()) for _ in range(102)]
        await until(lambda: turns.waiting == 100)
        await refused(api, "waiting_creations", "POST", "/api/sessions", json={})
        # Clients that leave are not served: nothing is created for them.
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await until(lambda: turns.waiting == 0)
        for release in releases:
            release.set()
        await until(lambda: turns.working == 0)
    assert api.engine.calls.count("create") == 2


async def test_a_flood_of_commands_is_its_keys_own(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    api.agent.plays["cat"] = Play(holds=True)
    path = f"/api/sessions/{session['id']}/exec"
    flood = [
        asyncio.create_task(api.call("POST", path, json={"command": "cat"}, key=OPERATOR_KEY))
        for _ in range(60)
    ]
    async with asyncio.timeout(20):
        other = await api.session(key=OTHER_KEY)
        where = f"/api/sessions/{other['id']}/exec"
        answer = await api.json("POST", where, key=OTHER_KEY, json={"command": "ls"})
        assert answer["exit_code"] == 0
        await api.json("POST", f"/api/sessions/{session['id']}/interrupt", json={})
        done = {(await client).status for client in flood}
    assert done <= {200, 409}
