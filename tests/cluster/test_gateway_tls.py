"""The way between gateways and nodes: whoever has not the right certificate is not heard."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from api.app import create_app
from api.gateway_listener import for_gateways
from api.server import http_options
from orchestrator.cluster.tls import Face, gateway_context, node_context
from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.settings import Settings
from tests.support.certificates import Authority, Pair
from tests.support.fake_cluster import FakeCluster, fake_cluster, node
from tests.support.served_plane import KEY, ServedPlane, served_plane

_NODE = "node-1"


class Listening:
    """A node that listens for gateways, and what reached its applications."""

    def __init__(self, port: int, heard: list[str]) -> None:
        self.port = port
        self.heard = heard


@asynccontextmanager
async def _listening(pair: Pair, authority: Path) -> AsyncIterator[Listening]:
    heard: list[str] = []

    async def hear(face: Face, request: web.Request) -> web.StreamResponse:
        heard.append(f"{face.name} {request.path}")
        return web.json_response({"face": face.name})

    runners = {}
    for face in Face:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", partial(hear, face))
        runners[face] = web.AppRunner(app)
        await runners[face].setup()
    settings = _settings(pair, authority)
    said: list[str] = []
    async with for_gateways(settings, runners, said.append) as port:
        assert port is not None
        assert said == [f"listening for gateways on 127.0.0.1:{port}"]
        yield Listening(port, heard)
    for runner in runners.values():
        await runner.cleanup()


def _settings(pair: Pair, authority: Path) -> Settings:
    return Settings.model_construct(
        node_listen="127.0.0.1:0", node_cert=pair.cert, node_key=pair.key, node_ca=authority
    )


@asynccontextmanager
async def _gateway(pair: Pair, authority: Path, port: int) -> AsyncIterator[FakeCluster]:
    contexts = {face: gateway_context(pair.cert, pair.key, authority, face) for face in Face}
    async with fake_cluster(contexts=contexts.__getitem__) as cluster:
        cluster.directory.known[_NODE] = node(_NODE, f"https://127.0.0.1:{port}")
        await cluster.gateway.members.refresh()
        cluster.puts("web", _NODE)
        yield cluster


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("in_common_name", [True, False])
async def test_the_way_is_open_to_gateways(authority: Authority, in_common_name: bool) -> None:
    pair = authority.sign("gateway", in_common_name=in_common_name)
    async with (
        _listening(authority.sign(_NODE), authority.file) as listening,
        _gateway(pair, authority.file, listening.port) as cluster,
        ClientSession() as client,
        client.get(f"{cluster.url}/api/sessions/web") as answer,
    ):
        assert await answer.json() == {"face": "API"}


async def _knock(port: int, context: ssl.SSLContext, *, closing: bool = False) -> bytes:
    """What comes back for a request that is sent at once; `closing`: the last one."""
    more = b"Connection: close\r\n" if closing else b""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return b""
    try:
        writer.write(b"DELETE /api/sessions/web HTTP/1.1\r\nHost: a\r\n" + more + b"\r\n")
        return await reader.read()
    except (ssl.SSLError, ConnectionError):
        return b""
    finally:
        writer.transport.abort()
        with suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.endswith(".tls")]


async def test_nobody_else_is_heard(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Foreign, forged, expired, a node's, none at all: each is refused with one plain line."""
    caplog.set_level(logging.WARNING)
    foreign = Authority(tmp_path, "foreign")
    cases = {
        "unable to get local issuer certificate": foreign.sign("gateway"),
        "certificate has expired": authority.sign("gateway", days=-1),
        "its certificate is that of node-2, somebody, not of gateway": authority.sign("node-2"),
        "it shows no certificate": None,
    }
    for reason, pair in cases.items():
        caplog.clear()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols([Face.API])
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        async with _listening(authority.sign(_NODE), authority.file) as listening:
            assert await _knock(listening.port, context) == b""
            assert not listening.heard
        (line,) = _lines(caplog)
        assert line == (
            f"a connection for gateways was refused: {reason}; a gateway needs a certificate of the"
            " name gateway by an authority in PADDOCK_NODE_CA"
        )


