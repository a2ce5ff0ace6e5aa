"""One connection to the proxy, with real servers on loopback."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from orchestrator.ground.errors import AuditUnavailableError, SandboxUnavailableError
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.egress.limits import EGRESS_LIMITS
from orchestrator.rules.egress.outgoing_request import Glob
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Decision, Rules
from orchestrator.rules.egress.usage import EgressUsage
from orchestrator.sandbox.egress.answers import ESTABLISHED
from orchestrator.sandbox.egress.evidence import ConnectionEnd, ConnectionEvidence
from orchestrator.sandbox.egress.exchange import IN_CLEAR, EgressExchange
from orchestrator.sandbox.egress.interception import Interception
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.egress.meter import Meter, SpentError
from orchestrator.sandbox.egress.resolver import listed_addresses
from orchestrator.sandbox.egress.stream import READ_BYTES, accepted
from orchestrator.settings.hosts import Address
from orchestrator.state.budget import Budget
from paddock.contract.words import Kind
from tests.support.egress import Endless, Names, NamesResolver, Web, hello, web
from tests.unit.test_egress_requests import client_hello

pytestmark = pytest.mark.asyncio


class Kept(ConnectionEvidence):
    """Keeps the evidence in order."""

    def __init__(self, server: Web) -> None:
        self.said: list[str] = []
        self.ends: list[ConnectionEnd] = []
        self.connections_before: int | None = None
        self.broken = False
        self._server = server

    async def allowed(
        self, head: RequestHead, decision: Decision, addresses: tuple[Address, ...]
    ) -> str:
        if self.broken:
            raise AuditUnavailableError("the ledger can't be written")
        await asyncio.sleep(0)
        self.connections_before = self._server.connections
        self.said.append(f"allowed {head.host} by {decision.rule}")
        return "id"

    async def denied(self, head: RequestHead, decision: Decision) -> None:
        self.said.append(f"denied {head.host} by {decision.rule}")

    async def closed(self, head: RequestHead, connection_id: str, ended: ConnectionEnd) -> None:
        self.said.append(f"closed {head.host}: {ended.error}")
        self.ends.append(ended)


class Client:
    """A client of one exchange."""

    def __init__(self, server: Web, interception: Interception, **limits: Any) -> None:
        self.interception = interception
        self.evidence = Kept(server)
        self.budget = Budget(datetime.now(UTC))
        self.records = TaskScope("records")
        self.limits = EGRESS_LIMITS._replace(**limits)
        self.admitted = True
        self.key_limit: int | None = None
        self.filled: list[RequestHead] = []
        self.turns = 0
        self.names = Names()
        self.names.answers = {"allowed.example": [["127.0.0.1"]], "dead.example": [["127.0.0.1"]]}
        self.rules = Rules((Rule("allowed.example"), Rule("dead.example"), Rule("gone.example")))
        self.ours, self._theirs = socket.socketpair()
        self.ours.setblocking(False)

    def admit(self) -> None:
        if not self.admitted:
            raise SandboxUnavailableError("the session is paused")

    def fill(self, head: RequestHead) -> RequestHead:
        self.filled.append(head)
        return head

    async def turn(self) -> None:
        self.turns += 1

    async def run(self) -> None:
        key_bytes = KeyBytes(KeyRing({}), KeyLimits(max_egress_bytes_per_day=self.key_limit))
        usage, most = EgressUsage(), self.limits.transfer_bytes
        meter = Meter(self.budget, key_bytes, "ci", usage, most)
        exchange = EgressExchange(
            await accepted(self._theirs, self.limits.head_bytes),
            *(self.rules, NamesResolver(self.names), self.interception, self.evidence, meter),
            *(self.limits, self.admit, self.fill, self.records, self.turn),
        )
        await exchange.run()

    async def say(self, data: bytes) -> bytes:
        """Sends all of it, and returns everything that is answered."""
        reader, writer = await asyncio.open_unix_connection(sock=self.ours)
        serving = asyncio.create_task(self.run())
        try:
            writer.write(data)
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""
        finally:
            writer.close()
            await serving
            await self.records.drain()
        return answer


@asynccontextmanager
async def serving(server: Web | None = None, **limits: Any) -> AsyncIterator[tuple[Web, Client]]:
    async with web(server or hello()) as served:
        with TemporaryDirectory() as directory:
            yield served, Client(served, Interception(Path(directory)), **limits)


def get(server: Web, host: str = "allowed.example", more: str = "") -> bytes:
    at = f"{host}:{server.port}"
    return f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{more}\r\n".encode()


async def test_the_record_comes_before_the_connection() -> None:
    async with serving() as (server, client):
        answer = await client.say(get(server))
        assert answer == server.answer
        assert client.evidence.connections_before == 0
        assert client.evidence.said == [
            "allowed allowed.example by allow allowed.example",
            "closed allowed.example: None",
        ]
        assert client.evidence.ends[0].received == len(server.answer)


async def test_without_a_record_there_is_no_connection() -> None:
    async with serving() as (server, client):
        client.evidence.broken = True
        assert (await client.say(get(server))).startswith(b"HTTP/1.1 503 ")
        assert server.connections == 0


async def test_a_session_that_may_not_work_reaches_nothing() -> None:
    async with serving() as (server, client):
        client.admitted = False
        assert (await client.say(get(server))).startswith(b"HTTP/1.1 503 ")
        assert (server.connections, client.evidence.said) == (0, [])


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1", "[::1]"])
async def test_what_is_not_allowed_is_denied(host: str) -> None:
    async with serving() as (server, client):
        answer = await client.say(get(server, host))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"Rule: not-listed\n" in answer
        assert (server.connections, client.names.asked) == (0, [])


async def test_a_name_without_an_address_is_a_bad_gateway() -> None:
    async with serving() as (server, client):
        assert (await client.say(get(server, "gone.example"))).startswith(b"HTTP/1.1 502 ")


async def test_a_port_without_a_server_is_a_bad_gateway() -> None:
    async with serving() as (server, client):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            server.port = unused.getsockname()[1]
            answer = await client.say(get(server, "dead.example"))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert client.evidence.said[-1].startswith("closed dead.example: The connection to ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET http://a/ HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", b"431"),
        (b"y" * 100_000, b"431"),
    ],
)
async def test_a_bad_head_is_answered(data: bytes, status: bytes) -> None:
    async with serving() as (server, client):
        assert (await client.say(data)).startswith(b"HTTP/1.1 " + status)
        assert server.connections == 0


async def test_a_head_that_never_ends_is_given_up() -> None:
    async with serving(head_seconds=0.05) as (_, client):
        assert (await client.say(b"GET http://a/ HT")).startswith(b"HTTP/1.1 408 ")


async def test_a_tunnel_waits_for_tls_only_so_long() -> None:
    async with serving(head_seconds=0.05) as (server, client):
        at = f"allowed.example:{server.port}"
        answer = await client.say(f"CONNECT {at} HTTP/1.1\r\n\r\n".encode())
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert client.evidence.said[-1] == "closed allowed.example: nothing was sent for too long"
        assert b"".join(server.received) == b""


@pytest.mark.parametrize("name", ["other.example", None])
async def test_a_tunnel_for_another_name_carries_nothing(name: str | None) -> None:
    async with serving() as (server, client):
        at = f"allowed.example:{server.port}"
        await client.say(f"CONNECT {at} HTTP/1.1\r\n\r\n".encode() + client_hello(name))
        assert "refused: " in client.evidence.said[-1]
        assert b"".join(server.received) == b""


async def test_a_silent_upstream_is_given_up() -> None:
    class Silent(Web):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

    async with serving(Silent(b""), idle_seconds=0.05) as (server, client):
        await client.say(get(server))
        assert client.evidence.said[-1] == "closed allowed.example: nothing was sent for too long"


class Resetting(Web):
    """Resets the connection after its answer, which need not be whole."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        await writer.drain()
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"]
)
async def test_an_upstream_that_resets_is_on_record(answer: bytes) -> None:
    async with serving(Resetting(answer)) as (server, client):
        said = await client.say(get(server))
        assert answer.startswith(said)
        assert client.evidence.said[-1].startswith("closed allowed.example: ")
        assert client.evidence.ends[0].received <= len(answer)


