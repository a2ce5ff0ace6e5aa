"""Quotas and rates of API keys; one key's flood does not starve others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from pydantic import SecretStr

from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from orchestrator.work.approvals.approvals import Line
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cli import run_beside
from tests.support.fake_agent import Play
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

pytestmark = pytest.mark.slow

_MIB = 1024 * 1024


ADMIN = Principal("admin", Role.ADMIN)
TOOLS = Path(__file__).parents[1] / "fixtures" / "governed"


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> str:
    """Further fields of the operator's entry in the keys file."""
    return getattr(request, "param", "")


@pytest.fixture
def settings(settings: Settings, limits: str) -> Settings:
    assert settings.keys_file is not None
    entries = {"operator": (OPERATOR_KEY, limits), "other": (OTHER_KEY, "")}
    settings.keys_file.write_text(
        "".join(entry(name, key, more=more) for name, (key, more) in entries.items())
    )
    members = settings.model_dump(exclude={"admin_key"})
    return Settings(
        **{**members, "max_creating": 2, "key_max_creating": 2, "tools_dir": TOOLS},
        admin_key=SecretStr(ADMIN_KEY),
    )


async def refused(api: Api, limit: str, method: str, path: str, **arguments: Any) -> None:
    arguments.setdefault("key", OPERATOR_KEY)
    response = await api.call(method, path, **arguments)
    body = await response.json(content_type=None)
    assert (response.status, body["code"], body["limit"]) == (429, "rate_limited", limit), body
    assert int(response.headers["Retry-After"]) >= 1


async def refused_at_all(api: Api, method: str, path: str, **arguments: Any) -> None:
    """Refused by one of the rate limits of requests."""
    body = await api.problem(429, "rate_limited", method, path, **arguments)
    assert body["limit"] in ("requests_per_second", "handle_requests_per_second")


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def sizes(api: Api) -> dict[str, int]:
    """The size that each workspace counts with, by id."""
    return await api.plane.database.read(
        lambda connection: dict(connection.execute("SELECT id, size FROM workspaces"))
    )


async def workspaces(api: Api) -> list[str]:
    return sorted(await sizes(api))


@pytest.mark.parametrize("limits", ["max_sessions = 2"], indirect=True)
async def test_sessions_of_a_key(api: Api) -> None:
    sessions = [await api.session(key=OPERATOR_KEY) for _ in range(2)]
    await refused(api, "max_sessions", "POST", "/api/sessions", json={})
    await refused(api, "max_sessions", "PUT", "/api/sessions/third", json={})
    # PUT of an existing session succeeds, and other keys have quotas of their own.
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
    # The admin has no quota, and may raise another key's session.
    await api.json("PUT", path, key=ADMIN_KEY, json=high)
    await refused(api, name, "POST", "/api/sessions", json=small)


async def test_defaults_for_keys_without_limits(settings: Settings) -> None:
    assert settings.key_max_sessions is None
    assert settings.key_requests_per_second >= 500


@pytest.mark.parametrize("limits", ["requests_per_second = 0.01"], indirect=True)
async def test_requests_of_a_key(api: Api) -> None:
    # 2 s at 0.01 requests per second are less than one request; the minimum is one.
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}"
    await refused(api, "requests_per_second", "GET", path)
    # The key's handles together may send one request, too.
    await api.json("GET", path, key=session["handle"])
    await refused(api, "requests_per_second", "GET", path, key=session["handle"])
    for key in (OTHER_KEY, ADMIN_KEY):
        await api.json("GET", "/api/sessions", key=key)
    await api.json("GET", "/healthz", key=OPERATOR_KEY)


