"""Ports are opened, listed and closed on record, and only those are served."""

from typing import Any

import pytest
from aiohttp import web

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api, served
from tests.support.fake_agent import Agents
from tests.support.previews import Previews, previews, program
from tests.support.restart import reopened
from tests.support.until import until


async def hello(_request: web.Request) -> web.Response:
    return web.Response(text="hello")


@pytest.fixture
async def shown(plane: ControlPlane) -> Any:
    async with previews(plane) as found:
        yield found


async def opened(api: Api, session_id: str, port: int, **body: Any) -> dict[str, Any]:
    path = f"/api/sessions/{session_id}/ports"
    return await api.json("POST", path, json={"port": port, **body}, status=201)


async def events(api: Api, session_id: str, operation: str) -> list[dict[str, Any]]:
    path = f"/api/sessions/{session_id}/audit?operation={operation}"
    found: list[dict[str, Any]] = (await api.json("GET", path))["items"]
    return found


async def test_a_port_is_served_while_it_is_open(api: Api, shown: Previews) -> None:
    session = await api.session(id="web")
    async with program(hello) as server:
        path = f"/s/web/{server.port}/"
        assert (await shown.get(path, key=session["handle"])).status == 404
        port = await opened(api, "web", server.port, seconds=60)
        assert port["url"] == shown.origin + path
        assert port["link"].startswith(port["url"] + "~")
        answer = await shown.get(path, key=session["handle"])
        assert (answer.status, await answer.text()) == (200, "hello")
        (listed,) = (await api.json("GET", "/api/sessions/web/ports"))["items"]
        assert listed == {
            **{k: v for k, v in port.items() if k not in ("link", "host_link")},
            "requests": 1,
        }
        closed = await api.json("DELETE", f"/api/sessions/web/ports/{server.port}")
        assert closed["requests"] == 1
        assert (await shown.get(path, key=session["handle"])).status == 404
        assert len(server.received) == 1
    assert (await api.json("GET", "/api/sessions/web/ports"))["items"] == []
    (began,) = await events(api, "web", "port.open")
    assert began["args"] == {"port": server.port, "seconds": 60}
    assert began["result"] == {"expires_at": port["expires_at"]}
    (ended,) = await events(api, "web", "port.close")
    assert ended["actor"] == "admin"
    assert ended["result"] == {"reason": "closed", "requests": 1}


async def test_bad_input_changes_nothing(api: Api, shown: Previews) -> None:
    await api.session(id="web")
    path = "/api/sessions/web/ports"
    for body, field in (
        ({}, "port"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": "80"}, "port"),
        ({"port": 80, "seconds": 0}, "seconds"),
        ({"port": 80, "seconds": 700_000}, "seconds"),
        ({"port": 80, "host": "x"}, "host"),
    ):
        said = await api.problem(400, "validation_error", "POST", path, json=body)
        assert said["field"] == field, body
    await api.problem(404, "not_found", "DELETE", f"{path}/80")
    await api.problem(400, "validation_error", "DELETE", f"{path}/x")
    assert (await api.json("GET", path))["items"] == []
    assert await events(api, "web", "port.open") == []


async def test_only_keys_open_and_close(api: Api, shown: Previews) -> None:
    session = await api.session(id="web", key=OPERATOR_KEY)
    path, handle = "/api/sessions/web/ports", session["handle"]
    body = {"port": 8000}
    await api.problem(403, "permission_denied", "POST", path, json=body, key=handle)
    await api.problem(404, "not_found", "POST", path, json=body, key=OTHER_KEY)
    await api.json("POST", path, json=body, key=OPERATOR_KEY, status=201)
    await api.problem(403, "permission_denied", "DELETE", f"{path}/8000", key=handle)
    assert len((await api.json("GET", path, key=handle))["items"]) == 1


async def test_a_session_has_a_limited_number(api: Api, shown: Previews) -> None:
    await api.session(id="web")
    for port in range(8000, 8016):
        await opened(api, "web", port)
    path = "/api/sessions/web/ports"
    await api.problem(409, "busy", "POST", path, json={"port": 9000})
    await opened(api, "web", 8003, seconds=5)


async def test_a_port_that_is_being_closed_is_not_opened(
    api: Api, shown: Previews, plane: ControlPlane
) -> None:
    await api.session(id="web")
    await opened(api, "web", 8000)
    plane.sessions.finder.find(Principal("admin", Role.ADMIN), "web").ports.open[8000].end()
    said = await api.problem(
        409, "conflict", "POST", "/api/sessions/web/ports", json={"port": 8000}
    )
    assert "being closed" in said["detail"]
    assert len(await events(api, "web", "port.open")) == 1


async def test_nowhere_to_serve_is_said(api: Api, plane: ControlPlane) -> None:
    await api.session(id="web")
    plane.previews.url = None
    path = "/api/sessions/web/ports"
    said = await api.problem(409, "conflict", "POST", path, json={"port": 8000})
    assert "PADDOCK_PREVIEW_LISTEN" in said["detail"]


async def test_a_port_expires(api: Api, shown: Previews) -> None:
    await api.session(id="web")
    port = await opened(api, "web", 8000, seconds=60)
    assert "~" in port["link"]
    found = api.plane.sessions.registry.get("web")
    assert found is not None
    timer = found.ports.open[8000].timer
    assert timer is not None
    timer._run()
    timer.cancel()
    await until(lambda: not found.ports.open)
    await api.plane.ports._tasks.drain()
    (ended,) = await events(api, "web", "port.close")
    assert ended["result"]["reason"] == "expired"
    assert (await api.json("GET", "/api/sessions/web/ports"))["items"] == []


async def test_the_end_of_a_session_closes_its_ports(api: Api, shown: Previews) -> None:
    await api.session(id="web")
    async with program(hello) as server:
        port = await opened(api, "web", server.port)
        await api.call("POST", "/api/sessions/web/complete", json={})
        link = port["link"].removeprefix(shown.origin)
        assert (await shown.get(link)).status == 401
        assert server.received == []
    (ended,) = await events(api, "web", "port.close")
    assert ended["result"] == {"reason": "session ended", "requests": 0}
    assert api.plane.ports._sessions == {}


async def test_a_restart_keeps_ports_and_links(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    async with program(hello) as server:
        async with served(plane, engine, agents) as api, previews(plane) as shown:
            await api.session(id="web")
            port = await opened(api, "web", server.port)
            link = port["link"].removeprefix(shown.origin)
            assert (await shown.get(link)).status == 200
        await plane.close()
        plane = await reopened(settings, engine, agents)
        async with served(plane, engine, agents) as api, previews(plane) as shown:
            assert await (await shown.get(link)).text() == "hello"
            (listed,) = (await api.json("GET", "/api/sessions/web/ports"))["items"]
            assert listed["expires_at"] == port["expires_at"]
            await api.json("DELETE", "/api/sessions/web")
        await plane.close()
