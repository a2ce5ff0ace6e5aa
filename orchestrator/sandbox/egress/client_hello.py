"""Reads the name in the first message of a TLS client. Pure."""

from typing import NamedTuple

from orchestrator.settings.hosts import Host, HostError, parse_host

# All records up to the end of the message.
MOST_BYTES = 32 * 1024
_HANDSHAKE, _CLIENT_HELLO, _MAJOR = 22, 1, 3
_MOST_RECORD = 16 * 1024
# Clients send one or two. All are read again whenever more of them has arrived.
_MOST_RECORDS = 16
_SERVER_NAME, _HOST_NAME = 0, 0


class HelloError(ValueError):
    """The bytes are not the first message of a TLS client, or the message is not allowed."""


class ClientHello(NamedTuple):
    """The message; `name` is the server's, None if there is none."""

    name: str | None


def read_hello(data: bytes) -> ClientHello | None:
    """The message at the beginning of `data`; None if it is not complete. Raises: HelloError."""
    message = _message(data)
    if message is None:
        if len(data) >= MOST_BYTES:
            raise HelloError("the first message is too long")
        return None
    return ClientHello(_server_name(message))


def check_name(hello: ClientHello, host: Host) -> None:
    """Raises: HelloError unless the message names this host; an address has no name."""
    if not isinstance(host, str):
        if hello.name is not None:
            raise HelloError("the TLS name is not the requested address")
        return
    if hello.name is None:
        raise HelloError("there is no TLS name")
    try:
        named = parse_host(hello.name)
    except HostError as error:
        raise HelloError(f"the TLS name is malformed: {error}") from None
    if named != host:
        raise HelloError(f"the TLS name is not the requested host: {hello.name:.253}")


def _message(data: bytes) -> bytes | None:
    """The body of the message, which may be in several records. Raises: HelloError."""
    message, at = b"", 0
    for _ in range(_MOST_RECORDS):
        if at < len(data) and data[at] != _HANDSHAKE:
            raise HelloError("only TLS may pass through a tunnel")
        if at + 1 < len(data) and data[at + 1] != _MAJOR:
            raise HelloError("only TLS may pass through a tunnel")
        if len(data) < at + 5:
            return None
        length = int.from_bytes(data[at + 3 : at + 5])
        if not 0 < length <= _MOST_RECORD:
            raise HelloError("a TLS record has no valid length")
        message += data[at + 5 : at + 5 + length]
        if message and message[0] != _CLIENT_HELLO:
            raise HelloError("the first TLS message is not the client's")
        if len(message) >= 4:
            end = 4 + int.from_bytes(message[1:4])
            if end > MOST_BYTES:
                raise HelloError("the first message is too long")
            if len(message) >= end:
                return message[4:end]
        if len(data) < at + 5 + length:
            return None
        at += 5 + length
    raise HelloError("the first message is in too many pieces")


class _Reader:
    """Reads one field after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """Raises: HelloError if there is less."""
        end = self._at + size
        if len(self._data) < end:
            raise HelloError("the first TLS message is malformed")
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, size: int) -> int:
        """Raises: HelloError."""
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        """Bytes after their length of that size. Raises: HelloError."""
        return self.take(self.number(size))


def _server_name(message: bytes) -> str | None:
    """Raises: HelloError."""
    reader = _Reader(message)
    reader.take(2 + 32)  # version and random
    reader.vector(1)  # session
    reader.vector(2)  # ciphers
    reader.vector(1)  # compressions
    if not reader:
        return None
    extensions = _Reader(reader.vector(2))
    if reader:
        raise HelloError("the first TLS message is malformed")
    found: list[bytes] = []
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            found.append(content)
    if not found:
        return None
    if len(found) > 1:
        raise HelloError("there are two TLS names")
    return _name(found[0])


def _name(content: bytes) -> str:
    """Raises: HelloError."""
    outer = _Reader(content)
    names = _Reader(outer.vector(2))
    kind, name = names.number(1), names.vector(2)
    if outer or names or kind != _HOST_NAME or not name:
        raise HelloError("the TLS name is malformed")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise HelloError("the TLS name is malformed") from None
