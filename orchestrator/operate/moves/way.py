"""The way to other nodes of the cluster: mTLS with the nodes' certificates."""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
from aiohttp.connector import AddrInfoType

from orchestrator.cluster.directory import ClusterNode
from orchestrator.cluster.tls import Face, peer_context
from orchestrator.ground.errors import (
    CapacityExhaustedError,
    ConflictError,
    NodeUnavailableError,
    PaddockError,
    ValidationError,
)
from orchestrator.ground.http_connector import BoundedHandler
from orchestrator.settings.settings import Settings

# Unpacking a large snapshot takes minutes; a way that is cut is noticed by the probes.
_ANSWER_SECONDS = 3600.0
_CONNECT_SECONDS = 5.0
_MOST_ANSWER = 64 * 1024
# An end within 15 s of a connection that is cut, as gateways have it.
_PROBES = (
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
)


class NodeWay:
    """Asks other nodes about sessions that move to them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None

    async def send(self, node: ClusterNode, body: AsyncIterator[bytes]) -> str:
        """Sends a session; returns the key under which the node offers to take it.

        Raises: the node's refusal as ConflictError, CapacityExhaustedError or ValidationError;
        NodeUnavailableError if it does not answer.
        """
        answer = await self._post(node, "/moves", body)
        key = answer.get("session_key")
        if not isinstance(key, str):
            raise NodeUnavailableError(f"the node {node.name} answers something else")
        return key

    async def settle(self, node: ClusterNode, session_key: str) -> None:
        """Has it ask the cluster whose the session is. Raises: likewise."""
        await self._post(node, f"/moves/{session_key}/settle", None)

    async def _post(
        self, node: ClusterNode, path: str, body: AsyncIterator[bytes] | None
    ) -> dict[str, Any]:
        try:
            async with AsyncExitStack() as opened:
                client = await opened.enter_async_context(self._client())
                answer = await opened.enter_async_context(
                    client.post(
                        node.report.url.rstrip("/") + path,
                        data=body,
                        allow_redirects=False,
                        server_hostname=node.name,
                    )
                )
                data = await answer.content.read(_MOST_ANSWER)
                found = json.loads(data)
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
            raise NodeUnavailableError(
                f"the node {node.name} does not answer this one: {_plain(error)}",
                node=node.name,
                retry_after=2,
            ) from None
        if not isinstance(found, dict):
            raise NodeUnavailableError(f"the node {node.name} answers something else")
        if answer.status != 200:
            raise _refusal(node.name, found)
        return found

    def _client(self) -> aiohttp.ClientSession:
        if self._context is None:
            settings = self._settings
            cert, key, authority = settings.node_cert, settings.node_key, settings.node_ca
            if cert is None or key is None or authority is None:
                raise ConflictError("this control plane is no node of a cluster")
            self._context = peer_context(cert, key, authority, Face.NODES)
        return aiohttp.ClientSession(
            connector=_Connector(self._context),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECT_SECONDS, sock_read=_ANSWER_SECONDS
            ),
        )


class _Connector(aiohttp.TCPConnector):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(ssl=context, limit=1, force_close=True, socket_factory=_socket)
        self._factory = lambda: BoundedHandler(self._loop)  # type: ignore[assignment]


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        for option in _PROBES:
            made.setsockopt(*option)
    except BaseException:
        made.close()
        raise
    return made


def _refusal(name: str, document: dict[str, Any]) -> PaddockError:
    """What the other node's problem document says, as an error of this one."""
    detail = f"the node {name}: {str(document.get('detail', 'it refuses the session'))[:500]}"
    match document.get("code"):
        case "validation_error" | "permission_denied" | "too_large":
            return ValidationError(detail, field="node")
        case "capacity_exhausted" | "rate_limited":
            return CapacityExhaustedError(detail, retry_after=10)
        case "conflict":
            return ConflictError(detail)
    return NodeUnavailableError(detail, node=name, retry_after=2)


def _plain(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
