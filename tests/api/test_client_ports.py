"""Ports with the client and at the command line."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from orchestrator.control_plane import ControlPlane
from paddock import NotFoundError, Paddock, PermissionDeniedError
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.cli import run_beside
from tests.support.previews import Previews, previews, program


async def hello(_request: web.Request) -> web.Response:
    return web.Response(text="hello")


@pytest.fixture
async def shown(plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(plane) as found:
        yield found


async def test_a_client_opens_lists_and_closes(api: Api, shown: Previews) -> None:
    url = str(api.server.make_url("/"))
    async with Paddock(url, OPERATOR_KEY) as paddock, program(hello) as server:
        session = await paddock.sessions.create()
        assert session.handle is not None
        agent = await paddock.sessions.attach(session.id, session.handle)
        with pytest.raises(PermissionDeniedError):
            await agent.ports.open(server.port)
        opened = await session.ports.open(server.port, seconds=60)
        assert (await shown.get(opened.link.removeprefix(shown.origin))).status == 200
        assert [port.port for port in await agent.ports.list()] == [server.port]
        assert (await session.ports.close(server.port)).requests == 1
        with pytest.raises(NotFoundError):
            await session.ports.close(server.port)


async def test_at_the_command_line(
    api: Api, shown: Previews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    await api.session(id="web")
    opened = await run_beside("port", "web", "8000", "--seconds", "60")
    assert opened.out.startswith(f"{shown.origin}/s/web/8000/~")
    own = shown.origin.replace("127.0.0.1", "8000-web.localhost")
    assert f"{own}/~" in opened.err
    hosted = await run_beside("port", "web", "8000", "--host")
    assert hosted.out.startswith(f"{own}/~")
    (port,) = json.loads((await run_beside("ports", "web", "--json")).out)
    assert (port["port"], port["url"]) == (8000, f"{shown.origin}/s/web/8000/")
    assert own in (await run_beside("ports", "web")).out
    closed = await run_beside("port", "web", "8000", "--close")
    assert "closed after 0 requests" in closed.err
    await api.session(id="a.b")
    unnamed = await run_beside("port", "a.b", "8000", "--host")
    assert (unnamed.status, unnamed.out) == (2, "")
    assert "no host name of its own" in unnamed.err
    assert "no port is open" in (await run_beside("ports", "web")).err
    assert (await run_beside("port", "web", "8000", "--close")).status == 5