async def test_a_head_of_an_answer_that_never_ends_is_cut() -> None:
    class Heading(Endless):
        def __init__(self) -> None:
            super().__init__()
            self.answer = b"HTTP/1.1 200 OK\r\nX: "

    async with serving(Heading(), transfer_bytes=200_000) as (server, client):
        assert len(await client.say(get(server))) == 200_000
        assert client.evidence.ends[0].received == 200_000


async def test_a_connection_s_limit_cuts_it() -> None:
    async with serving(Endless(), transfer_bytes=200_000) as (server, client):
        assert len(await client.say(get(server))) == 200_000
        assert client.evidence.ends[0].received == 200_000


async def test_the_budget_cuts_it_at_its_last_byte() -> None:
    async with serving(Endless()) as (server, client):
        client.budget.limits[Kind.EGRESS_BYTES] = 100_000
        with pytest.raises(SpentError):
            await client.say(get(server))
        assert client.budget.used(Kind.EGRESS_BYTES) == 100_000


async def test_nothing_after_the_body_is_passed_on() -> None:
    async with serving() as (server, client):
        await client.say(get(server, more="Content-Length: 3\r\n") + b"abcGET /second HTTP/1.1\r\n")
        assert server.received[0].endswith(b"\r\n\r\nabc")


async def test_malformed_chunks_end_the_connection() -> None:
    async with serving() as (server, client):
        chunks = b"3\r\nabcd\r\n0\r\n\r\n"
        await client.say(get(server, more="Transfer-Encoding: chunked\r\n") + chunks)
        assert "refused: " in client.evidence.said[-1]


