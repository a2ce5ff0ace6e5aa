"""A collector of syslog over TLS that takes messages well, or fails in some way.

It works in threads: asyncio would answer `close_notify` before anybody has looked at the data.
"""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.support.certificates import Authority


class CollectorFault(StrEnum):
    """What happens after some bytes of a connection. What it had read by then is lost."""

    RESET = "reset"
    CUTS = "cuts"  # the connection ends without close_notify
    HANGS = "hangs"


@dataclass
class SyslogCollector:
    """Keeps the messages of connections that ended well."""

    authority: Authority
    address: tuple[str, int] = ("", 0)
    fault: CollectorFault | None = None
    after: int = 0
    messages: list[bytes] = field(default_factory=list)
    _healed: threading.Event = field(default_factory=threading.Event)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON of the messages."""
        return [json.loads(message[message.index(b"{") :]) for message in list(self.messages)]

    def fail(self, fault: CollectorFault, after: int = 0) -> None:
        """From now on, connections end like this when more bytes than that have come."""
        self._healed.clear()
        self.fault, self.after = fault, after

    def heal(self) -> None:
        """From now on it takes everything; who waits is cut off."""
        self.fault = None
        self._healed.set()

    def serve(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        """One connection."""
        with (
            plain,
            suppress(OSError),
            context.wrap_socket(plain, server_side=True, suppress_ragged_eofs=False) as secure,
        ):
            data = bytearray()
            while part := secure.recv(4096):
                data += part
                if self.fault is not None and len(data) > self.after:
                    self._fail(self.fault, secure)
                    return
            self.messages += frames(bytes(data))
            secure.unwrap()

    def _fail(self, fault: CollectorFault, secure: ssl.SSLSocket) -> None:
        if fault is CollectorFault.HANGS:
            self._healed.wait()
        elif fault is CollectorFault.RESET:
            secure.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        secure.close()


def frames(data: bytes) -> list[bytes]:
    """The messages of a stream with their lengths before them; it must end with a whole one."""
    found = []
    while data:
        length, _, rest = data.partition(b" ")
        assert len(rest) >= int(length), "the stream ends within a message"
        found.append(rest[: int(length)])
        data = rest[int(length) :]
    return found


@contextmanager
def collecting(
    directory: Path, *, name: str = "localhost", client_authority: Authority | None = None
) -> Iterator[SyslogCollector]:
    """A collector with a certificate for that name; None: it asks for none of its clients."""
    authority = Authority(directory, "collector")
    pair = authority.sign(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.load_cert_chain(pair.cert, pair.key)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_authority.file)
    collector = SyslogCollector(authority)
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):  # it is closed
            while True:
                plain = server.accept()[0]
                each = threading.Thread(target=collector.serve, args=(plain, context))
                threads.append(each)
                each.start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        collector.address = "localhost", server.getsockname()[1]
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield collector
        finally:
            server.shutdown(socket.SHUT_RDWR)
            collector.heal()
            accepting.join()
            for each in threads:
                each.join()
