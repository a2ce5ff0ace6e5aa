"""The ports' own process: connects the control plane to ports on the sandbox's loopback.

Nothing outside can connect into a sandbox. Instead, this process keeps connections to the control
plane's socket ready. When the control plane names a port on one of them, this
process connects it to the port. It does not read the bytes that follow.
"""

import errno
import os
import selectors
import socket
from typing import NoReturn

from sandbox_agent.decide.protocol import (
    PORT_CONNECTED,
    PORT_REFUSED,
    PORTS_DIR,
    PORTS_SOCKET_NAME,
    PORTS_UID,
)
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.net.relay import Relay, run_confined

# The most connections that wait for a port, and the most in all.
MOST_READY = 4
MOST_CONNECTIONS = 64
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def run(kernel: Kernel) -> NoReturn:
    """Runs in a new child of the agent."""
    path = os.path.join(PORTS_DIR, PORTS_SOCKET_NAME)
    run_confined("ports", PORTS_UID, kernel, [], lambda: PortRelays(path).run())


class PortRelays:
    """All connections. Without any, `run` returns: then the control plane does not listen."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._selector = selectors.DefaultSelector()
        self._ready: set[_Ready] = set()
        self._open: set[Relay] = set()

    def run(self) -> None:
        """Raises: OSError if the selector fails."""
        while self.step():
            pass

    def step(self, timeout: float | None = None) -> bool:
        """Serves what is ready; returns False if there is no connection."""
        self._fill()
        if not self._ready and not self._open:
            return False
        for key, events in self._selector.select(timeout):
            served = key.data
            if served in self._open and not served.serve(key.fileobj, events):
                self._open.remove(served)
            elif served in self._ready and not served.serve(key.fileobj):
                self._ready.remove(served)
                if served.connected is not None:
                    relay = Relay(self._selector, served.host, served.connected, follows_first=True)
                    self._open.add(relay)
        return True

    def close(self) -> None:
        """Ends all connections."""
        for ready in self._ready:
            ready.close()
        for relay in self._open:
            relay.close()
        self._ready.clear()
        self._open.clear()
        self._selector.close()

    def _fill(self) -> None:
        waiting = sum(not each.named for each in self._ready)
        room = MOST_CONNECTIONS - len(self._ready) - len(self._open)
        for _ in range(min(MOST_READY - waiting, room)):
            host = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            host.setblocking(False)
            try:
                host.connect(self._path)
            except OSError:  # no control plane listens now, or it is busy
                host.close()
                return
            self._ready.add(_Ready(self._selector, host))


class _Ready:
    """A connection to the control plane that is not yet connected to a port."""

    def __init__(self, selector: selectors.BaseSelector, host: socket.socket) -> None:
        self.host = host
        # Set once the port has accepted.
        self.connected: socket.socket | None = None
        self.named = False
        self._selector = selector
        self._port = 0
        self._left = list(_LOOPBACK)
        self._trying: socket.socket | None = None
        selector.register(host, selectors.EVENT_READ, self)

    def serve(self, ready: object) -> bool:
        """Takes the next step; returns False once the connection is closed or has its port.

        Then the selector does not watch its sockets any more.
        """
        try:
            if ready is self.host:
                self._read_port()
                return True
            if self._trying is None:
                return True
            if not self._trying.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._finish(self._trying)
                return False
            self._drop()
            self._try_next()
        except OSError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Closes its sockets."""
        self._drop()
        self._selector.unregister(self.host)
        self.host.close()

    def _read_port(self) -> None:
        """Raises: OSError if the control plane has gone, or names no port."""
        data = self.host.recv(2)
        if self.named or len(data) != 2:
            raise ConnectionResetError
        self.named = True
        self._port = int.from_bytes(data, "big")
        self._try_next()

    def _try_next(self) -> None:
        """Begins to connect to the next address.

        Raises: OSError if none is left, after it has sent the refusal.
        """
        while self._left:
            family, address = self._left.pop(0)
            try:
                self._trying = socket.socket(family, socket.SOCK_STREAM)
                self._trying.setblocking(False)
                # Without it, parts of a request wait until the program acknowledges earlier ones.
                self._trying.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                code = self._trying.connect_ex((address, self._port))
            except OSError:  # the sandbox has no IPv6
                self._drop()
                continue
            if code in (0, errno.EINPROGRESS):
                self._selector.register(self._trying, selectors.EVENT_WRITE, self)
                return
            self._drop()
        self.host.send(PORT_REFUSED)
        raise ConnectionRefusedError

    def _finish(self, connected: socket.socket) -> None:
        """Raises: OSError if the control plane has gone."""
        self.host.send(PORT_CONNECTED)
        self._selector.unregister(connected)
        self._selector.unregister(self.host)
        self.connected, self._trying = connected, None

    def _drop(self) -> None:
        if self._trying is not None:
            if self._trying in self._selector.get_map():
                self._selector.unregister(self._trying)
            self._trying.close()
            self._trying = None
