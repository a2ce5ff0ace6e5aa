"""An export to syslog over TLS.

Syslog has no acknowledgement: what was sent may be in buffers of a collector that has died. So each
batch has a connection of its own, which both sides end with TLS's `close_notify`, and that end is
the acknowledgement: RFC 5425 demands it, a collector that has read less resets the connection, and
nobody between the two can forge it.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from orchestrator.ground.threads import KeyedThreads
from orchestrator.operate.exports.destination import ExportedEvent, ExportError
from orchestrator.operate.exports.syslog_message import frame

# For a batch, with its connection and the end of it.
BATCH_SECONDS = 60.0
_PIECE = 64 * 1024


class SyslogDestination:
    """Sends to a collector whose certificate must be valid for its host."""

    def __init__(
        self,
        address: tuple[str, int],
        context: Callable[[], ssl.SSLContext],
        own_name: str,
        seconds: float = BATCH_SECONDS,
    ) -> None:
        """`context` reads certificates anew for each batch; it raises OSError or ValueError."""
        self._address = address
        self._context = context
        self._own_name = own_name
        self._seconds = seconds
        self._threads = KeyedThreads("syslog", 1)

    async def send(self, events: Sequence[ExportedEvent]) -> None:
        """As `Destination.send`."""
        data = b"".join(frame(event, self._own_name) for event in events)
        host, port = self._address
        call = _Call(host, port, self._context, data, self._seconds)
        try:
            await self._threads.call("syslog", call.run, self._seconds)
        except TimeoutError:
            raise ExportError(f"{host}:{port}: no orderly end within {self._seconds:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise ExportError(f"{host}:{port}: {error.verify_message}") from None
        except ssl.SSLEOFError:
            raise ExportError(
                f"{host}:{port}: it ended the connection without close_notify"
            ) from None
        except (OSError, ValueError) as error:
            detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ExportError(f"{host}:{port}: {detail}") from None
        finally:
            call.abandon()

    async def close(self) -> None:
        """Nothing is open between batches."""


class _Call:
    """One batch in a thread: connects, sends, and waits for the orderly end."""

    def __init__(
        self,
        host: str,
        port: int,
        context: Callable[[], ssl.SSLContext],
        data: bytes,
        seconds: float,
    ) -> None:
        self._host, self._port = host, port
        self._context = context
        self._data = data
        self._until = time.monotonic() + seconds
        self._socket: socket.socket | None = None
        self._abandoned = False

    def run(self) -> None:
        """Raises: OSError, among them TimeoutError and ssl.SSLError; ValueError."""
        context = self._context()
        # Python permits it otherwise, and an end without close_notify would count.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        plain = socket.create_connection((self._host, self._port), self._left())
        with plain:
            plain.settimeout(self._left())
            with context.wrap_socket(plain, server_hostname=self._host) as secure:
                self._socket = secure
                if self._abandoned:
                    return
                for start in range(0, len(self._data), _PIECE):
                    secure.settimeout(self._left())
                    secure.sendall(memoryview(self._data)[start : start + _PIECE])
                secure.settimeout(self._left())
                rest = secure.unwrap()
                # A collector that had announced its own end before it read everything resets.
                with rest:
                    rest.settimeout(self._left())
                    rest.shutdown(socket.SHUT_WR)
                    while rest.recv(_PIECE):
                        rest.settimeout(self._left())

    def abandon(self) -> None:
        """Ends the connection if it is still at work: the thread then returns."""
        self._abandoned = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left
