"""The two TLS connections of an inspected request: from the client, and to the host."""

import asyncio
import re
import ssl
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.threads import Threads
from orchestrator.sandbox.egress.authority import Authority
from orchestrator.sandbox.egress.stream import Stream
from orchestrator.sandbox.egress.tls_stream import TlsStream

# Hosts whose certificates are kept, and for how long: less than they are valid.
_MOST_HOSTS, _KEPT_SECONDS = 256, 24 * 3600.0
_MAKE_SECONDS = 10.0
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


class _Kept(NamedTuple):
    context: ssl.SSLContext
    until: float  # of the loop's clock


class Interception:
    """Serves all sessions."""

    def __init__(self, state_dir: Path, trusted: Path | None = None) -> None:
        """`trusted` has roots, in PEM, besides those of this host. Raises: ConfigError."""
        self._trusted = None if trusted is None else _read(trusted)
        # Made at the first use: reading all roots of the host takes 40 ms.
        self._upstream: ssl.SSLContext | None = None
        self._authority = Authority(state_dir, trusted)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._threads = Threads("certificates", 1)

    async def accept(self, client: Stream, first: bytes, host: str) -> Stream:
        """Begins TLS as the host's server; `first` is the client's message. Raises: OSError."""
        stream = TlsStream(client, await self._context(host), None)
        await stream.handshake(first)
        return stream

    async def connect(self, upstream: Stream, host: str) -> Stream:
        """Begins TLS as a client, which trusts only a valid certificate of the host.

        Raises: OSError.
        """
        if self._upstream is None:
            self._upstream = await self._threads.call(
                lambda: _upstream(self._trusted), _MAKE_SECONDS
            )
        stream = TlsStream(upstream, self._upstream, host)
        await stream.handshake()
        return stream

    async def _context(self, host: str) -> ssl.SSLContext:
        """Raises: OSError."""
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(host)
        if kept is None or kept.until < now:
            context = await self._threads.call(lambda: self._authority.context(host), _MAKE_SECONDS)
            kept = self._kept[host] = _Kept(context, now + _KEPT_SECONDS)
            while len(self._kept) > _MOST_HOSTS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(host)
        return kept.context


def _read(trusted: Path) -> str:
    """Its certificates in PEM, without the words between them. Raises: ConfigError."""
    try:
        text = "".join(_CERTIFICATE.findall(trusted.read_text(encoding="latin-1")))
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError, TypeError):
        raise ConfigError(f"{trusted}: must be certificates in PEM") from None
    except OSError as error:
        raise ConfigError(f"{trusted}: {error.strerror}") from None
    return text


def _upstream(trusted: str | None) -> ssl.SSLContext:
    """`trusted` has certificates in PEM."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if trusted is not None:
        context.load_verify_locations(cadata=trusted)
    return context
