"""Inspected connections, with real TLS servers: what is denied reaches no server."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rules.egress.outgoing_request import Glob
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Rules
from orchestrator.sandbox.egress.authority import public_directory
from orchestrator.sandbox.egress.interception import Interception
from tests.support.egress import Web, certificate, hello, web
from tests.unit.test_egress_exchange import Client

pytestmark = pytest.mark.asyncio

HOST = "allowed.example"
RULES = Rules((Rule(HOST, methods=("GET", "POST"), paths=(Glob("/in/**"),), inspect=True),))


class Inside(Client):
    """A client that begins TLS in a tunnel."""

    def __init__(self, server: Web, directory: Path, trusted: Path | None, **limits: Any) -> None:
        super().__init__(server, Interception(directory, trusted), **limits)
        self.rules = RULES
        self.port = server.port
        self.tls = ssl.create_default_context(cafile=public_directory(directory) / "ca.pem")
        self.certificate: dict[str, Any] = {}

    async def ask(self, data: bytes, name: str = HOST, chosen: str = HOST) -> bytes:
        """Opens a tunnel to `chosen`, begins TLS for `name`, and returns all that is answered."""
        reader, writer = await asyncio.open_unix_connection(sock=self.ours)
        serving = asyncio.create_task(self.run())
        try:
            writer.write(f"CONNECT {chosen}:{self.port} HTTP/1.1\r\n\r\n".encode())
            established = await reader.readuntil(b"\r\n\r\n")
            assert established.startswith(b"HTTP/1.1 200 "), established
            await writer.start_tls(self.tls, server_hostname=name)
            self.certificate = writer.get_extra_info("peercert")
            writer.write(data)
            return await reader.read()
        finally:
            writer.close()
            await serving
            await self.records.drain()

    def get(self, path: str = "/in/a", more: str = "", method: str = "GET") -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n{more}\r\n".encode()


@asynccontextmanager
async def inside(
    tmp_path: Path, *, named: str = HOST, trusted: bool = True, **limits: Any
) -> AsyncIterator[tuple[Web, Inside]]:
    tls = certificate(tmp_path, named)
    async with web(hello(), tls) as server:
        yield server, Inside(server, tmp_path, tmp_path / "cert.pem" if trusted else None, **limits)


async def test_a_request_is_decided_recorded_and_passed_on(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        assert await client.ask(client.get("/in/a?b=c", "X: y\r\n")) == server.answer
        assert server.received == [
            f"GET /in/a?b=c HTTP/1.1\r\nHost: {HOST}:{server.port}\r\nX: y\r\n"
            "Connection: close\r\n\r\n".encode()
        ]
        assert client.evidence.connections_before == 0
        rule = f"allow {HOST} GET,POST /in/**"
        assert client.evidence.said == [f"allowed {HOST} by {rule}", f"closed {HOST}: None"]
        assert client.evidence.ends[0].received == len(server.answer)
        assert client.certificate["subjectAltName"] == (("DNS", HOST),)


async def test_bodies_pass_in_both_forms(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        body = b"x" * 300_000
        await client.ask(client.get(more=f"Content-Length: {len(body)}\r\n", method="POST") + body)
        assert server.received[0].endswith(b"\r\n\r\n" + body)
    async with inside(tmp_path) as (server, client):
        chunked = b"5\r\nhello\r\n0\r\n\r\n"
        request = client.get(more="Transfer-Encoding: chunked\r\n", method="POST")
        await client.ask(request + chunked)
        assert server.received[0].endswith(chunked)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("DELETE", "/in/a"), ("GET", "/out"), ("GET", "/in/../out"), ("GET", "/in/%2e%2e/out")),
        *(("GET", "/in/..%2fout"), ("GET", "//in/a"), ("GET", "/in/a;b"), ("get", "/in/a")),
    ],
)
async def test_what_no_rule_allows_is_denied_inside(tmp_path: Path, method: str, path: str) -> None:
    async with inside(tmp_path) as (server, client):
        answer = await client.ask(client.get(path, method=method))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"Rule: not-listed" in answer
        assert client.evidence.said == [f"denied {HOST} by not-listed"]
        assert server.connections == 0


@pytest.mark.parametrize(
    "request_",
    [
        "GET http://allowed.example/in/a HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
        "GET https://other.example/in/a HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "GET /in/a HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "GET /in/a HTTP/1.1\r\nHost: allowed.example\r\nHost: allowed.example\r\n\r\n",
        "GET /in/a HTTP/1.1\r\n\r\n",
        "GET /in/a HTTP/1.1\r\nHost: allowed.example:1\r\n\r\n",
        "GET /in/a#b HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
        "CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST /in/a HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 1\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused(tmp_path: Path, request_: str) -> None:
    async with inside(tmp_path) as (server, client):
        answer = await client.ask(request_.encode())
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert (server.connections, client.evidence.said) == (0, [])


async def test_a_second_request_in_the_tunnel_is_not_passed_on(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        await client.ask(client.get() + client.get("/out", method="DELETE"))
        assert b"DELETE" not in b"".join(server.received)
        assert server.connections == 1


async def test_an_upgrade_is_not_passed_on(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        more = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
        await client.ask(client.get(more=more))
        assert b"pgrade" not in server.received[0]


async def test_another_tls_name_gets_no_certificate(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.ask(client.get(), name="other.example")
        assert client.evidence.said == [f"denied {HOST} by tls-refused"]
        assert server.connections == 0


async def test_a_client_that_does_not_trust_the_authority_is_on_record(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        client.tls = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.ask(client.get())
        assert client.evidence.said == [f"denied {HOST} by tls-refused"]
        assert server.connections == 0


async def test_http_2_is_not_agreed(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        client.tls.set_alpn_protocols(["h2", "http/1.1"])
        assert await client.ask(client.get()) == server.answer


@pytest.mark.parametrize(("named", "trusted"), [("other.example", True), (HOST, False)])
async def test_an_upstream_without_a_valid_certificate_gets_nothing(
    tmp_path: Path, named: str, trusted: bool
) -> None:
    async with inside(tmp_path, named=named, trusted=trusted) as (server, client):
        answer = await client.ask(client.get())
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert f"The certificate of {HOST} at port {server.port} is not valid".encode() in answer
        assert server.received == []
        assert "is not valid" in str(client.evidence.ends[0].error)


async def test_an_upstream_without_tls_gets_no_request(tmp_path: Path) -> None:
    async with web(hello()) as server:
        client = Inside(server, tmp_path, None, connect_seconds=0.5)
        answer = await client.ask(client.get())
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"/in/" not in b"".join(server.received)


async def test_a_head_inside_is_waited_for_and_read_only_so_long(tmp_path: Path) -> None:
    async with inside(tmp_path, head_seconds=0.2) as (_, client):
        assert (await client.ask(b"GET /in/a HTTP/1.1\r\n")).startswith(b"HTTP/1.1 408 ")
    async with inside(tmp_path) as (_, client):
        long = client.get(more=f"X: {'y' * 20_000}\r\n")
        assert (await client.ask(long)).startswith(b"HTTP/1.1 431 ")


def plain(server: Web, more: str = "") -> bytes:
    at = f"{HOST}:{server.port}"
    return f"GET http://{at}/in/a HTTP/1.1\r\nHost: {at}\r\n{more}\r\n".encode()


async def test_an_http_request_goes_out_in_tls_if_a_rule_says_so(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        client.rules = Rules((Rule(HOST, paths=(Glob("/in/**"),), upgrade=True),))
        # The client of the test sends no head in clear to a TLS server.
        assert await client.say(plain(server)) == server.answer
        assert server.received[0].startswith(b"GET /in/a HTTP/1.1\r\n")
        (filled,) = client.filled
        assert (filled.secure, filled.upgraded) == (True, True)


@pytest.mark.parametrize(("named", "trusted"), [("other.example", True), (HOST, False)])
async def test_an_upgraded_request_needs_a_valid_certificate(
    tmp_path: Path, named: str, trusted: bool
) -> None:
    async with inside(tmp_path, named=named, trusted=trusted) as (server, client):
        client.rules = Rules((Rule(HOST, upgrade=True),))
        answer = await client.say(plain(server))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"is not valid" in answer
        assert server.received in ([], [b""])


@pytest.mark.slow
async def test_a_request_that_is_not_upgraded_gets_no_value_in_clear(tmp_path: Path) -> None:
    async with web(hello()) as server:
        client = Inside(server, tmp_path, None)
        client.rules = Rules((Rule(HOST), Rule("other.example", upgrade=True)))
        assert await client.say(plain(server)) == server.answer
        assert not client.filled[0].secure
    # No server in clear gets what a rule upgrades.
    async with web(hello()) as server:
        client = Inside(server, tmp_path, None)
        client.rules = Rules((Rule(HOST), Rule(HOST, upgrade=True)))
        assert (await client.say(plain(server))).startswith(b"HTTP/1.1 502 ")
        assert b"in/a" not in b"".join(server.received)


async def test_what_is_denied_is_not_upgraded(tmp_path: Path) -> None:
    async with inside(tmp_path) as (server, client):
        client.rules = Rules((Rule(HOST, paths=(Glob("/out/**"),), upgrade=True),))
        assert (await client.say(plain(server))).startswith(b"HTTP/1.1 403 ")
        assert server.connections == 0
