"""The process that connects to a sandbox's ports: what it keeps ready, and what it passes on."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_agent.decide.protocol import PORT_CONNECTED, PORT_REFUSED
from sandbox_agent.net.ports_process import MOST_CONNECTIONS, MOST_READY, PortRelays
from tests.support.free_ports import free_port


class Ways:
    """The process, driven by the test, and the control plane's side of it."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(100)
        self.listener.settimeout(10)
        self.relays = PortRelays(str(path))

    def take(self) -> socket.socket:
        """A connection that is ready."""
        self.steps(2)
        taken = self.listener.accept()[0]
        taken.settimeout(10)
        return taken

    def asked(self, port: int) -> socket.socket:
        """A connection on which that port was named."""
        taken = self.take()
        taken.sendall(port.to_bytes(2, "big"))
        self.steps()
        return taken

    def steps(self, number: int = 20) -> bool:
        served = [self.relays.step(0) for _ in range(number)]
        return all(served)

    def close(self) -> None:
        self.relays.close()
        self.listener.close()


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[Ways]:
    made = Ways(tmp_path / "s")
    yield made
    made.close()


def ready(ways: Ways) -> list[socket.socket]:
    """Every connection that waits to be accepted."""
    found: list[socket.socket] = []
    ways.listener.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            found.append(ways.listener.accept()[0])
    ways.listener.settimeout(10)
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_bytes_pass_to_the_named_port_and_back(ways: Ways, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        taken = ways.asked(server.getsockname()[1])
        with taken, server.accept()[0] as served:
            assert taken.recv(10) == PORT_CONNECTED
            taken.sendall(b"question")
            ways.steps()
            assert served.recv(100) == b"question"
            served.sendall(b"answer")
            served.close()
            ways.steps()
            assert taken.recv(100) == b"answer"
            assert taken.recv(100) == b""


def test_a_port_without_a_listener_is_refused(ways: Ways) -> None:
    with ways.asked(free_port()) as taken:
        assert taken.recv(10) == PORT_REFUSED
        assert taken.recv(10) == b""


def test_the_port_s_connection_ends_with_the_control_plane_s(ways: Ways) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = ways.asked(server.getsockname()[1])
        with server.accept()[0] as served:
            served.settimeout(10)
            taken.close()
            ways.steps()
            assert served.recv(1) == b""


@pytest.mark.parametrize("sent", [b"\x00", b"\x00\x50\x00\x50"])
def test_anything_but_one_port_ends_the_connection(ways: Ways, sent: bytes) -> None:
    with ways.take() as taken:
        taken.sendall(sent)
        ways.steps()
        with suppress(ConnectionResetError):
            assert taken.recv(10) in (b"", PORT_REFUSED)


def test_a_few_connections_are_ready_however_many_are_used(ways: Ways) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        port = server.getsockname()[1]
        ways.steps()
        waiting = ready(ways)
        assert len(waiting) == MOST_READY
        used = []
        while waiting:
            used += waiting
            for each in waiting:
                each.sendall(port.to_bytes(2, "big"))
            ways.steps()
            waiting = ready(ways)
        assert len(used) == MOST_CONNECTIONS
        for each in used:
            each.close()
        ways.steps(100)
        again = ready(ways)
        assert len(again) == MOST_READY
        for each in again:
            each.close()


def test_it_ends_when_nobody_listens(ways: Ways) -> None:
    ways.steps()
    for each in ready(ways):
        each.close()
    ways.listener.close()
    assert not ways.steps()
