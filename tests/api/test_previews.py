"""Who reaches an open port, what passes in both directions, and what a hostile program can't do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import ClientError, ClientPayloadError, WSMsgType, web

from orchestrator.control_plane import ControlPlane
from orchestrator.sandbox.ports.limits import PORT_LIMITS
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.previews import Previews, Program, previews, program, raw_program
from tests.support.until import until

pytestmark = pytest.mark.slow

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def shown(plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(plane) as found:
        yield found


async def echo(request: web.Request) -> web.Response:
    """What arrived, as JSON."""
    body = (await request.read()).decode("latin-1")
    told = [request.method, request.raw_path, list(request.headers.items()), body]
    return web.json_response(told)


class Open:
    """A session `web` with an open port, for the operator's key."""

    def __init__(self, program: Program, port: dict[str, Any], handle: str, origin: str) -> None:
        self.program = program
        self.path = f"/s/web/{program.port}"
        self.link = port["link"].removeprefix(origin)
        self.token = self.link.rstrip("/").rpartition("~")[2]
        self.handle = handle


@asynccontextmanager
async def opened(api: Api, shown: Previews, server: Any) -> AsyncIterator[Open]:
    async with server as running:
        session = await api.session(id="web", key=OPERATOR_KEY)
        body = {"port": running.port}
        path = "/api/sessions/web/ports"
        port = await api.json("POST", path, json=body, key=OPERATOR_KEY, status=201)
        yield Open(running, port, session["handle"], shown.origin)


# Who.