@pytest.mark.parametrize("limits", ["handle_requests_per_second = 0.01"], indirect=True)
async def test_a_handle_uses_up_nothing_but_its_own(api: Api) -> None:
    flooding, other = [await api.session(key=OPERATOR_KEY) for _ in range(2)]
    path = f"/api/sessions/{flooding['id']}"
    await api.json("GET", path, key=flooding["handle"])
    for _ in range(20):
        await refused(api, "handle_requests_per_second", "GET", path, key=flooding["handle"])
    await api.json("GET", path, key=OPERATOR_KEY)
    await api.json("GET", f"/api/sessions/{other['id']}", key=other["handle"])


# Stops


@pytest.mark.parametrize(
    "limits",
    ["requests_per_second = 0.01\nhandle_requests_per_second = 0.01"],
    indirect=True,
)
async def test_stops_are_answered_however_much_was_asked(api: Api) -> None:
    """With every bucket empty, each stop takes effect; a stop of nothing is refused."""
    mine: dict[str, Any] = {"key": OPERATOR_KEY}
    session = await api.session(**mine, permission_level="high")
    path, handle = f"/api/sessions/{session['id']}", session["handle"]
    box = api.plane.sessions.finder.find(ADMIN, session["id"])
    api.agent.plays["cat"] = Play(holds=True)
    await api.json("GET", path, key=handle)
    for key in (OPERATOR_KEY, handle):
        await refused_at_all(api, "GET", path, key=key)
    # Nothing runs, so this request stops nothing.
    await refused_at_all(api, "POST", path + "/interrupt", json={}, key=handle)
    background = {"argv": ["cat"], "background": True}
    for way in ("interrupt", "signal"):
        command = await api.json("POST", path + "/exec", status=202, json=background)
        where = f"{path}/processes/{command['command_id']}"
        for rest, body in (("/stdin", {"data": "x"}), ("/signal", {"signal": "USR1"})):
            await refused_at_all(api, "POST", where + rest, json=body, key=handle)
        if way == "interrupt":
            await api.json("POST", path + "/interrupt", json={}, key=handle)
        else:
            await api.json("POST", where + "/signal", json={"signal": "KILL"}, key=handle)
        async with asyncio.timeout(WAIT_SECONDS):
            await until(lambda: box.running == [])
    raised, lowered = ({"settings": {"permission_level": n}} for n in ("high", "low"))
    await refused_at_all(api, "PUT", path + "/settings", json=raised, **mine)
    await api.json("PUT", path + "/settings", json=lowered, **mine)
    await refused_at_all(api, "PUT", path + "/settings", json=lowered, **mine)
    assert box.level.name == "low"
    await api.json("POST", path + "/pause", json={}, **mine)
    assert box.status == "paused"
    for rest in ("/pause", "/resume"):
        await refused_at_all(api, "POST", path + rest, json={}, **mine)
    await api.json("POST", path + "/abort", json={}, **mine)
    assert box.status == "aborted"
    await refused_at_all(api, "POST", path + "/abort", json={}, **mine)
    await refused_at_all(api, "DELETE", path, **mine)


@pytest.mark.parametrize("limits", ["requests_per_second = 0.01"], indirect=True)
async def test_a_session_is_closed_however_much_was_asked(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}"
    await refused_at_all(api, "GET", path, key=OPERATOR_KEY)
    await api.json("DELETE", path, key=OPERATOR_KEY)


@pytest.mark.parametrize("limits", ["requests_per_second = 0.01"], indirect=True)
async def test_the_command_line_stops_however_much_was_asked(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}"
    for command, status in (("pause", "paused"), ("abort", "aborted")):
        await refused_at_all(api, "GET", path, key=OPERATOR_KEY)
        connection = ("--url", str(api.server.make_url("/")), "--key", OPERATOR_KEY)
        ended = await run_beside("sessions", command, session["id"], *connection)
        assert ended.status == 0, ended.err
        assert (await api.json("GET", path))["status"] == status


