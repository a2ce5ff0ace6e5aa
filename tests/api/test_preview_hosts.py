"""Ports at host names of their own: which names lead there, who is admitted, and what passes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse, WSMsgType, web

from orchestrator.control_plane import ControlPlane
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.previews import Previews, Program, previews, program, raw_program

pytestmark = pytest.mark.slow

MIB = 2**20


@pytest.fixture
async def shown(plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(plane) as found:
        yield found


async def echo(request: web.Request) -> web.Response:
    """What arrived, as JSON."""
    return web.json_response([request.method, request.raw_path, list(request.headers.items())])


class Hosted:
    """A port of a session at its own host name."""

    def __init__(self, shown: Previews, program: Program, port: dict[str, Any]) -> None:
        self.shown, self.program = shown, program
        self.host = port["host_url"].removeprefix("http://").rstrip("/")
        self.entry = f"/~{port['host_link'].rpartition('~')[2]}"
        self.token = port["host_link"].rpartition("~")[2].rstrip("/")
        self.cookie = f"paddock-port={self.token}"

    async def ask(
        self, method: str, path: str = "/", key: str | None = None, **headers: str
    ) -> ClientResponse:
        """The answer to someone with the cookie, unless another one is given."""
        sent = {"Host": self.host, "Cookie": self.cookie}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.shown.ask(method, path, key=key, headers=sent)

    async def told(self, path: str = "/", **headers: str) -> tuple[str, dict[str, str]]:
        """The path and the headers that the program got."""
        answer = await self.ask("GET", path, **headers)
        assert answer.status == 200, await answer.text()
        _, target, received = json.loads(await answer.text())
        return target, dict(received)


async def open_port(api: Api, shown: Previews, running: Program, session: str = "web") -> Hosted:
    path = f"/api/sessions/{session}/ports"
    body = {"port": running.port}
    return Hosted(shown, running, await api.json("POST", path, json=body, status=201))


@asynccontextmanager
async def opened(
    api: Api, shown: Previews, server: Any, session: str = "web"
) -> AsyncIterator[Hosted]:
    async with server as running:
        await api.session(id=session, key=OPERATOR_KEY)
        yield await open_port(api, shown, running, session)


async def test_a_link_becomes_a_cookie_of_its_host(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        assert web_.host.startswith(f"{web_.program.port}-web.localhost:")
        assert (await web_.ask("GET", Cookie="")).status == 401
        entered = await web_.ask("GET", f"{web_.entry}a%2Fb?x=1", Cookie="")
        assert (entered.status, entered.headers["Location"]) == (303, "/a%2Fb?x=1")
        made, *attributes = entered.headers["Set-Cookie"].split("; ")
        assert made == web_.cookie
        assert attributes[0] == "Path=/"
        assert attributes[2:] == ["HttpOnly", "SameSite=Lax"]
        assert 0 < int(attributes[1].removeprefix("Max-Age=")) <= 3600
        assert web_.program.received == []
        target, headers = await web_.told("/a%2Fb?x=1", Cookie=f"a=1; {web_.cookie}; b=2")
        assert target == "/a%2Fb?x=1"
        assert headers["Cookie"] == "a=1; b=2"
        assert web_.token not in str(headers)


async def test_a_link_leads_to_no_other_host(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        for rest in ("/evil.example/", "\\evil.example"):
            answer = await web_.ask("GET", web_.entry + rest)
            assert answer.headers["Location"] == f"/./{rest}"


async def test_all_paths_are_the_program_s(api: Api, shown: Previews) -> None:
    """Also those that would name another port elsewhere, or resemble a link."""
    async with opened(api, shown, program(echo)) as web_, program(echo) as other:
        second = await open_port(api, shown, other)
        for path in (f"/s/web/{other.port}/~{second.token}/", "/@vite/client", "/~ann/", "//x/.."):
            assert (await web_.told(path))[0] == path
        assert other.received == []


async def test_names_are_read_strictly(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo), "Web-1--x") as web_:
        label, port = f"{web_.program.port}-web-1--x", web_.host.rpartition(":")[2]
        assert web_.host == f"{label}.localhost:{port}"
        for host, status in (
            (f"{label}.localhost", 200),
            (f"{label.upper()}.LocalHost.:{port}", 200),
            (f"{label}n1.localhost", 401),
            (f"{web_.program.port}n2-web-1--x.localhost", 401),
            (f"{web_.program.port}-web-1.localhost", 401),
            (f"{web_.program.port}n1-web-1--x.localhost", 404),
            (f"0{label}.localhost", 404),
            (f"65536-{label}.localhost", 404),
            (f"x.{label}.localhost", 404),
            ("web-1--x.localhost", 404),
            (f"{label}.localhost.evil.example", 421),
            (f"{label}.evil.example", 421),
            (f"{label}.localhost:x", 421),
            (f"{label}.127.0.0.1", 421),
            (f"{label}localhost", 421),
        ):
            assert (await web_.ask("GET", Host=host)).status == status, host
        unknown = await web_.ask("GET", Host="other.localhost")
        assert "it must be PORT-SESSION.localhost" in await unknown.text()
        assert len(web_.program.received) == 2


async def test_who_reaches_it(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_, program(echo) as other:
        second = await open_port(api, shown, other)
        handle = (await api.session(id="other"))["handle"]
        for cookie, key, status in (
            (web_.cookie, None, 200),
            (f"x=1; paddock-port=1.x; {web_.cookie}", None, 200),
            (second.cookie, None, 401),
            (web_.cookie[:-1], None, 401),
            ("", OPERATOR_KEY, 200),
            ("", ADMIN_KEY, 200),
            ("", OTHER_KEY, 404),
            ("", handle, 404),
        ):
            answer = await web_.ask("GET", key=key, Cookie=cookie)
            assert answer.status == status, (cookie, key)
        absent = web_.host.replace("-web", "-absent")
        assert (await web_.ask("GET", Host=absent, key=ADMIN_KEY)).status == 404
        assert (await web_.ask("GET", f"/~{second.token}/")).status == 401
        headers = [str(each.headers) for each in web_.program.received]
        assert not [each for each in headers if "Authorization" in each or "paddock-port" in each]
        await api.json("DELETE", f"/api/sessions/web/ports/{web_.program.port}")
        await open_port(api, shown, web_.program)
        assert (await web_.ask("GET")).status == 401


async def test_a_later_session_has_another_origin(api: Api, shown: Previews) -> None:
    """What an earlier session's pages stored in a browser is not a later one's with its id."""
    async with opened(api, shown, program(echo)) as first:
        await api.json("DELETE", "/api/sessions/web")
        await api.session(id="web", key=OPERATOR_KEY)
        second = await open_port(api, shown, first.program)
        assert second.host.startswith(f"{first.program.port}n2-web.localhost:")
        assert (await second.ask("GET")).status == 200
        assert (await first.ask("GET", Cookie=second.cookie)).status == 401
        assert (await first.ask("GET", key=ADMIN_KEY)).status == 404


async def test_the_program_is_addressed_as_on_its_own_machine(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        origin, inside = f"http://{web_.host}", f"localhost:{web_.program.port}"
        _, headers = await web_.told(
            Origin=origin, Referer=f"{origin}/a?b", X_Forwarded_Host="evil", Sec_Fetch_Site="x"
        )
        assert headers["Host"] == inside
        assert headers["Origin"] == f"http://{inside}"
        assert headers["Referer"] == f"http://{inside}/a?b"
        assert not [name for name in headers if name.startswith("X-Forwarded")]
        # With a page's own policy of referrers, only the browser's word says whose it is.
        _, headers = await web_.told(Origin="null", Sec_Fetch_Site="same-origin")
        assert headers["Origin"] == f"http://{inside}"
        _, headers = await web_.told(Referer="http://elsewhere/a")
        assert "Referer" not in headers


async def test_pages_of_other_origins_use_no_cookie(api: Api, shown: Previews) -> None:
    """They may lead a reader there, and nothing else."""
    async with opened(api, shown, program(echo)) as web_:
        sibling = f"http://{web_.host.replace('-web', '-other')}"
        navigates = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        framed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
        for method, headers, status in (
            ("GET", {"Sec_Fetch_Site": "none"}, 200),
            ("GET", {"Sec_Fetch_Site": "cross-site", **navigates}, 200),
            ("GET", {"Sec_Fetch_Site": "same-site", **navigates}, 200),
            ("POST", {"Sec_Fetch_Site": "same-origin", "Origin": f"http://{web_.host}"}, 200),
            ("POST", {"Origin": f"http://{web_.host}"}, 200),
            ("POST", {"Sec_Fetch_Site": "cross-site", **navigates}, 401),
            ("GET", {"Sec_Fetch_Site": "same-site", **framed}, 401),
            ("GET", {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"}, 401),
            ("GET", {"Origin": sibling}, 401),
            ("GET", {"Origin": "null"}, 401),
            ("POST", {"Origin": sibling}, 401),
        ):
            assert (await web_.ask(method, **headers)).status == status, (method, headers)
        with pytest.raises(ClientError):
            await shown.client.ws_connect(
                f"{shown.origin}/",
                headers={"Host": web_.host, "Cookie": web_.cookie, "Origin": sibling},
            )
        asks = {"Origin": sibling, "Access_Control_Request_Method": "PUT"}
        assert (await web_.ask("OPTIONS", **asks)).status == 401
        assert len(web_.program.received) == 5


async def test_answers_have_the_power_of_their_own_origin(api: Api, shown: Previews) -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.Response(status=302, text="x")
        for name, value in (
            ("Location", f"http://{request.host}/login"),
            ("Set-Cookie", "sid=1; Path=/lab; Domain=localhost; HttpOnly; SameSite=None"),
            ("Set-Cookie", "paddock-port=1; Path=/"),
            ("Service-Worker-Allowed", "/"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Clear-Site-Data", '"*"'),
            ("Strict-Transport-Security", "max-age=1"),
            ("Access-Control-Allow-Origin", "*"),
            ("Cross-Origin-Resource-Policy", "cross-origin"),
            ("Content-Security-Policy", "default-src *"),
            ("Referrer-Policy", "origin"),
        ):
            response.headers.add(name, value)
        return response

    async with opened(api, shown, program(answer)) as web_:
        got = (await web_.ask("GET")).headers
    assert got["Location"] == "/login"
    assert got.getall("Set-Cookie") == ["sid=1; Path=/lab; HttpOnly; SameSite=Lax"]
    assert got["Service-Worker-Allowed"] == "/"
    assert got["Cross-Origin-Opener-Policy"] == "same-origin"
    assert got["Referrer-Policy"] == "origin"
    assert got.getall("Cross-Origin-Resource-Policy") == ["same-origin"]
    assert got.getall("Content-Security-Policy") == ["default-src *", "frame-ancestors 'self'"]
    absent = {"clear-site-data", "strict-transport-security", "access-control-allow-origin"}
    assert not absent & {name.lower() for name in got}


async def test_the_base_path_of_the_other_address_is_not_used(api: Api, shown: Previews) -> None:
    async def based(request: web.Request) -> web.Response:
        found = request.path.startswith("/s/web/")
        return web.Response(status=200 if found else 404, text=request.path)

    async with opened(api, shown, program(based)) as web_:
        linked = f"/s/web/{web_.program.port}/~{web_.token}/tree"
        for _ in range(2):
            assert (await shown.get(linked)).status == 200
            assert (await web_.ask("GET", "/tree")).status == 404


async def test_an_operator_s_domain(api: Api, shown: Previews, plane: ControlPlane) -> None:
    previews = plane.previews
    previews.named_below, previews.url = "ports.example", "https://previews.example:444"
    async with opened(api, shown, program(echo)) as web_:
        name = f"{web_.program.port}-web.ports.example"
        listed = (await api.json("GET", "/api/sessions/web/ports"))["items"]
        assert [each["host_url"] for each in listed] == [f"https://{name}:444/"]
        host = {"Host": f"{name}:444"}
        entered = await shown.get(web_.entry, headers=host)
        assert entered.status == 303
        cookie, *attributes = entered.headers["Set-Cookie"].split("; ")
        assert cookie.startswith("__Host-paddock-port=")
        assert "Secure" in attributes
        there = await shown.get("/", headers={**host, "Cookie": cookie})
        assert there.status == 200
        # The default of a loopback address is off then.
        local = {"Host": f"{web_.program.port}-web.localhost"}
        assert (await shown.get("/", headers=local)).status == 421


@pytest.mark.parametrize("size", [125, 65_536, 16 * MIB])
async def test_a_websocket_s_messages_pass_in_pieces(api: Api, shown: Previews, size: int) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    async with (
        opened(api, shown, program(answer)) as web_,
        shown.client.ws_connect(
            f"{shown.origin}/ws",
            headers={"Host": web_.host, "Cookie": web_.cookie, "Origin": f"http://{web_.host}"},
            max_msg_size=0,
            compress=15,
        ) as socket,
    ):
        assert socket.compress
        sent = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        await socket.send_bytes(sent)
        assert await socket.receive_bytes() == sent
        await socket.close(code=4321)
        assert web_.program.received[0].headers["Origin"] == f"http://localhost:{web_.program.port}"


async def test_a_program_that_reads_no_message_holds_its_client_back(
    api: Api, shown: Previews
) -> None:
    """One message, of which nothing is taken: little of it can be sent."""
    accepted, over = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport: Any = writer.transport
        transport.pause_reading()
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(head + b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
        accepted.set()
        await over.wait()

    async with opened(api, shown, raw_program(answer)) as web_:
        host, port = shown.origin.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET / HTTP/1.1\r\nHost: {web_.host}\r\nCookie: {web_.cookie}\r\n"
            "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        await accepted.wait()
        sent = 0

        async def send() -> None:
            nonlocal sent
            with suppress(ConnectionError):
                while True:
                    writer.write(b"x" * 65_536)
                    await writer.drain()
                    sent += 65_536

        sending = asyncio.create_task(send())
        before = -1
        while before != sent:
            before = sent
            for _ in range(2000):
                await asyncio.sleep(0)
        assert 0 < sent < 16 * MIB
        over.set()
        await sending


async def test_a_handshake_that_is_none_reaches_no_program(api: Api, shown: Previews) -> None:
    async with opened(api, shown, program(echo)) as web_:
        wants = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Key": "x"}
        assert (await web_.ask("GET", **wants)).status == 400
        assert web_.program.received == []


async def test_a_program_that_ends_ends_the_socket(api: Api, shown: Previews) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("last")
        assert request.transport is not None
        request.transport.abort()
        return socket

    async with (
        opened(api, shown, program(answer)) as web_,
        shown.client.ws_connect(
            f"{shown.origin}/", headers={"Host": web_.host, "Cookie": web_.cookie}
        ) as socket,
    ):
        kinds = [(await socket.receive()).type for _ in range(2)]
        assert kinds[-1] in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR)
