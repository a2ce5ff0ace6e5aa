"""The end of a gateway: what is open may end, and what does not is cut in time."""

import asyncio
import socket

import pytest
from aiohttp import ClientConnectorError, ClientPayloadError, ClientSession, web

from gateway.app import create_app
from gateway.server import served
from gateway.settings import GatewaySettings
from tests.support.box import PATIENCE
from tests.support.fake_cluster import fake_cluster


@pytest.mark.parametrize("ends", [True, False])
async def test_what_is_open_may_end_within_its_time(ends: bool) -> None:
    go_on = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await go_on.wait()
        await response.write(b"data: 2\n\n")
        await response.write_eof()
        return response

    settings = GatewaySettings.model_construct(gateway_drain_seconds=PATIENCE if ends else 0.1)
    async with asyncio.timeout(PATIENCE), fake_cluster() as cluster, ClientSession() as client:
        await cluster.serve("one", stream)
        cluster.puts("web", "one")
        bound = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/api/sessions/web/events"
        serving = served(create_app(cluster.gateway), cluster.gateway, bound, None, settings)
        await serving.__aenter__()
        async with client.get(url) as answer:
            assert await answer.content.readany() == b"data: 1\n\n"
            stopping = asyncio.ensure_future(serving.__aexit__(None, None, None))
            if ends:
                await asyncio.sleep(0)
                go_on.set()
                assert await answer.read() == b"data: 2\n\n"
            else:
                with pytest.raises((ClientPayloadError, ConnectionError)):
                    await answer.read()
        await stopping
        with pytest.raises(ClientConnectorError):
            await client.get(url)
        go_on.set()
