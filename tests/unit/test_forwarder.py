"""The forwarder relays bytes in both directions, and holds little of them."""

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.rules.egress.outgoing_request import UNKNOWN, program_of
from sandbox_agent.core.proxy_variables import proxy_variables
from sandbox_agent.net.connection_tables import ConnectionTables
from sandbox_agent.net.forwarder_process import MOST_CONNECTIONS, Relays
from sandbox_agent.net.relay import BUFFER_BYTES


class Relayed:
    """A forwarder that is driven by the test, and the proxy's socket."""

    def __init__(self, path: Path, *, finds: bool = False) -> None:
        """`finds`: the test answers for the finder of programs."""
        self.proxy = socket.socket(socket.AF_UNIX)
        self.proxy.bind(str(path))
        self.proxy.listen(100)
        self.proxy.settimeout(10)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.listener.setblocking(False)
        self.finder, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked.setblocking(False)
        self.finder.settimeout(10)
        tables = ConnectionTables(self.listener.getsockname()[1])
        self.relays = Relays(self.listener, str(path), tables, asked if finds else None)
        if not finds:
            asked.close()

    def client(self) -> socket.socket:
        client = socket.create_connection(self.listener.getsockname(), 10)
        client.settimeout(10)
        return client

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """A client, and its connection to the proxy."""
        client = self.client()
        self.relays.step(10)
        return client, self.proxy.accept()[0]

    def close(self) -> None:
        self.relays.close()
        self.finder.close()
        self.proxy.close()
        self.listener.close()


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Relayed]:
    made = Relayed(tmp_path / "s")
    yield made
    made.close()


def steps(relayed: Relayed, number: int = 20) -> None:
    for _ in range(number):
        relayed.relays.step(0)


def test_bytes_pass_in_both_directions_until_both_end(relayed: Relayed) -> None:
    client, proxy = relayed.pair()
    with client, proxy:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        steps(relayed)
        assert proxy.recv(100) == b"question"
        assert proxy.recv(100) == b""
        proxy.sendall(b"answer")
        proxy.close()
        steps(relayed)
        assert client.recv(100) == b"answer"
        assert client.recv(100) == b""


def test_a_slow_reader_is_waited_for(relayed: Relayed) -> None:
    client, proxy = relayed.pair()
    with client, proxy:
        for each in (client, proxy):
            each.setblocking(False)
        sent = 0
        for _ in range(400):
            with suppress(BlockingIOError):
                sent += proxy.send(b"x" * 65536)
            relayed.relays.step(0)
        # The kernel's buffers of two connections, and one of ours.
        assert sent < 2**24
        got = 0
        for _ in range(20_000):
            relayed.relays.step(0)
            try:
                got += len(client.recv(65536))
            except BlockingIOError:
                if got == sent:
                    break
        assert got == sent
        assert sent > BUFFER_BYTES


def test_only_so_many_connections_are_open(relayed: Relayed) -> None:
    clients = [relayed.client() for _ in range(MOST_CONNECTIONS + 5)]
    steps(relayed, 200)
    served = []
    relayed.proxy.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            served.append(relayed.proxy.accept()[0])
    assert len(served) == MOST_CONNECTIONS
    for each in (*clients, *served):
        each.close()
    steps(relayed, 300)
    # The others were served.
    with suppress(BlockingIOError):
        while True:
            served.append(relayed.proxy.accept()[0])
    for each in served:
        each.close()
    assert len(served) == MOST_CONNECTIONS + 5
    steps(relayed, 300)


def test_without_a_proxy_the_client_is_closed(relayed: Relayed) -> None:
    relayed.proxy.close()
    with relayed.client() as client:
        steps(relayed)
        assert client.recv(1) == b""


def test_a_reset_closes_both(relayed: Relayed) -> None:
    client, proxy = relayed.pair()
    with proxy:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        steps(relayed)
        assert proxy.recv(1) == b""


@pytest.mark.slow
def test_a_connection_ends_with_its_program_and_not_with_what_it_sends(relayed: Relayed) -> None:
    living, proxy = relayed.pair()
    dying, abandoned = relayed.pair()
    with living, proxy, abandoned:
        for client in (living, dying):
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
        steps(relayed)
        shared = dying.dup()  # as a child of the program has it
        dying.close()
        look(relayed)
        # It was told the end of what is sent, but not of the connection.
        assert abandoned.recv(100) == b"question"
        assert (abandoned.recv(1), hung_up(abandoned)) == (b"", False)
        shared.close()
        look(relayed)
        assert hung_up(abandoned)
        look(relayed)
        proxy.sendall(b"answer")
        steps(relayed)
        assert living.recv(100) == b"answer"