async def test_plain_http_is_not_heard(authority: Authority) -> None:
    async with _listening(authority.sign(_NODE), authority.file) as listening:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"GET /api/sessions HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()
        assert not listening.heard


async def test_lines_about_the_refused_are_few(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with _listening(authority.sign(_NODE), authority.file) as listening:
        for _ in range(20):
            await _knock(listening.port, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert 1 <= len(_lines(caplog)) < 20


@pytest.mark.parametrize("kind", ["another node's", "foreign", "expired"])
async def test_a_gateway_asks_the_right_node_only(
    authority: Authority, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What answers at the node's address has not the node's name: no request, no credential."""
    pair = {
        "another node's": authority.sign("node-2"),
        "foreign": Authority(tmp_path, "foreign").sign(_NODE),
        "expired": authority.sign(_NODE, days=-1),
    }[kind]
    async with (
        _listening(pair, authority.file) as listening,
        _gateway(authority.sign("gateway"), authority.file, listening.port) as cluster,
        ClientSession() as client,
    ):
        for _ in range(2):
            async with client.get(f"{cluster.url}/api/sessions/web") as answer:
                assert (answer.status, (await answer.json())["node"]) == (503, _NODE)
        assert not listening.heard
    (line,) = _complaints(caplog)
    assert "make its certificate anew, by an authority in PADDOCK_GATEWAY_CA" in line


def _complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the gateway says of nodes that it can't reach."""
    lines = [each.getMessage() for each in caplog.records if each.name == "gateway.members"]
    return [line for line in lines if "can't be reached" in line]


async def test_a_gateway_that_is_refused_says_so(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign one has a line in its own log, too, with what to do; no request was heard."""
    foreign = Authority(tmp_path, "foreign").sign("gateway")
    async with (
        _listening(authority.sign(_NODE), authority.file) as listening,
        _gateway(foreign, authority.file, listening.port) as cluster,
        ClientSession() as client,
    ):
        for _ in range(2):
            async with client.get(f"{cluster.url}/api/sessions/web") as answer:
                assert (answer.status, (await answer.json())["code"]) == (502, "node_unavailable")
        assert not listening.heard
    (line,) = _complaints(caplog)
    assert "refuses this gateway's certificate" in line
    assert "`paddock doctor --gateway`" in line


async def test_ports_and_api_are_two_applications(authority: Authority) -> None:
    """No header makes one of the other: the handshake says which is meant."""
    gateway = authority.sign("gateway")
    contexts = {
        face: gateway_context(gateway.cert, gateway.key, authority.file, face) for face in Face
    }
    async with _listening(authority.sign(_NODE), authority.file) as listening:
        async with fake_cluster(previews=True, contexts=contexts.__getitem__) as cluster:
            url = f"https://127.0.0.1:{listening.port}"
            cluster.directory.known[_NODE] = node(_NODE, url)
            await cluster.gateway.members.refresh()
            cluster.puts("web", _NODE)
            async with (
                ClientSession() as client,
                client.get(f"{cluster.url}/s/web/8000/api") as answer,
            ):
                assert await answer.json() == {"face": "PREVIEWS"}
            async with (
                ClientSession() as client,
                client.get(
                    f"{cluster.url}/x", headers={"Host": "8000-web.ports.example"}
                ) as answer,
            ):
                assert await answer.json() == {"face": "PREVIEWS"}
        # A gateway that names neither gets nothing.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(gateway.cert, gateway.key)
        listening.heard.clear()
        assert await _knock(listening.port, context) == b""
        assert not listening.heard


async def test_only_nodes_are_heard_where_sessions_move(authority: Authority) -> None:
    """No gateway reaches what nodes ask each other, and no node what gateways ask."""
    heard_of = {
        ("node-2", Face.NODES): True,
        ("gateway", Face.NODES): False,
        ("node-2", Face.API): False,
        ("node-2", Face.PREVIEWS): False,
    }
    async with _listening(authority.sign(_NODE), authority.file) as listening:
        for (name, face), is_heard in heard_of.items():
            listening.heard.clear()
            pair = authority.sign(name)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.set_alpn_protocols([face])
            context.load_cert_chain(pair.cert, pair.key)
            answer = await _knock(listening.port, context, closing=True)
            assert (answer != b"", bool(listening.heard)) == (is_heard, is_heard), (name, face)


def test_files_that_are_not_what_they_should_be(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.sign(_NODE), authority.sign("node-2")
    none = tmp_path / "none"
    text = tmp_path / "text"
    text.write_text("no certificate")
    for cert, key, ca, named in (
        (none, pair.key, authority.file, "No such file"),
        (pair.cert, other.key, authority.file, "is no certificate in PEM, or not that of the key"),
        (pair.cert, pair.key, none, "PADDOCK_NODE_CA"),
        (pair.cert, pair.key, text, "is no certificate in PEM"),
    ):
        with pytest.raises(ConfigError, match=named):
            node_context(cert, key, ca)


@asynccontextmanager
async def _real_node(plane: ServedPlane, authority: Authority) -> AsyncIterator[int]:
    """A control plane with the fake engine that listens for gateways."""
    runner = web.AppRunner(
        create_app(plane.plane), handler_cancellation=True, **http_options(plane.plane)
    )
    await runner.setup()
    settings = _settings(authority.sign(_NODE), authority.file)
    async with for_gateways(settings, {Face.API: runner}, lambda text: None) as port:
        assert port is not None
        yield port
    await runner.cleanup()


async def test_who_the_client_is_only_gateways_say(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "paddock.access")
    claimed = {"Authorization": f"Bearer {KEY}", "X-Forwarded-For": "192.0.2.66"}
    async with (
        served_plane() as plane,
        _real_node(plane, authority) as port,
        _gateway(authority.sign("gateway"), authority.file, port) as cluster,
        ClientSession() as client,
    ):
        for url in (cluster.url, plane.address.rstrip("/")):
            async with client.get(f"{url}/api/sessions/none", headers=claimed) as answer:
                assert answer.status == 404
    lines = [each for each in caplog.records if each.name == "paddock.access"]
    clients = [vars(line).get("client") for line in lines if "principal" in vars(line)]
    assert clients == ["127.0.0.1", None]


async def test_a_session_of_a_real_node(authority: Authority) -> None:
    """Created, used and ended through a gateway, which gives nobody a right."""
    key = {"Authorization": f"Bearer {KEY}"}
    async with (
        served_plane() as plane,
        _real_node(plane, authority) as port,
        _gateway(authority.sign("gateway"), authority.file, port) as cluster,
        ClientSession(cluster.url) as client,
    ):
        async with client.post("/api/sessions", json={"permission_level": "low"}) as answer:
            assert answer.status == 401
        body = {"permission_level": "low"}
        async with client.post("/api/sessions", json=body, headers=key) as answer:
            assert answer.status == 201
            session = await answer.json()
        path = f"/api/sessions/{session['id']}"
        handle = {"Authorization": f"Bearer {session['handle']}"}
        async with client.post(f"{path}/exec", json={"command": "ls"}, headers=handle) as answer:
            assert answer.status == 200, await answer.text()
        async with client.delete(path, headers=handle) as answer:
            assert answer.status == 403
        for headers in ({}, {"Authorization": "Bearer forged"}):
            async with client.get(path, headers=headers) as answer:
                assert answer.status == 401
        async with client.get(path, headers=key | {"Host": "rebound.example"}) as answer:
            assert answer.status == 421
        async with client.delete(path, headers=key) as answer:
            assert (answer.status, (await answer.json())["status"]) == (200, "completed")
