"""Reads what a client sends first in its tunnel: TLS, or a request without it."""

import asyncio

from orchestrator.record.secrets.request_head import RequestHead, parse_inside
from orchestrator.rules.egress.limits import EgressLimits
from orchestrator.sandbox.egress.client_hello import HelloError, check_name, read_hello
from orchestrator.sandbox.egress.reading import read_head
from orchestrator.sandbox.egress.stream import Stream


async def begins_in_clear(client: Stream, limits: EgressLimits) -> bool:
    """Whether the client sends HTTP without TLS through its tunnel, as Node's clients do.

    Raises: OSError, TimeoutError.
    """
    async with asyncio.timeout(limits.head_seconds):
        return (await client.peek())[:1].isalpha()


async def read_request(
    client: Stream, limits: EgressLimits, tunnel: RequestHead, *, secure: bool
) -> RequestHead:
    """The tunnel's next request, which is then decided like one for a URL.

    Raises: RefusedError, OSError.
    """
    host, port = tunnel.host, tunnel.port
    head = await read_head(
        client, limits, lambda data: parse_inside(data, host, port, secure=secure)
    )
    return head._replace(program=tunnel.program)


async def first_message(client: Stream, limits: EgressLimits, tunnel: RequestHead) -> bytes:
    """The client's first bytes of TLS, which name the requested host to the upstream.

    Raises: HelloError, OSError, TimeoutError.
    """
    data = b""
    async with asyncio.timeout(limits.head_seconds):
        while (hello := read_hello(data)) is None:
            more = await client.read()
            if not more:
                raise HelloError("the client ended before it began TLS")
            data += more
    check_name(hello, tunnel.host)
    return data
