"""Connects to a checked address of a request's host, and begins TLS if the request is inspected."""

import asyncio
import ssl
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.sandbox.egress.interception import Interception
from orchestrator.sandbox.egress.stream import Stream, connect
from orchestrator.settings.hosts import Address


class UnreachedError(Exception):
    """There is no connection; the message says why, and `address` is the one that answered."""

    def __init__(self, text: str, address: Address | None = None) -> None:
        super().__init__(text)
        self.address = address


class Dialled(NamedTuple):
    """A connection, which its owner aborts."""

    stream: Stream
    address: Address


async def dial(
    addresses: Iterable[Address], head: RequestHead, interception: Interception, seconds: float
) -> Dialled:
    """Connects to the first address that answers within that time. Raises: UnreachedError."""
    to = f"{head.host} at port {head.port}"
    try:
        async with asyncio.timeout(seconds):
            dialled = await _connect(addresses, head.port)
    except TimeoutError:
        raise UnreachedError(f"The connection to {to} takes too long.") from None
    except OSError as error:
        raise UnreachedError(f"The connection to {to} failed: {error}.") from None
    if not head.secure:
        return dialled
    try:
        async with asyncio.timeout(seconds):
            secured = await interception.connect(dialled.stream, str(head.host))
    except BaseException as error:
        dialled.stream.abort()
        if not isinstance(error, OSError):
            raise
        raise UnreachedError(_refused(to, error), dialled.address) from None
    return dialled._replace(stream=secured)


async def _connect(addresses: Iterable[Address], port: int) -> Dialled:
    """Raises: OSError."""
    failed: OSError = ConnectionError("there is no address")
    for address in addresses:
        try:
            return Dialled(await connect(address, port), address)
        except OSError as error:
            failed = error
    raise failed


def _refused(to: str, error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"The certificate of {to} is not valid: {error.verify_message}."
    if isinstance(error, TimeoutError):
        return f"TLS with {to} takes too long."
    return f"TLS with {to} failed: {getattr(error, 'reason', None) or error}."
