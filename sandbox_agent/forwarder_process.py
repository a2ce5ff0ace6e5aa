"""The forwarder's own process: relays bytes between loopback and the proxy's socket.

It looks at no byte. The proxy decides, and knows the session by the socket.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
from typing import NoReturn

from sandbox_agent.confine import landlock, privileges, syscalls
from sandbox_agent.protocol import EGRESS_DIR, EGRESS_SOCKET_NAME, FORWARDER_UID

# The proxy serves no more at once; further connections wait in the backlog.
MOST_CONNECTIONS = 64
# What is kept of a connection while its other side is slow, per direction.
BUFFER_BYTES = 64 * 1024
_FAILED = 70


def run(listener: socket.socket, abi: int) -> NoReturn:
    """Runs in a new child of the agent."""
    try:
        signal.set_wakeup_fd(-1)
        os.closerange(3, listener.fileno())
        os.closerange(listener.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        _confine(abi)
        Relays(listener, os.path.join(EGRESS_DIR, EGRESS_SOCKET_NAME)).run()
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's loop
        number = getattr(error, "errno", None)
        print(f"forwarder failed: {type(error).__name__} {number}", file=sys.stderr, flush=True)
    finally:
        os._exit(_FAILED)


def _confine(abi: int) -> None:
    """Gives up all privileges, files, and signals to others. Raises: OSError."""
    privileges.drop_to(FORWARDER_UID)
    syscalls.gain_no_privileges()
    ruleset = landlock.ruleset(abi, [], landlock.handled(abi) if abi else 0)
    if ruleset is not None:
        syscalls.landlock_restrict(ruleset)
        os.close(ruleset)


class Relays:
    """All connections; serves until an error."""

    def __init__(self, listener: socket.socket, proxy: str) -> None:
        self._listener = listener
        self._proxy = proxy
        self._selector = selectors.DefaultSelector()
        self._open: set[_Relay] = set()
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
        self._open.add(_Relay(self._selector, client, proxy))


class _Side:
    """One of the two sockets, and the bytes that wait to be written to it."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self.waiting = bytearray()
        self.ended = False  # nothing more can be read from it
        self.finished = False  # nothing more will be written to it
        self.events = 0


class _Relay:
    """One connection."""

    def __init__(
        self, selector: selectors.BaseSelector, client: socket.socket, proxy: socket.socket
    ) -> None:
        self._selector = selector
        self._sides = _Side(client), _Side(proxy)
        self._watch()

    def serve(self, ready: object, events: int) -> bool:
        """Moves bytes; returns False once the connection is closed."""
        own, other = self._sides if ready is self._sides[0].socket else self._sides[::-1]
        try:
            if events & selectors.EVENT_WRITE:
                del own.waiting[: own.socket.send(own.waiting)]
            if events & selectors.EVENT_READ:
                self._read(own, other)
            for side, source in (self._sides, self._sides[::-1]):
                if source.ended and not side.waiting and not side.finished:
                    side.finished = True
                    side.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return False
        if all(side.finished for side in self._sides):
            self.close()
            return False
        self._watch()
        return True

    def _read(self, own: _Side, other: _Side) -> None:
        room = BUFFER_BYTES - len(other.waiting)
        if not room:
            return
        data = own.socket.recv(room)
        if data:
            other.waiting += data
        else:
            own.ended = True

    def _watch(self) -> None:
        for own, other in (self._sides, self._sides[::-1]):
            events = selectors.EVENT_WRITE if own.waiting else 0
            if not own.ended and len(other.waiting) < BUFFER_BYTES:
                events |= selectors.EVENT_READ
            if events == own.events:
                continue
            if own.events and events:
                self._selector.modify(own.socket, events, self)
            elif events:
                self._selector.register(own.socket, events, self)
            else:
                self._selector.unregister(own.socket)
            own.events = events

    def close(self) -> None:
        """Closes both sockets."""
        for side in self._sides:
            if side.events:
                self._selector.unregister(side.socket)
            with contextlib.suppress(OSError):
                side.socket.close()
