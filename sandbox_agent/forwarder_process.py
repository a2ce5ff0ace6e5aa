"""The forwarder's own process: relays bytes between loopback and the proxy's socket.

It looks at no byte. The proxy decides, and knows the session by the socket.
"""

import os
import selectors
import socket
from typing import NoReturn

from sandbox_agent.protocol import EGRESS_DIR, EGRESS_SOCKET_NAME, FORWARDER_UID
from sandbox_agent.relay import Relay, run_confined

# The proxy serves no more at once; further connections wait in the backlog.
MOST_CONNECTIONS = 64


def run(listener: socket.socket, abi: int) -> NoReturn:
    """Runs in a new child of the agent."""
    proxy = os.path.join(EGRESS_DIR, EGRESS_SOCKET_NAME)
    kept = [listener.fileno()]
    run_confined("forwarder", FORWARDER_UID, abi, kept, lambda: Relays(listener, proxy).run())


class Relays:
    """All connections; serves until an error."""

    def __init__(self, listener: socket.socket, proxy: str) -> None:
        self._listener = listener
        self._proxy = proxy
        self._selector = selectors.DefaultSelector()
        self._open: set[Relay] = set()
        self._accepting = False

    def run(self) -> NoReturn:
        """Raises: OSError if the selector fails."""
        while True:
            self.step()

    def step(self, timeout: float | None = None) -> None:
        """Serves what is ready."""
        self._accept_while_room()
        for key, events in self._selector.select(timeout):
            if key.data is None:
                self._accept()
            elif key.data in self._open and not key.data.serve(key.fileobj, events):
                self._open.remove(key.data)

    def close(self) -> None:
        """Ends all connections."""
        for relay in self._open:
            relay.close()
        self._open.clear()
        self._selector.close()

    def _accept_while_room(self) -> None:
        room = len(self._open) < MOST_CONNECTIONS
        if room and not self._accepting:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._accepting and not room:
            self._selector.unregister(self._listener)
        self._accepting = room

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
            # Or parts of an answer wait 40 ms for the client to acknowledge earlier ones.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # it is gone already
            return
        proxy = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            proxy.setblocking(False)
            proxy.connect(self._proxy)
        except OSError:  # no control plane listens now, or it is busy
            client.close()
            proxy.close()
            return
        client.setblocking(False)
        self._open.add(Relay(self._selector, client, proxy))
