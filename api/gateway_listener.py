"""The listener for gateways of the cluster: TLS with certificates on both sides.

The handshake says which application is meant, so that requests for ports of sessions and requests
to the API can't be taken for each other, as on addresses of their own.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web

from orchestrator.cluster.tls import Face, node_context
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.serving.tls_memory import keep_tls_buffers_small
from orchestrator.settings.settings import Settings
from orchestrator.settings.values import split_address

# For a handshake, from the connection on.
_HANDSHAKE_SECONDS = 10.0
_BACKLOG = 256


class _Chooser(asyncio.Protocol):
    """Gives a connection to the application that it names, once it is known to be a gateway's."""

    def __init__(self, faces: Mapping[str, web.Server]) -> None:
        self._faces = faces

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake has succeeded."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - streams have such
        server = self._faces.get(_named_by(transport))
        if server is None:
            transport.abort()
            return
        handler = server()
        transport.set_protocol(handler)
        handler.connection_made(transport)


def _named_by(transport: asyncio.Transport) -> str:
    tls: Any = transport.get_extra_info("ssl_object")
    return tls.selected_alpn_protocol() or ""


@asynccontextmanager
async def for_gateways(
    settings: Settings, runners: Mapping[Face, web.AppRunner], say: Callable[[str], None]
) -> AsyncGenerator[int | None]:
    """Listens meanwhile, if this is a node of a cluster: yields the port; None: it is none.

    The runners' owners end the connections.

    Raises: ConfigError, PaddockError if it can't listen.
    """
    address, key = settings.node_listen, settings.node_key
    cert, authority = settings.node_cert, settings.node_ca
    # A node of a cluster has all of them.
    if address is None or cert is None or key is None or authority is None:
        yield None
        return
    keep_tls_buffers_small()
    context = node_context(cert, key, authority)
    faces = {
        face.value: runner.server for face, runner in runners.items() if runner.server is not None
    }
    host, port = split_address(address)
    try:
        listener = await asyncio.get_running_loop().create_server(
            partial(_Chooser, faces),
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            backlog=_BACKLOG,
        )
    except OSError as error:
        raise PaddockError(
            f"can't listen on {address} for gateways: {error.strerror}; set PADDOCK_NODE_LISTEN"
        ) from None
    try:
        port = listener.sockets[0].getsockname()[1]
        say(f"listening for gateways on {host}:{port}")
        yield port
    finally:
        listener.close()
