"""TLS over a stream, as its server or its client."""

import ssl
from contextlib import suppress

from orchestrator.sandbox.egress.stream import READ_BYTES, Stream


class TlsStream(Stream):
    """A stream whose bytes are encrypted; what it keeps of them is bounded like the stream's."""

    def __init__(self, over: Stream, context: ssl.SSLContext, server: str | None) -> None:
        """`over` is not used otherwise any more. `server`: whose client this is; None: a server."""
        super().__init__(over.reader, over.writer)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server is None, server_hostname=server
        )
        self._finished = False

    async def handshake(self, first: bytes = b"") -> None:
        """`first` are the other side's bytes that were read before. Raises: OSError."""
        self._incoming.write(first)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._push()
                await self._pull()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._push()  # the alert
                raise
            else:
                await self._push()
                return

    async def _receive(self) -> bytes:
        while True:
            try:
                return self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                await self._push()
                await self._pull()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, data: bytes) -> None:
        """See `Stream.write`."""
        if data:
            self._tls.write(data)
        await self._push()

    def finish(self) -> None:
        """See `Stream.finish`."""
        with suppress(ssl.SSLError):  # the other side has not finished yet
            self._tls.unwrap()
        with suppress(OSError, RuntimeError):
            self.writer.write(self._outgoing.read())
        self._finished = True
        super().finish()

    async def _push(self) -> None:
        """Writes what TLS has for the other side, answers included. Raises: OSError."""
        data = self._outgoing.read()
        if data and not self._finished:
            await super().write(data)

    async def _pull(self) -> None:
        """Raises: OSError."""
        data = await super()._receive()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
