"""How much memory asyncio takes for each connection with TLS."""

from asyncio import sslproto

# Two records of TLS, which are the most that one look at a connection gives.
_BUFFER_BYTES = 32 * 1024


def keep_tls_buffers_small() -> None:
    """Each connection of this process has such a buffer from now on.

    asyncio's has 256 KiB, which it takes for as long as the connection lasts, also if it is idle.
    """
    sslproto.SSLProtocol.max_size = _BUFFER_BYTES