async def test_a_cancelled_connection_is_on_record() -> None:
    async with serving(Endless()) as (server, client):
        task = asyncio.create_task(client.run())
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client.ours, get(server))
        await loop.sock_recv(client.ours, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.records.drain()
        assert client.evidence.said[-1] == "closed allowed.example: cut"
        client.ours.close()


async def test_a_transfer_ends_with_the_bytes_of_its_key() -> None:
    async with serving(Endless()) as (server, client):
        client.key_limit = 200_000
        await client.say(get(server))
        (end,) = client.evidence.ends
        assert end.sent + end.received == 200_000
        assert end.error == "max_egress_bytes_per_day of the key is used up"


async def test_no_more_is_passed_on_in_one_turn_than_one_read_returns() -> None:
    async with serving(Endless(), transfer_bytes=300_000) as (server, client):
        await client.say(get(server))
        (end,) = client.evidence.ends
        assert client.turns >= end.received / READ_BYTES > 5


class Hanging(Web):
    """Keeps what it receives, and never answers."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.readuntil(b"\r\n\r\n"))
        self.begun.set()
        try:
            while data := await reader.read(65536):
                self.received[-1] += data
        except OSError:
            return
        finally:
            self.ended.set()
            writer.close()


async def test_a_connection_ends_once_its_client_has_gone() -> None:
    """What the client has sent arrives; its end of sending alone ends nothing."""
    async with serving(server := Hanging()) as (_, client):
        task = asyncio.create_task(client.run())
        loop = asyncio.get_running_loop()
        body = b"x" * 300_000
        more = f"Content-Length: {len(body)}\r\n"
        await loop.sock_sendall(client.ours, get(server, more=more) + body)
        await server.begun.wait()
        client.ours.shutdown(socket.SHUT_WR)
        done, _ = await asyncio.wait([task], timeout=0.2)
        assert not done
        client.ours.close()
        async with asyncio.timeout(60):
            await task
            await client.records.drain()
            await server.ended.wait()
        assert server.received[0].endswith(body)
        assert client.evidence.said[-1] == "closed allowed.example: the client has gone"


def in_tunnel(server: Web, path: str = "/a", host: str = "allowed.example") -> bytes:
    """A tunnel and a request without TLS in it, as Node's clients send them."""
    at = f"allowed.example:{server.port}"
    inside = f"GET {path} HTTP/1.1\r\nHost: {host}:{server.port}\r\nConnection: keep-alive\r\n\r\n"
    return f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n{inside}".encode()


async def test_a_request_without_tls_in_a_tunnel_is_decided_by_itself() -> None:
    async with serving() as (server, client):
        answer = await client.say(in_tunnel(server))
        assert answer == ESTABLISHED + server.answer
        assert server.received[-1].startswith(b"GET /a HTTP/1.1\r\n")
        assert client.evidence.said == [
            "allowed allowed.example by allow allowed.example",
            f"closed allowed.example: {IN_CLEAR}",
            "allowed allowed.example by allow allowed.example",
            "closed allowed.example: None",
        ]


async def test_a_request_without_tls_in_a_tunnel_is_told_its_refusal() -> None:
    """Also in one that would be inspected, by the rules about paths."""
    for path, host, status in (
        ("/secret", "allowed.example", b"403 Forbidden"),
        ("/a", "other.example", b"400 Bad Request"),
    ):
        async with serving() as (server, client):
            deny = Rule("allowed.example", paths=(Glob("/secret"),), inspect=True)
            client.rules = Rules(client.rules.allow, (deny,))
            answer = await client.say(in_tunnel(server, path, host))
            assert answer.startswith(ESTABLISHED + b"HTTP/1.1 " + status)
            assert server.received == []


async def test_the_hosts_file_s_names_are_found(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_bytes(b"127.0.0.1 localhost\n10.1.2.3\tIntern.example. other # third\nx intern\n")
    assert listed_addresses("intern.example", hosts) == [ip_address("10.1.2.3")]
    assert listed_addresses("third", hosts) == listed_addresses("intern", hosts) == []
    assert listed_addresses("intern", tmp_path / "absent") == []
