"""A collector of syslog over TLS that takes messages well, or fails in some way."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.support.certificates import Authority


class CollectorFault(StrEnum):
    """What happens after some bytes of a connection. What it had read by then is lost."""

    RESET = "reset"
    ENDS_EARLY = "ends early"  # it announces its own end, and reads no more
    CUTS = "cuts"  # the connection ends without close_notify
    HANGS = "hangs"


@dataclass
class SyslogCollector:
    """Keeps the messages of connections that ended well."""

    authority: Authority
    address: str = ""
    fault: CollectorFault | None = None
    after: int = 0
    messages: list[bytes] = field(default_factory=list)
    connections: int = 0
    _hanging: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON of the messages."""
        return [json.loads(message[message.index(b"{") :]) for message in self.messages]

    def heal(self) -> None:
        """From now on it takes everything; those who wait are reset."""
        self.fault = None
        for writer in list(self._hanging):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        data = bytearray()
        try:
            while part := await reader.read(4096):
                data += part
                if self.fault is not None and len(data) > self.after:
                    await self._fail(self.fault, reader, writer)
                    return
            self.messages += frames(bytes(data))
        except OSError:
            pass
        finally:
            self._hanging.discard(writer)
            writer.close()

    async def _fail(
        self, fault: CollectorFault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if fault is CollectorFault.HANGS:
            self._hanging.add(writer)
            while await reader.read(4096):
                pass
            await asyncio.Event().wait()
        elif fault is CollectorFault.ENDS_EARLY:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.close()
        elif fault is CollectorFault.CUTS:
            plain = writer.get_extra_info("socket")
            plain.shutdown(2)
            writer.transport.abort()
        else:
            writer.transport.abort()


def frames(data: bytes) -> list[bytes]:
    """The messages of a stream with their lengths before them; it must end with a whole one."""
    found = []
    while data:
        length, _, rest = data.partition(b" ")
        assert len(rest) >= int(length), "the stream ends within a message"
        found.append(rest[: int(length)])
        data = rest[int(length) :]
    return found


@asynccontextmanager
async def collecting(
    directory: Path, *, name: str = "localhost", client_authority: Authority | None = None
) -> AsyncIterator[SyslogCollector]:
    """A collector with a certificate for that name; None: it asks for none of its clients."""
    authority = Authority(directory, "collector")
    pair = authority.sign(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_authority.file)
    collector = SyslogCollector(authority)
    server = await asyncio.start_server(
        collector.serve, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=5
    )
    collector.address = f"localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield collector
    finally:
        server.close()
        collector.heal()
        await server.wait_closed()
