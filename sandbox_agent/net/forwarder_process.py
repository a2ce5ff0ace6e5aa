"""The forwarder's own process: relays bytes between loopback and the proxy's socket.

The forwarder does not read the bytes. The proxy decides, and knows the session by the socket. The
forwarder's side of the socket is named after the program that has the connection; this name is only
advice. The forwarder ends connections that no process has any more, so that they don't take the
room of others.
"""

import contextlib
import itertools
import os
import selectors
import socket
import time
from typing import NamedTuple, NoReturn

from sandbox_agent.decide.protocol import EGRESS_DIR, EGRESS_SOCKET_NAME, FORWARDER_UID
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.net import program_finder
from sandbox_agent.net.connection_tables import ConnectionTables
from sandbox_agent.net.relay import Relay, run_confined

# The proxy serves no more at once; further connections wait in the backlog.
MOST_CONNECTIONS = 64
# After this time, a connection goes on without its program's name.
_FINDING_SECONDS = 0.5
# How often to check whether clients from which nothing is read still exist: their end causes no
# event. The first check comes later than most answers, so that most clients need none.
_CHECK_SECONDS, _FIRST_CHECK_SECONDS = 1.0, 0.1
# After so many checks, what a client that is gone has sent is dropped if the proxy is slow.
_PASSING_CHECKS = 5


def run(listener: socket.socket, kernel: Kernel, uid: int) -> NoReturn:
    """Runs in a new child of the agent; `uid` is the session's."""
    proxy = os.path.join(EGRESS_DIR, EGRESS_SOCKET_NAME)
    finder = program_finder.start(uid)
    tables = ConnectionTables(listener.getsockname()[1])
    kept = [listener.fileno(), *tables.descriptors, *([] if finder is None else [finder.fileno()])]

    def work() -> None:
        Relays(listener, proxy, tables, finder).run()

    run_confined("forwarder", FORWARDER_UID, kernel, kept, work)


class _Asked(NamedTuple):
    """A connection whose program is being found, until a time of the monotonic clock."""

    client: socket.socket
    port: int
    until: float


class Relays:
    """All connections; serves until an error."""

    def __init__(
        self,
        listener: socket.socket,
        proxy: str,
        tables: ConnectionTables,
        finder: socket.socket | None = None,
    ) -> None:
        """`finder` is the socket of `program_finder`; without it, no program is known.

        `close` closes `tables` and `finder`.
        """
        self._listener = listener
        self._proxy = proxy
        self._tables = tables
        self._finder = finder
        self._selector = selectors.DefaultSelector()
        # The relays, with the ports of their clients.
        self._open: dict[Relay, int] = {}
        # The relays that read nothing from their client: how many checks have found it gone.
        self._unread: dict[Relay, int] = {}
        self._next_check = 0.0
        # The number of checks.
        self.checks = 0
        # The open questions by their number, the oldest first.
        self._asked: dict[int, _Asked] = {}
        self._numbers = itertools.count()
        self._accepting = False
        if finder is not None:
            self._selector.register(finder, selectors.EVENT_READ)

    def run(self) -> NoReturn:
        """Raises: OSError if the selector fails."""
        while True:
            self.step()

    def step(self, timeout: float | None = None) -> None:
        """Serves what is ready."""
        self._accept_while_room()
        for key, events in self._selector.select(self._patience(timeout)):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._finder:
                self._answered()
            elif key.data in self._open:
                self._serve(key.data, key.fileobj, events)
        if self._unread and self._next_check <= time.monotonic():
            self._check_clients()
        while self._asked and next(iter(self._asked.values())).until <= time.monotonic():
            self._connect(next(iter(self._asked)), "")

    def close(self) -> None:
        """Ends all connections."""
        for relay in self._open:
            relay.close()
        for asked in self._asked.values():
            asked.client.close()
        self._open.clear()
        self._unread.clear()
        self._tables.close()
        if self._finder is not None:
            self._finder.close()
        self._selector.close()

    def _accept_while_room(self) -> None:
        room = len(self._open) + len(self._asked) < MOST_CONNECTIONS
        if room and not self._accepting:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._accepting and not room:
            self._selector.unregister(self._listener)
        self._accepting = room

    def _patience(self, timeout: float | None) -> float | None:
        """How long to wait for an event, until a name takes too long or a check is due."""
        times = [self._next_check] if self._unread else []
        if self._asked:
            times.append(next(iter(self._asked.values())).until)
        if not times:
            return timeout
        left = max(0.0, min(times) - time.monotonic())
        return left if timeout is None else min(timeout, left)

    def _serve(self, relay: Relay, ready: object, events: int) -> None:
        if not relay.serve(ready, events):
            self._forget(relay)
        elif relay.first_unread and relay not in self._unread:
            if not self._unread:
                self._next_check = time.monotonic() + _FIRST_CHECK_SECONDS
            self._unread[relay] = 0

    def _check_clients(self) -> None:
        """Ends the connections whose clients are gone, once what they sent has passed."""
        self._next_check = time.monotonic() + _CHECK_SECONDS
        self.checks += 1
        try:
            live_ports = self._tables.ports()
        except (OSError, ValueError):  # the clients' state is unknown
            return
        for relay in list(self._unread):
            if not relay.first_unread:
                del self._unread[relay]
                continue
            self._unread[relay] = 0 if self._open[relay] in live_ports else self._unread[relay] + 1
            gone = self._unread[relay] > 0
            if gone and (relay.passed_on or self._unread[relay] > _PASSING_CHECKS):
                relay.close()
                self._forget(relay)

    def _forget(self, relay: Relay) -> None:
        del self._open[relay]
        self._unread.pop(relay, None)

    def _accept(self) -> None:
        try:
            client, (_, port) = self._listener.accept()
        except OSError:  # the client is gone already
            return
        number = next(self._numbers)
        self._asked[number] = _Asked(client, port, time.monotonic() + _FINDING_SECONDS)
        try:
            if self._finder is None:
                raise ConnectionResetError
            program_finder.ask(self._finder, number, port)
        except OSError:
            self._connect(number, "")

    def _answered(self) -> None:
        if self._finder is None:
            return
        try:
            number, program = program_finder.answer(self._finder)
        except BlockingIOError:
            return
        except (OSError, ValueError):  # the finder has ended
            self._selector.unregister(self._finder)
            self._finder.close()
            self._finder = None
            return
        if number in self._asked:
            self._connect(number, program)

    def _connect(self, number: int, program: str) -> None:
        client, port, _ = self._asked.pop(number)
        proxy = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Without it, parts of an answer wait 40 ms until the client acknowledges earlier ones.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if program:
                with contextlib.suppress(OSError):
                    proxy.bind(f"\0{program}\0{number}")
            proxy.setblocking(False)
            proxy.connect(self._proxy)
        except OSError:  # no control plane listens now, or it is busy
            client.close()
            proxy.close()
            return
        client.setblocking(False)
        self._open[Relay(self._selector, client, proxy)] = port
