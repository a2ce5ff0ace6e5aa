"""Connections without TLS for threads that have no event loop."""

import os
import socket
import threading
import time
from dataclasses import dataclass

from paddock.client.errors import UnreachableError
from paddock.client.http_messages import AnswerParser, Message
from paddock.client.sockets import (
    CONNECT_SECONDS,
    KEPT_SECONDS,
    MOST_KEPT,
    LostError,
    lasting_socket,
    readable,
    sends_again,
)

_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Kept:
    """A connection that is not used, since a time of the monotonic clock."""

    line: socket.socket
    since: float
    # A forked process has it too, and would receive the other's answers.
    process: int


class BlockingConnections:
    """The connections of any number of threads to one server, each with one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        # For the two collections, and for closing what another thread uses.
        self._lock = threading.Lock()
        # With the process that uses it.
        self._used: dict[socket.socket, int] = {}
        self._kept: list[_Kept] = []
        self._closed = False

    def exchange(self, method: str, request: bytes, seconds: float) -> Message:
        """The answer to a request that fits into the buffer of a socket.

        Raises: UnreachableError if nothing was sent; TimeoutError after `seconds`; ConnectionError;
        BadAnswerError.
        """
        deadline = time.monotonic() + seconds
        kept = self._take()
        if kept is not None:
            try:
                return self._exchange(kept, request, deadline)
            except LostError as error:
                if not sends_again(method, error) or self._closed:
                    raise
        return self._exchange(self._connect(deadline), request, deadline)

    def close(self) -> None:
        """Closes all of them; threads that wait for an answer get a ConnectionError."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, []
            for line, process in self._used.items():
                # Its own thread closes it, and is woken by this.
                if process == os.getpid():
                    _shut_down(line)
        for each in kept:
            each.line.close()

    def _exchange(self, line: socket.socket, request: bytes, deadline: float) -> Message:
        lasting = False
        try:
            message, lasting = _exchanged(line, request, deadline)
        finally:
            self._put_back(line, lasting=lasting)
        return message

    def _take(self) -> socket.socket | None:
        """A kept connection that the server has not closed."""
        oldest, process = time.monotonic() - KEPT_SECONDS, os.getpid()
        while True:
            with self._lock:
                if not self._kept:
                    return None
                kept = self._kept.pop()
                fresh = kept.since > oldest and kept.process == process
                if fresh and not readable(kept.line.fileno()):
                    self._used[kept.line] = process
                    return kept.line
            kept.line.close()

    def _put_back(self, line: socket.socket, *, lasting: bool) -> None:
        with self._lock:
            self._used.pop(line, None)
            keeps = lasting and not self._closed and len(self._kept) < MOST_KEPT
            if keeps:
                self._kept.append(_Kept(line, time.monotonic(), os.getpid()))
        if not keeps:
            line.close()

    def _connect(self, deadline: float) -> socket.socket:
        try:
            line = self._connected(deadline)
        except OSError as error:
            if isinstance(error, TimeoutError) and time.monotonic() >= deadline:
                raise
            where = f"{self._host}:{self._port}"
            raise UnreachableError(f"no control plane answers at {where}: {error}") from error
        with self._lock:
            closed = self._closed
            if not closed:
                self._used[line] = os.getpid()
        if closed:
            line.close()
            raise LostError("this client is closed", begun=False)
        return line

    def _connected(self, deadline: float) -> socket.socket:
        """Tries one address after the other. Raises: OSError, that of the last one."""
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        ends = min(deadline, time.monotonic() + CONNECT_SECONDS)
        for number, address in enumerate(found):
            line = lasting_socket(address)
            try:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # An address that does not answer leaves time for those after it.
                line.settimeout(max(ends - time.monotonic(), 0.001) / (len(found) - number))
                line.connect(address[4])
            except BaseException as error:
                line.close()
                if not isinstance(error, OSError) or number == len(found) - 1:
                    raise
            else:
                return line
        raise OSError("the host has no address")


def _exchanged(line: socket.socket, request: bytes, deadline: float) -> tuple[Message, bool]:
    """The answer, and whether the connection is as a new one.

    Raises: TimeoutError, LostError, BadAnswerError.
    """
    parser, begun = AnswerParser(), False
    try:
        line.settimeout(_left(deadline))
        line.sendall(request)
        while True:
            line.settimeout(_left(deadline))
            data = line.recv(_PIECE_BYTES)
            message = parser.feed(data) if data else parser.end()
            if message is not None:
                return message, parser.lasting
            if not data:
                raise LostError("the server closed it", begun=begun)
            begun = True
    except LostError:
        raise
    except OSError as error:
        if isinstance(error, TimeoutError) and error.errno is None:
            raise
        raise LostError(str(error), begun=begun) from error


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _shut_down(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The server was faster.
        return
