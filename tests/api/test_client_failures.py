"""The client's errors for servers that are gone, wrong, old, slow or full."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from paddock import (
    ArgumentError,
    CapacityExhaustedError,
    ConnectionLostError,
    InternalServerError,
    NoAnswerError,
    NotPaddockError,
    OldServerError,
    Paddock,
    PaddockAPIError,
    PaddockError,
    RateLimitedError,
    UnreachableError,
)
from tests.api.conftest import ADMIN_KEY, Api

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """A server that answers every request with the handler."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def always(status: int, body: Any, **headers: str) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return answer


def problem(status: int, code: str, headers: dict[str, str] | None = None, **more: Any) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(
            {"status": status, "code": code, "detail": "no", "request_id": "r", **more},
            status=status,
            content_type="application/problem+json",
            headers=headers,
        )

    return answer


async def failure(handler: Handler, **options: Any) -> PaddockError:
    """The error that the client raises when it asks such a server for its policies."""
    async with answering(handler) as url, Paddock(url, "key", get_retries=0, **options) as paddock:
        with pytest.raises(PaddockError) as caught:
            await paddock.policies.list()
    assert "\n" not in str(caught.value)
    return caught.value


async def test_nobody_there() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        async with Paddock(url, "key", get_retries=1) as paddock:
            with pytest.raises(UnreachableError, match="no control plane answers"):
                await paddock.ready()
    async with Paddock("http://nowhere.invalid", "key", get_retries=0) as paddock:
        with pytest.raises(UnreachableError):
            await paddock.sessions.create()


async def test_something_else_there() -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<h1>It works!</h1>", content_type="text/html")

    async def redirect(_request: web.Request) -> web.Response:
        raise web.HTTPFound("http://elsewhere.example/")

    async def proxy(_request: web.Request) -> web.Response:
        raise web.HTTPBadGateway

    assert "is not a Paddock control plane" in str(await failure(page))
    for handler in (redirect, always(404, {"message": "what?"}), always(200, [1]), always(200, {})):
        assert isinstance(await failure(handler), NotPaddockError)
    assert isinstance(await failure(proxy), UnreachableError)


@pytest.mark.parametrize(("status", "kind"), [(200, "json"), (400, "problem+json")])
async def test_an_answer_that_is_nested_too_deep(status: int, kind: str) -> None:
    async def deep(_request: web.Request) -> web.Response:
        return web.Response(text="[" * 100_000, status=status, content_type=f"application/{kind}")

    assert isinstance(await failure(deep), NotPaddockError)


async def test_something_there_that_is_not_http() -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Paddock(url, "key") as paddock:
            with pytest.raises(NotPaddockError, match="HTTP"):
                await paddock.ready()


async def test_plain_http_where_tls_is_wanted(api: Api) -> None:
    url = str(api.server.make_url("/")).replace("http:", "https:")
    async with Paddock(url, "key", get_retries=0) as paddock:
        with pytest.raises(UnreachableError, match=r"(?i)ssl"):
            await paddock.ready()


async def test_an_older_server(api: Api) -> None:
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        # For paths without a route in the control plane.
        with pytest.raises(OldServerError, match="older"):
            await paddock._api.json("POST", "/api/newer", body={})
        with pytest.raises(OldServerError, match="older"):
            await paddock._api.json("PATCH", "/api/policies", body={})
    with_prefix = f"{api.server.make_url('/')}api"
    async with Paddock(with_prefix, ADMIN_KEY) as paddock:
        with pytest.raises(OldServerError, match="URL"):
            await paddock.policies.list()
    lacking = await failure(always(200, {"items": [{"name": "low"}]}))
    assert isinstance(lacking, OldServerError)
    assert "Level.rank" in str(lacking)


async def test_newer_servers_tell_more() -> None:
    check = {"ok": True, "status": "newer", "detail": "", "remedy": None, "new": 1}
    body = {"status": "ready", "checks": {"x": check}, "newer": 2}
    async with answering(always(200, body)) as url, Paddock(url, "key") as paddock:
        ready = await paddock.ready()
    assert ready.ready
    assert ready.raw == body


async def test_codes_and_what_comes_with_them() -> None:
    limited = await failure(problem(429, "rate_limited", {"Retry-After": "7"}, limit="requests"))
    assert isinstance(limited, RateLimitedError)
    assert (limited.retry_after, limited.fields["limit"]) == (7.0, "requests")
    unknown = await failure(problem(418, "teapot", retry_after=1.5))
    assert type(unknown) is PaddockAPIError
    assert (unknown.status, unknown.code, unknown.retry_after) == (418, "teapot", 1.5)
    assert isinstance(await failure(problem(500, "internal_error")), InternalServerError)


async def test_no_answer_in_time() -> None:
    forever = asyncio.Event()

    async def silent(_request: web.Request) -> web.Response:
        await forever.wait()
        return web.Response()

    slow = await failure(silent, timeout=0.1)
    assert isinstance(slow, NoAnswerError)
    assert isinstance(slow, TimeoutError)


async def test_an_answer_that_breaks_off() -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = 100
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    assert isinstance(await failure(half), ConnectionLostError)


async def test_only_reading_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.retry._FIRST_SECONDS", 0.001)
    seen: list[str] = []

    async def passing(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        if len(seen) % 3:
            return await problem(502, "sandbox_unavailable")(request)
        return web.json_response({"items": []})

    async with answering(passing) as url, Paddock(url, "key") as paddock:
        assert await paddock.policies.list() == ()
        assert seen == ["GET"] * 3
        seen.clear()
        with pytest.raises(PaddockAPIError):
            await paddock.sessions.create()
        assert seen == ["POST"]
        seen.clear()
        # The headers of a stream are sent each time.
        with pytest.raises(NotPaddockError):
            await paddock.sessions.audit("x").export().__anext__()
        assert seen == ["GET"] * 3


async def test_waiting_for_capacity_is_a_choice(api: Api) -> None:
    full = problem(503, "capacity_exhausted", retry_after=0.01)
    tries = 0

    async def soon(request: web.Request) -> web.StreamResponse:
        nonlocal tries
        tries += 1
        if tries < 4:
            return await full(request)
        return web.json_response(await api.session(), status=201)

    async with answering(soon) as url:
        async with Paddock(url, "key") as paddock:
            with pytest.raises(CapacityExhaustedError):
                await paddock.sessions.create()
        assert tries == 1
        async with Paddock(url, "key", capacity_wait=10) as paddock:
            assert (await paddock.sessions.create()).handle
        assert tries == 4
        tries = 0
        async with Paddock(url, "key", capacity_wait=0.2) as paddock:
            with pytest.raises(CapacityExhaustedError):
                await paddock.sessions.create()


async def test_a_stream_that_is_none() -> None:
    async with answering(always(200, {})) as url, Paddock(url, "key") as paddock:
        with pytest.raises(NotPaddockError):
            await anext(paddock.events(after=0))


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
async def test_a_time_out_is_finite(api: Api, number: float) -> None:
    await api.session(id="box", permission_level="high")
    async with Paddock(str(api.server.make_url("/")), ADMIN_KEY) as paddock:
        session = await paddock.sessions.get("box")
        with pytest.raises(ArgumentError, match="finite"):
            await session.run_code("1", timeout=number)