def test_what_a_client_that_is_gone_has_sent_is_passed_on(relayed: Relayed) -> None:
    client, proxy = relayed.pair()
    with proxy:
        client.settimeout(0)
        sent = 0
        with suppress(BlockingIOError):
            while True:  # until the proxy's side and the forwarder's are full
                sent += client.send(b"x" * 65536)
                steps(relayed, 2)
        client.close()
        look(relayed)
        assert not hung_up(proxy)
        proxy.settimeout(0)
        got = 0
        for _ in range(20_000):
            relayed.relays.step(0)
            with suppress(BlockingIOError):
                if not (data := proxy.recv(65536)):
                    break
                got += len(data)
        assert got == sent
        look(relayed)
        assert hung_up(proxy)


@pytest.mark.slow
def test_a_proxy_that_reads_nothing_keeps_no_client_that_is_gone(relayed: Relayed) -> None:
    client, proxy = relayed.pair()
    with proxy:
        client.settimeout(0)
        with suppress(BlockingIOError):
            while True:
                client.send(b"x" * 65536)
                steps(relayed, 2)
        client.close()
        for _ in range(10):
            look(relayed)
            if hung_up(proxy):
                break
        assert hung_up(proxy)


def look(relayed: Relayed) -> None:
    """Serves until it checks its clients again."""
    checks = relayed.relays.checks
    while relayed.relays.checks == checks:
        relayed.relays.step(10)


def hung_up(proxy: socket.socket) -> bool:
    """Whether the other side of a UNIX connection has closed both directions."""
    poll = select.poll()
    poll.register(proxy, 0)
    return bool(poll.poll(0))


def test_programs_find_it_by_both_spellings() -> None:
    variables = proxy_variables(egress=True)
    assert variables["http_proxy"] == variables["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert proxy_variables(egress=False) == {}


@pytest.fixture
def finding(tmp_path: Path) -> Iterator[Relayed]:
    made = Relayed(tmp_path / "s", finds=True)
    yield made
    made.close()


def asked(relayed: Relayed) -> tuple[bytes, socket.socket]:
    """The number of the question about a new client, and the client."""
    client = relayed.client()
    relayed.relays.step(10)
    number, port = relayed.finder.recv(100).split()
    assert int(port) == client.getsockname()[1]
    return number, client


def test_the_proxy_learns_the_program_by_the_socket_s_name(finding: Relayed) -> None:
    (one, first), (two, second) = asked(finding), asked(finding)
    with first, second:
        for number, name in ((two, b"git"), (b"99", b"other"), (one, b"")):
            finding.finder.send(number + b" " + name)
            finding.relays.step(10)
        (proxy, address), (other, nameless) = finding.proxy.accept(), finding.proxy.accept()
        with proxy, other:
            assert (program_of(address), program_of(nameless)) == ("git", UNKNOWN)
            second.sendall(b"question")
            steps(finding)
            assert proxy.recv(100) == b"question"


@pytest.mark.parametrize("answer", [b"x", b"\xff y", b"1"])
def test_without_a_finder_no_connection_waits(finding: Relayed, answer: bytes) -> None:
    _, client = asked(finding)
    if answer == b"1":
        finding.finder.close()
    else:
        finding.finder.send(answer)
    finding.relays.step(10)
    with client:
        for _ in range(50):  # until the time for the answer is over
            finding.relays.step(0.1)
            finding.proxy.setblocking(False)
            with suppress(BlockingIOError):
                proxy, address = finding.proxy.accept()
                break
        assert program_of(address) == UNKNOWN
        proxy.close()
    # Later ones are not asked about.
    with finding.client():
        finding.relays.step(10)
        finding.proxy.settimeout(10)
        finding.proxy.accept()[0].close()


@pytest.mark.parametrize(
    "address", ["", b"", b"\0\0", b"\0git\0", "\0git\x001", b"\0a b\x001", None]
)
def test_other_addresses_name_no_program(address: object) -> None:
    assert program_of(address) == UNKNOWN