@pytest.mark.parametrize("limits", ["requests_per_second = 0.01"], indirect=True)
async def test_an_approval_is_denied_however_much_was_asked(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    found = api.plane.sessions.finder.find(ADMIN, session["id"])
    line = Line("pty-1", "psql.drop_table", "DROP TABLE users", "high")
    approval = await api.plane.approvals.obtain(found, line, "handle", 0)
    path = f"/api/approvals/{approval.id}"
    await refused_at_all(api, "POST", path, json={"decision": "approve"}, key=OPERATOR_KEY)
    denied = await api.json("POST", path, json={"decision": "deny"}, key=OPERATOR_KEY)
    assert denied["status"] == "denied"
    await refused_at_all(api, "POST", path, json={"decision": "deny"}, key=OPERATOR_KEY)


@pytest.mark.parametrize("limits", ["handle_requests_per_second = 0.01"], indirect=True)
async def test_a_terminal_is_ended_however_much_was_asked(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}/ptys"
    opened = await api.json("POST", path, json={"tool": "fake"}, status=201)
    await api.json("GET", path, key=session["handle"])
    where = f"{path}/{opened['id']}"
    await refused_at_all(api, "GET", where, key=session["handle"])
    closed = await api.json("DELETE", where, key=session["handle"])
    assert closed["status"] == "terminated"
    await refused_at_all(api, "DELETE", where, key=session["handle"])


@pytest.mark.parametrize("limits", ["requests_per_second = 0.01"], indirect=True)
async def test_what_is_large_or_wrong_is_no_stop(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path = f"/api/sessions/{session['id']}/settings"
    body = {"settings": {"permission_level": "low", "workspace": {"note": "x" * 5000}}}
    await refused_at_all(api, "PUT", path, json=body, key=OPERATOR_KEY)
    await refused_at_all(api, "PUT", path, json={}, key=OPERATOR_KEY)
    chunked: dict[str, Any] = {
        "data": chunks(b'{"settings": {"permission_level": "low"}}'),
        "key": OPERATOR_KEY,
    }
    await refused_at_all(api, "PUT", path, **chunked)
    assert (await api.json("GET", path))["permission_level"] == "high"


async def test_lowering_a_level_waits_for_no_creation(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    releases = [api.engine.hang_next("create") for _ in range(2)]
    flood = [asyncio.create_task(api.session(key=OPERATOR_KEY)) for _ in range(30)]
    slots = api.plane.sessions.shares.slots
    async with asyncio.timeout(WAIT_SECONDS):
        await until(lambda: slots.waiting == 28)
        path = f"/api/sessions/{session['id']}/settings"
        body = {"settings": {"permission_level": "low"}}
        assert (await api.json("PUT", path, key=OPERATOR_KEY, json=body)) is not None
        assert slots.waiting == 28
        for release in releases:
            release.set()
        await asyncio.gather(*flood)


# Workspaces


@pytest.mark.parametrize("limits", ["max_workspaces = 2"], indirect=True)
async def test_kept_workspaces_count(api: Api) -> None:
    mine: dict[str, Any] = {"key": OPERATOR_KEY}
    for name in ("first", "second"):
        await api.session(**mine, id=name)
        await api.json("DELETE", f"/api/sessions/{name}", **mine)
    response = await api.call("POST", "/api/sessions", json={"id": "third"}, **mine)
    body = await response.json(content_type=None)
    assert (response.status, body["limit"]) == (429, "max_workspaces")
    assert "`paddock sessions close first --purge`" in body["detail"]
    # A kept workspace can be used again, and other keys have a quota of their own.
    await api.session(**mine, id="second")
    await api.session(key=OTHER_KEY, id="theirs")
    await api.json("DELETE", "/api/sessions/first?purge=true", **mine)
    await api.session(**mine, id="third")
    await refused(api, "max_workspaces", "POST", "/api/sessions", json={})
    # The refused requests leave nothing behind.
    assert await workspaces(api) == ["second", "theirs", "third"]
    sessions = (await api.json("GET", "/api/sessions?status=active"))["items"]
    assert len(sessions) == 3


@pytest.mark.parametrize("limits", [f"max_workspace_bytes = {1300 * _MIB}"], indirect=True)
async def test_the_sizes_of_kept_workspaces_count(api: Api) -> None:
    mine: dict[str, Any] = {"key": OPERATOR_KEY}
    await api.session(**mine, id="kept", permission_level="low")  # 256 MiB
    await api.json("DELETE", "/api/sessions/kept", **mine)
    await api.session(**mine, id="live", permission_level="medium")  # 1 GiB
    await refused(api, "max_workspace_bytes", "POST", "/api/sessions", json={})
    small: dict[str, Any] = {"permission_level": "low", "limits": {"workspace_bytes": 20 * _MIB}}
    await api.session(**mine, id="small", **small)
    path = "/api/sessions/live/settings"
    high, low = ({"settings": {"permission_level": level}} for level in ("high", "low"))
    await refused(api, "max_workspace_bytes", "PUT", path, json=high)
    assert (await api.json("GET", path))["permission_level"] == "medium"
    await api.json("PUT", path, json=low, **mine)
    # A workspace that was made smaller counts with its new size.
    await api.session(**mine, id="more", permission_level="low")
    assert await sizes(api) == {
        "kept": 256 * _MIB,
        "live": 256 * _MIB,
        "small": 20 * _MIB,
        "more": 256 * _MIB,
    }


@pytest.mark.parametrize("limits", ["max_workspaces = 3"], indirect=True)
async def test_creations_at_once_do_not_pass_the_quota(api: Api) -> None:
    body: dict[str, Any] = {"json": {}, "key": OPERATOR_KEY}
    answers = await asyncio.gather(*(api.call("POST", "/api/sessions", **body) for _ in range(8)))
    said = [await answer.text() for answer in answers]
    assert sorted(answer.status for answer in answers) == [201] * 3 + [429] * 5, said
    assert len(await workspaces(api)) == 3


async def test_a_greedy_key_does_not_keep_another_waiting(api: Api) -> None:
    releases = [api.engine.hang_next("create") for _ in range(51)]
    served: list[str] = []

    async def create(key: str, name: str) -> None:
        await api.session(key=key)
        served.append(name)

    slots = api.plane.sessions.shares.slots
    greedy = [asyncio.create_task(create(OPERATOR_KEY, "greedy")) for _ in range(30)]
    async with asyncio.timeout(WAIT_SECONDS):
        await until(lambda: slots.waiting == 28)
        other = asyncio.create_task(create(OTHER_KEY, "other"))
        await until(lambda: slots.waiting == 29)
        assert slots.working == 2
        # After one of the flood, the next but one to start belongs to the other key.
        for release in releases[:4]:
            release.set()
        await other
        assert served.count("greedy") <= 4
        for release in releases:
            release.set()
        await asyncio.gather(*greedy)
    assert (slots.waiting, slots.working) == (0, 0)


async def test_at_most_so_many_creations_wait(api: Api) -> None:
    releases = [api.engine.hang_next("create") for _ in range(2)]
    slots = api.plane.sessions.shares.slots
    headers = {"Authorization": f"Bearer {OPERATOR_KEY}"}
    async with (
        asyncio.timeout(WAIT_SECONDS),
        ClientSession(connector=TCPConnector(limit=0)) as flood,
    ):
        url = api.server.make_url("/api/sessions")

        async def create() -> None:
            async with flood.post(url, json={}, headers=headers):
                pass

        clients = [asyncio.create_task(create()) for _ in range(102)]
        await until(lambda: slots.waiting == 100)
        await refused(api, "waiting_creations", "POST", "/api/sessions", json={})
        # Requests whose clients have left create nothing.
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await until(lambda: slots.waiting == 0)
        for release in releases:
            release.set()
        await until(lambda: slots.working == 0)
    assert api.engine.calls.count("create") == 2


async def test_a_flood_of_commands_is_its_keys_own(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    api.agent.plays["cat"] = Play(holds=True)
    path = f"/api/sessions/{session['id']}/exec"
    flood = [
        asyncio.create_task(api.call("POST", path, json={"command": "cat"}, key=OPERATOR_KEY))
        for _ in range(60)
    ]
    async with asyncio.timeout(WAIT_SECONDS):
        other = await api.session(key=OTHER_KEY)
        where = f"/api/sessions/{other['id']}/exec"
        answer = await api.json("POST", where, key=OTHER_KEY, json={"command": "ls"})
        assert answer["exit_code"] == 0
        await api.json("POST", f"/api/sessions/{session['id']}/interrupt", json={})
        done = {(await client).status for client in flood}
    assert done <= {200, 409}


def limit_streams(api: Api, per_session: int, per_key: int) -> None:
    streams = api.plane.streams
    streams._per_session, streams._open.most = per_session, per_key


async def test_streams_of_a_session(api: Api) -> None:
    """Streams of every kind and caller count; other requests still succeed."""
    limit_streams(api, per_session=3, per_key=100)
    api.agents.plays["sleep"] = Play(holds=True)
    session = await api.session(key=OPERATOR_KEY, permission_level="high")
    path, handle = f"/api/sessions/{session['id']}", session["handle"]
    started = await api.json(
        "POST", path + "/exec", status=202, json={"command": "sleep", "background": True}
    )
    output = f"{path}/processes/{started['command_id']}"
    follow = {"Accept": "text/event-stream"}
    streams = [
        await api.call("GET", path + "/events", key=handle),
        await api.call("GET", path + "/events", key=OPERATOR_KEY),
        await api.call("GET", output, key=handle, headers=follow),
    ]
    assert {stream.status for stream in streams} == {200}
    before = await api.plane.ledger.wait(None, -1)
    limit = "session_max_streams"
    await refused(api, limit, "GET", path + "/events", key=handle)
    await refused(api, limit, "GET", output, headers=follow)
    await refused(api, limit, "GET", path + "/files?path=x")
    await refused(api, limit, "PUT", path + "/files?path=x", data=b"x")
    await refused(api, limit, "POST", path + "/exec", headers=follow, json={"command": "ls"})
    assert await api.plane.ledger.wait(None, -1) == before  # nothing ran
    await api.json("POST", path + "/exec", key=handle, json={"command": "ls"})
    other = await api.session(key=OPERATOR_KEY)
    elsewhere = await api.call("GET", f"/api/sessions/{other['id']}/events", key=OPERATOR_KEY)
    assert elsewhere.status == 200
    streams.pop().close()
    await until(lambda: api.plane.sessions.registry.live[0].streams.total() == 2)
    await api.json("PUT", path + "/files?path=x", data=b"x")


async def test_streams_of_a_key_and_of_its_handles(api: Api) -> None:
    """Streams of handles do not use up their key's limit; another key has its own limit."""
    limit_streams(api, per_session=100, per_key=2)
    sessions = [await api.session(key=OPERATOR_KEY) for _ in range(2)]
    first, second = (f"/api/sessions/{session['id']}/events" for session in sessions)
    handles = [session["handle"] for session in sessions]
    opened = [
        await api.call("GET", first, key=handles[0]),
        await api.call("GET", second, key=handles[1]),
    ]
    await refused(api, "key_max_streams", "GET", first, key=handles[0])
    opened += [
        await api.call("GET", first, key=OPERATOR_KEY),
        await api.call("GET", "/api/events", key=OPERATOR_KEY),
    ]
    await refused(api, "key_max_streams", "GET", "/api/events")
    await refused(api, "key_max_streams", "GET", f"/api/sessions/{sessions[0]['id']}/audit/export")
    opened.append(await api.call("GET", "/api/events", key=OTHER_KEY))
    assert {stream.status for stream in opened} == {200}
    for stream in opened:
        stream.close()
    await until(lambda: not api.plane.streams._open.total())
