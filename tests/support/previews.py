"""Programs that listen on a port, and clients of the previews' origin."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientResponse, ClientSession, DummyCookieJar, web
from aiohttp.test_utils import TestServer
from yarl import URL

from api.compat.enabled import ServedPorts
from api.previews.app import create_preview_app
from api.server import http_options
from orchestrator.control_plane import ControlPlane
from orchestrator.sandbox.ports.limits import PORT_LIMITS, PortLimits


@dataclass
class Previews:
    """The previews' origin, and a client that keeps no cookies."""

    server: TestServer
    client: ClientSession
    answers: list[ClientResponse] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return str(self.server.make_url("/")).rstrip("/")

    async def get(
        self, path: str, *, key: str | None = None, **arguments: object
    ) -> ClientResponse:
        return await self.ask("GET", path, key=key, **arguments)

    async def ask(
        self, method: str, path: str, *, key: str | None = None, **arguments: object
    ) -> ClientResponse:
        """The response to exactly that path; redirects are not followed."""
        headers = dict(arguments.pop("headers", {}))  # type: ignore[call-overload]
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        url = URL(self.origin + path, encoded=True)
        answer = await self.client.request(
            method,
            url,
            headers=headers,
            allow_redirects=False,
            **arguments,  # type: ignore[arg-type]
        )
        self.answers.append(answer)
        return answer


@asynccontextmanager
async def previews(
    plane: ControlPlane,
    limits: PortLimits = PORT_LIMITS,
    own_ports: Sequence[ServedPorts] = (),
) -> AsyncIterator[Previews]:
    """The previews of a control plane, which then knows where they are."""
    server = TestServer(create_preview_app(plane, "127.0.0.1", limits, own_ports))
    await server.start_server(**http_options(plane), shutdown_timeout=0.1)
    try:
        async with ClientSession(cookie_jar=DummyCookieJar(), auto_decompress=False) as client:
            found = Previews(server, client)
            plane.previews.url = found.origin
            yield found
            for answer in found.answers:
                answer.close()
    finally:
        await server.close()


@dataclass
class Program:
    """A web server on this machine; `received` are the requests that reached it."""

    port: int
    received: list[web.Request] = field(default_factory=list)


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def program(answer: Answer) -> AsyncIterator[Program]:
    """Serves any request with `answer`."""
    received: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        received.append(request)
        return await answer(request)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handle)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    try:
        yield Program(server.port or 0, received)
    finally:
        await server.close()


@asynccontextmanager
async def raw_program(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Program]:
    """A program that speaks for itself, for what no server would send."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield Program(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