async def test_a_link_is_the_base_of_what_a_page_requests(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        moved = await shown.get(web_.link.rstrip("/") + "?x=1")
        assert (moved.status, moved.headers["Location"]) == (307, f"{web_.link}?x=1")
        assert moved.headers["Referrer-Policy"] == "no-referrer"
        there = await shown.get(f"{web_.link}a%2Fb?x=1", headers={"Cookie": "a=1; b=2"})
        _, target, headers, _ = json.loads(await there.text())
        assert target == "/a%2Fb?x=1"
        assert dict(headers)["Cookie"] == "a=1; b=2"
        assert web_.token not in str(headers)


async def test_a_page_s_scripts_may_read_what_its_link_leads_to(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        asks = {"Origin": "null", "Access-Control-Request-Method": "PUT"}
        asks["Access-Control-Request-Headers"] = "content-type, x-a"
        allowed = await shown.ask("OPTIONS", web_.link, headers=asks)
        assert allowed.status == 204
        assert allowed.headers["Access-Control-Allow-Methods"] == "PUT"
        assert allowed.headers["Access-Control-Allow-Headers"] == "content-type, x-a"
        assert web_.program.received == []
        read = await shown.get(web_.link, headers={"Origin": "null"})
        assert read.headers.getall("Access-Control-Allow-Origin") == ["*"]
        # Without a link, no page of another origin may read anything, whatever the program says.
        assert (await shown.ask("OPTIONS", f"{web_.path}/", headers=asks)).status == 401
        with_key = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        assert "Access-Control-Allow-Origin" not in with_key.headers


async def test_altered_links_and_other_credentials_are_refused(api: Api, shown: Previews) -> None:
    other = await api.session(id="other")
    async with opened(api, shown, program(echo)) as web_:
        until_, mac = web_.token.split(".")
        # Some bits of the last character mean nothing.
        altered = f"{until_}.{'B' if mac[0] == 'A' else 'A'}{mac[1:]}"
        for wrong in (f"{int(until_) + 1}.{mac}", altered, "", "1.x", mac):
            for path in (f"/~{wrong}/", f"/~{wrong}", f"/?paddock_link={wrong}"):
                assert (await shown.get(web_.path + path)).status in (307, 401), path
        asks = {"Access-Control-Request-Method": "PUT"}
        wrong_link = f"{web_.path}/~{altered}/"
        assert (await shown.ask("OPTIONS", wrong_link, headers=asks)).status == 401
        assert (await shown.get(f"{web_.path}/")).status == 401
        for key, status in ((other["handle"], 404), (OTHER_KEY, 404), ("pdk_unknown", 401)):
            assert (await shown.get(f"{web_.path}/", key=key)).status == status
        assert web_.program.received == []
        for key in (web_.handle, OPERATOR_KEY, ADMIN_KEY):
            assert (await shown.get(f"{web_.path}/", key=key)).status == 200


async def test_a_link_is_for_one_port_of_one_session(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_, program(echo) as second:
        await api.session(id="other")
        for session, port in (("web", second.port), ("other", web_.program.port)):
            path = f"/api/sessions/{session}/ports"
            await api.json("POST", path, json={"port": port}, status=201)
        for path in (f"/s/web/{second.port}", f"/s/other/{web_.program.port}"):
            assert (await shown.get(f"{path}/~{web_.token}/")).status == 401
        # Neither does a path that climbs: what is asked for is what is authorised.
        for climbing in ("/../../other/", "/%2e%2e/%2e%2e/other/", "/..%2f..%2fother/"):
            tail = f"{climbing}{web_.program.port}/"
            answer = await shown.get(web_.link.rstrip("/") + tail)
            assert json.loads(await answer.text())[1] == tail
        assert second.received == []


async def test_a_closed_port_s_link_never_holds_again(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        path = "/api/sessions/web/ports"
        await api.json("DELETE", f"{path}/{web_.program.port}")
        await api.json("POST", path, json={"port": web_.program.port}, status=201)
        assert (await shown.get(web_.link)).status == 401


async def test_a_removed_key_s_ports_are_closed(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        keys = api.plane.keys
        keys.replace(type(keys)({d: p for d, p in keys._principals.items() if p.name == "admin"}))
        assert (await shown.get(web_.link)).status == 401
        found = api.plane.sessions.registry.get("web")
        assert found is not None
        await until(lambda: not found.ports.open)
        assert web_.program.received == []


async def test_the_two_origins_share_no_route(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        for path in ("/", "/healthz", "/api/sessions", "/metrics", "/api/openapi.json", "/s/web"):
            assert (await shown.get(path, key=ADMIN_KEY)).status == 404
        await api.problem(404, "not_found", "GET", f"{web_.path}/")
        strange = {"Host": "rebound.example"}
        assert (await shown.get(f"{web_.path}/", key=ADMIN_KEY, headers=strange)).status == 421


# What passes.


async def test_requests_pass_without_what_is_the_control_plane_s(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        sent = {
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "1",
            "X-Forwarded-For": "1.2.3.4",
            "X-Forwarded-Host": "evil",
            "Forwarded": "for=1.2.3.4",
            "Referer": "http://elsewhere/",
            "Accept-Encoding": "br",
            "X-Own": "kept",
        }
        path = f"{web_.path}/a//b/%41?q=%20&&r"
        answer = await shown.ask("PUT", path, key=ADMIN_KEY, headers=sent, data=b"body")
        method, target, headers, body = json.loads(await answer.text())
        assert (method, target, body) == ("PUT", "/a//b/%41?q=%20&&r", "body")
        found = {name.lower(): value for name, value in headers}
        assert found["host"] == f"localhost:{web_.program.port}"
        assert found["x-forwarded-prefix"] == web_.path
        assert found["x-forwarded-host"] == shown.origin.removeprefix("http://")
        assert found["x-own"] == "kept"
        assert found["accept-encoding"] == "br"
        assert not {"authorization", "x-hop", "x-forwarded-for", "forwarded", "referer"} & {*found}


async def test_answers_get_no_power_over_the_origin(api: Api, shown: Previews) -> None:
    async def answer(_request: web.Request) -> web.Response:
        response = web.Response(status=302, text="x")
        for name, value in (
            ("Location", "/login"),
            ("Set-Cookie", "sid=1; Path=/; Domain=localhost; HttpOnly; SameSite=None"),
            ("Service-Worker-Allowed", "/"),
            ("Clear-Site-Data", '"*"'),
            ("Access-Control-Allow-Origin", "*"),
            ("Content-Security-Policy", "default-src *"),
            ("X-Content-Type-Options", "off"),
            ("X-Own", "kept"),
        ):
            response.headers.add(name, value)
        return response

    async with opened(api, shown, program(answer)) as web_:
        got = (await shown.get(f"{web_.path}/", key=ADMIN_KEY)).headers
    assert got["Location"] == f"{web_.path}/login"
    assert got.getall("Set-Cookie") == [f"sid=1; HttpOnly; Path={web_.path}/; SameSite=Lax"]
    policies = got.getall("Content-Security-Policy")
    assert policies[0] == "default-src *"
    assert policies[1].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policies[1]
    assert got.getall("X-Content-Type-Options") == ["nosniff"]
    assert (got["Referrer-Policy"], got["X-Own"]) == ("no-referrer", "kept")
    absent = {"service-worker-allowed", "clear-site-data", "access-control-allow-origin"}
    assert not absent & {name.lower() for name in got}


async def test_a_head_has_no_body(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        answer = await shown.ask("HEAD", f"{web_.path}/", key=ADMIN_KEY)
        assert (answer.status, await answer.read()) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 0


async def test_bodies_stream_in_both_directions(api: Api, shown: Previews) -> None:
    """Each piece is answered before the next is sent."""
    chunks = asyncio.Queue[bytes]()

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(5):
            yield b"%d" % number
            assert await chunks.get() == b"%d" % number

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        return response

    async with opened(api, shown, program(answer)) as web_:
        got = await shown.ask("POST", f"{web_.path}/", key=ADMIN_KEY, data=pieces())
        async for chunk in got.content.iter_any():
            chunks.put_nowait(chunk)


async def test_events_arrive_as_they_are_sent(api: Api, shown: Previews) -> None:
    seen = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await seen.wait()
        await response.write(b"data: 2\n\n")
        return response

    async with opened(api, shown, program(answer)) as web_:
        got = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        assert got.content_type == "text/event-stream"
        assert await got.content.readuntil(b"\n\n") == b"data: 1\n\n"
        seen.set()
        assert await got.content.readuntil(b"\n\n") == b"data: 2\n\n"


async def test_a_websocket_passes_messages_and_its_end(api: Api, shown: Previews) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert "~" not in str(request.headers)
        socket = web.WebSocketResponse(protocols=["chat"])
        await socket.prepare(request)
        async for message in socket:
            if message.data == "end":
                await socket.close(code=4321)
            elif message.type is WSMsgType.TEXT:
                await socket.send_str(message.data[::-1])
            else:
                await socket.send_bytes(message.data[::-1])
        return socket

    async with opened(api, shown, program(answer)) as web_:
        async with shown.client.ws_connect(
            f"{shown.origin}{web_.link}ws", protocols=["other", "chat"]
        ) as socket:
            assert socket.protocol == "chat"
            await socket.send_str("abc")
            assert await socket.receive_str() == "cba"
            await socket.send_bytes(b"xyz" * 10_000)
            assert await socket.receive_bytes() == b"zyx" * 10_000
            await socket.send_str("end")
            assert (await socket.receive()).type is WSMsgType.CLOSE
            assert socket.close_code == 4321
        with pytest.raises(ClientError):
            await shown.client.ws_connect(f"{shown.origin}{web_.path}/ws")


# When nothing answers.


async def test_a_port_without_a_program_is_a_page(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        pass
    answer = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
    assert answer.status == 502
    assert answer.content_type == "text/html"
    said = await answer.text()
    assert f"Nothing listens on port {web_.program.port} in the session." in said


async def test_a_pause_cuts_and_refuses(api: Api, shown: Previews) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        await asyncio.Event().wait()
        return response

    async with opened(api, shown, program(answer)) as web_:
        got = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        assert await got.content.readexactly(5) == b"begun"
        await api.json("POST", "/api/sessions/web/pause", json={})
        with pytest.raises(ClientPayloadError):
            await got.content.read()
        assert (await shown.get(f"{web_.path}/", key=ADMIN_KEY)).status == 503
        await api.json("POST", "/api/sessions/web/resume", json={})
        again = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        assert await again.content.readexactly(5) == b"begun"
        path = f"/api/sessions/web/ports/{web_.program.port}"
        await api.json("DELETE", path)
        with pytest.raises(ClientPayloadError):
            await again.content.read()


async def test_another_level_keeps_the_port(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        assert (await shown.get(web_.link)).status == 200
        body = {"settings": {"permission_level": "high"}}
        await api.json("PUT", "/api/sessions/web/settings", json=body)
        assert (await shown.get(web_.link)).status == 200


async def test_only_so_many_requests_at_once(api: Api, plane: ControlPlane) -> None:
    held = asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        await held.wait()
        return web.Response(text="x")

    limits = PORT_LIMITS._replace(key_connections=2)
    async with previews(plane, limits) as shown, opened(api, shown, program(answer)) as web_:
        waiting = [asyncio.create_task(shown.get(f"{web_.path}/", key=ADMIN_KEY)) for _ in range(2)]
        await until(lambda: len(web_.program.received) == 2)
        assert (await shown.get(f"{web_.path}/", key=ADMIN_KEY)).status == 429
        held.set()
        assert [(await each).status for each in waiting] == [200, 200]
        assert (await shown.get(f"{web_.path}/", key=ADMIN_KEY)).status == 200


# Hostile programs.


async def _endless_head(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-A: " + b"a" * 1000 + b"\r\n")
        await writer.drain()


async def _one_endless_header(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-A: ")
    while True:
        writer.write(b"a" * 65536)
        await writer.drain()


async def _endless_continues(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        await writer.drain()


async def _not_http(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xff" * 100)
    await writer.drain()


async def _nothing(_: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    return


async def _switches(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx")
    await writer.drain()


@pytest.mark.parametrize(
    "answer",
    [_endless_head, _one_endless_header, _endless_continues, _not_http, _nothing, _switches],
)
async def test_what_is_not_an_answer_is_a_bad_gateway(
    api: Api, shown: Previews, answer: Any
) -> None:
    async with opened(api, shown, raw_program(answer)) as web_:
        got = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        assert got.status == 502, await got.text()


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 10\r\n\r\nfive5",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nfive5\r\nnonsense",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nfive5\r\n0\r\n" + b"X-A: a\r\n" * 50_000,
    ],
)
async def test_a_broken_body_breaks_off(api: Api, shown: Previews, body: bytes) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + body)
        with suppress(ConnectionError):
            await writer.drain()

    async with opened(api, shown, raw_program(answer)) as web_:
        got = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        if got.status != 502:  # it was noticed only after the head
            with pytest.raises(ClientError):
                await got.read()


@pytest.mark.parametrize("value", [b"\xff\xfe", b"a\tb", "é".encode()])
async def test_any_bytes_in_headers_pass_or_are_left_out(
    api: Api, shown: Previews, value: bytes
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 " + value + b"\r\nX-A: " + value + b"\r\nSet-Cookie: a=" + value
        writer.write(head + b"\r\nLocation: /" + value + b"\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    async with opened(api, shown, raw_program(answer)) as web_:
        got = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        assert (got.status, await got.read()) == (200, b"ok")


async def test_a_slow_client_holds_the_program_back(api: Api, shown: Previews) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)
            sent += 65536

    async with opened(api, shown, program(answer)) as web_:
        got = await shown.get(f"{web_.path}/", key=ADMIN_KEY)
        before = -1
        while before != sent:
            before = sent
            for _ in range(2000):
                await asyncio.sleep(0)
        assert sent < 64 * 2**20
        got.close()


# Programs that look at their own address.


def checking(base: str = "") -> Any:
    """A program as Jupyter and Streamlit are: below a base path, and for its own pages only."""

    async def answer(request: web.Request) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("//")[2] != request.headers["Host"]:
            return web.Response(status=403, text=f"{origin} is not {request.headers['Host']}")
        if request.path in ("/", base, f"{base}/"):
            raise web.HTTPFound(f"{base}/tree")
        if not request.path.startswith(f"{base}/") or (not base and "/s/" in request.path):
            return web.Response(status=404)
        if "Upgrade" in request.headers:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_str("open")
            return socket
        return web.Response(text=request.path.removeprefix(base))

    return answer


async def test_a_program_s_own_pages_have_its_origin(api: Api, shown: Previews) -> None:
    """Also if the program compares; a page of another site stays what it is."""
    async with opened(api, shown, program(checking())) as web_:
        own = shown.origin.replace("127.0.0.1", "localhost")
        for origin, status in (
            (None, 200),
            ("null", 200),
            (shown.origin, 200),
            (own, 200),
            ("http://evil.example", 403),
            ("http://127.0.0.1:1", 403),
        ):
            headers = {} if origin is None else {"Origin": origin}
            url = f"{web_.link}form"
            posted = await shown.ask("POST", url, headers=headers, data=b"x")
            assert posted.status == status, origin
            if status == 200:
                async with shown.client.ws_connect(shown.origin + url, headers=headers) as socket:
                    assert await socket.receive_str() == "open"
            else:
                with pytest.raises(ClientError):
                    await shown.client.ws_connect(shown.origin + url, headers=headers)
        # Without a link, no page can prove to be the program's.
        sent = {"Origin": "null"}
        refused = await shown.ask("POST", f"{web_.path}/form", key=ADMIN_KEY, headers=sent)
        assert refused.status == 403


@pytest.mark.parametrize("kept", ["link", "path"])
async def test_a_program_s_base_path_is_its_address(api: Api, shown: Previews, kept: str) -> None:
    base = {"at": ""}

    async def answer(request: web.Request) -> web.StreamResponse:
        found: web.StreamResponse = await checking(base["at"])(request)
        return found

    async with opened(api, shown, program(answer)) as web_:
        base["at"] = getattr(web_, kept).rstrip("/")
        root = web_.link.rstrip("/")
        first = await shown.get(web_.link)
        assert (first.status, first.headers["Location"]) == (302, f"{root}/tree")
        page = await shown.get(first.headers["Location"])
        assert (page.status, await page.text()) == (200, "/tree")
        # A page requests its scripts below the base path that it was told.
        script = await shown.get(f"{root}/static/app.js")
        assert (script.status, await script.text()) == (200, "/static/app.js")
        async with shown.client.ws_connect(f"{shown.origin}{root}/ws") as socket:
            assert await socket.receive_str() == "open"
        assert (await shown.ask("POST", f"{root}/form", data=b"x")).status == 200
        # With a key, and after a start of the program without a base path.
        assert await (await shown.get(f"{web_.path}/tree", key=ADMIN_KEY)).text() == "/tree"
        base["at"] = ""
        again = await shown.get(web_.link)
        assert (again.status, again.headers["Location"]) == (302, f"{root}/tree")


async def test_a_page_that_connects_again_finds_the_base_path(api: Api, shown: Previews) -> None:
    """A control plane that has started anew knows of no earlier answer."""
    base = {"at": ""}

    async def answer(request: web.Request) -> web.StreamResponse:
        found: web.StreamResponse = await checking(base["at"])(request)
        return found

    async with opened(api, shown, program(answer)) as web_:
        base["at"] = web_.link.rstrip("/")
        for _ in range(2):
            async with shown.client.ws_connect(f"{shown.origin}{web_.link}ws") as socket:
                assert await socket.receive_str() == "open"
        asked = [request.path.removeprefix(base["at"]) for request in web_.program.received]
        assert asked == ["/ws", f"{web_.path}/ws", "/ws", "/ws"]


async def test_what_a_program_does_not_have_is_absent(api: Api, shown: Previews) -> None:
    async def absent(_request: web.Request) -> web.Response:
        return web.Response(status=404, text="absent")

    async with opened(api, shown, program(absent)) as web_:
        answer = await shown.get(f"{web_.link}x")
        assert (answer.status, await answer.text()) == (404, "absent")
