"""Pages of the origins that the operator lists use the API; a page of any other gets nothing."""

from typing import Any

import pytest
from aiohttp import WSServerHandshakeError
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, Api, served
from tests.support.cases import each
from tests.support.fake_agent import Agents

PAGE = "https://app.example.org"
OTHERS = (
    *("https://evil.example", "https://app.example.org.evil.example", "http://app.example.org"),
    *("https://app.example.org:8443", "https://x@app.example.org", "null", "*", ""),
)
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
PERMISSIONS = "Access-Control-Allow-"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    members = settings.model_dump(exclude={"admin_key"})
    return Settings(
        **{**members, "cors_origins": (PAGE, "http://localhost:3000")},
        admin_key=SecretStr(ADMIN_KEY),
    )


def permissions(headers: Any) -> dict[str, str]:
    """What a browser reads of an answer, by the ends of the names."""
    return {
        name.removeprefix(PERMISSIONS): value
        for name, value in headers.items()
        if name.startswith(PERMISSIONS)
    }


async def test_a_browser_is_told_what_a_listed_page_may_send(api: Api) -> None:
    for path in ("/api/sessions", "/api/sessions/none/exec", "/api/unknown", "/readyz"):
        asked = {"Origin": PAGE, **ASKS}
        response = await api.client.options(path, headers=asked)
        assert (response.status, await response.read()) == (204, b"")
        told = permissions(response.headers)
        assert told.pop("Origin") == PAGE
        assert set(told.pop("Methods").split(", ")) >= {"GET", "POST", "PUT", "PATCH", "DELETE"}
        sent = {"Authorization", "Content-Type", "Last-Event-ID", "If-Match", "Range"}
        assert set(told.pop("Headers").split(", ")) >= sent
        assert told == {}, "no credentials, and nothing else"
        assert response.headers["Vary"] == "Origin"
        assert int(response.headers["Access-Control-Max-Age"]) > 0


@each("origin", OTHERS)
async def test_a_browser_is_told_nothing_for_another_page(api: Api, origin: str) -> None:
    asked = {"Origin": origin, **ASKS}
    response = await api.client.options("/api/sessions", headers=asked)
    assert (response.status, permissions(response.headers)) == (403, {})
    assert (await response.json())["rule"] == "foreign-origin"
    read = await api.call("GET", "/api/sessions", headers={"Origin": origin})
    assert permissions(read.headers) == {}
    assert read.headers["Vary"] == "Origin"


async def test_two_origins_are_none(api: Api) -> None:
    asked = [("Origin", PAGE), ("Origin", PAGE), *ASKS.items()]
    response = await api.client.options("/api/sessions", headers=asked)
    assert (response.status, permissions(response.headers)) == (403, {})


async def test_a_listed_page_reads_every_answer(api: Api) -> None:
    session = await api.session(permission_level="low")
    url = f"/api/sessions/{session['id']}"
    page = {"Origin": PAGE}
    answers = (
        await api.call("GET", url, headers=page),
        await api.call("GET", f"{url}/missing", headers=page),
        await api.call("GET", url, headers=page, key=None),
        await api.call("POST", f"{url}/exec", headers=page, json={"command": "rm -rf /"}),
        await api.call("GET", f"{url}/files?path=missing", headers=page),
    )
    assert [each.status for each in answers] == [200, 404, 401, 403, 404]
    for answer in answers:
        assert permissions(answer.headers) == {"Origin": PAGE}
        assert answer.headers["Vary"] == "Origin"
        read = set(answer.headers["Access-Control-Expose-Headers"].split(", "))
        assert read >= {"ETag", "Content-Range", "Retry-After", "X-Request-Id"}


async def test_a_listed_page_follows_a_stream(api: Api) -> None:
    session = await api.session(permission_level="low")
    page = {"Origin": PAGE, "Accept": "text/event-stream"}
    url = f"/api/sessions/{session['id']}/exec"
    stream = await api.call("POST", url, headers=page, json={"command": "ls"})
    assert stream.content_type == "text/event-stream"
    assert permissions(stream.headers) == {"Origin": PAGE}
    assert b"event: exit" in await stream.read()


async def test_the_key_counts_and_no_cookie(api: Api) -> None:
    given = {"Origin": PAGE, "Cookie": f"key={ADMIN_KEY}; Authorization=Bearer {ADMIN_KEY}"}
    answer = await api.call("GET", "/api/sessions", headers=given, key=None)
    assert answer.status == 401
    for path in ("/", "/api/sessions"):
        found = await api.call("GET", path, headers={"Origin": PAGE})
        assert "Set-Cookie" not in found.headers


async def test_the_console_is_no_page_of_theirs(api: Api) -> None:
    for path in ("/", "/console/main.js", "/metrics", "/healthz"):
        answer = await api.call("GET", path, headers={"Origin": PAGE})
        assert permissions(answer.headers) == {}
        asked = await api.client.options(path, headers={"Origin": PAGE, **ASKS})
        assert (asked.status, permissions(asked.headers)) == (405, {})


async def test_only_listed_pages_open_sockets(api: Api) -> None:
    session = await api.session(permission_level="high")
    url = f"/api/sessions/{session['id']}/terminal"

    async def offered() -> tuple[str, str]:
        body = {"session_id": session["id"]}
        page = {"Origin": PAGE}
        ticket = await api.json("POST", "/api/tickets", json=body, headers=page, status=201)
        return "paddock.terminal", f"ticket.{ticket['ticket']}"

    with pytest.raises(WSServerHandshakeError) as refused:
        await api.client.ws_connect(url, protocols=await offered(), origin=OTHERS[0])
    assert refused.value.status == 403
    assert not api.agent.terminals.all
    async with api.client.ws_connect(url, protocols=await offered(), origin=PAGE) as socket:
        assert "terminal" in await socket.receive_json()


async def test_without_a_list_no_page_is_told_anything(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    members = settings.model_dump(exclude={"admin_key", "cors_origins"})
    plane = await ControlPlane.open(Settings(**members, admin_key=SecretStr(ADMIN_KEY)), engine)
    async with served(plane, engine, agents) as api:
        response = await api.client.options("/api/sessions", headers={"Origin": PAGE, **ASKS})
        assert (response.status, permissions(response.headers)) == (405, {})
        read = await api.call("GET", "/api/sessions", headers={"Origin": PAGE})
        assert permissions(read.headers) == {}
        assert "Vary" not in read.headers
        assert (await api.client.options("/api/sessions")).status == 405
    await plane.close()
