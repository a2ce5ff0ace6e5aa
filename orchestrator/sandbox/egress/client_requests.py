"""Reads what a client sends first: the head of a request, or in its tunnel TLS or a request."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from orchestrator.record.secrets.request_head import HeadError, RequestHead, parse_inside
from orchestrator.rules.egress.limits import EgressLimits
from orchestrator.sandbox.egress.answers import RefusedError
from orchestrator.sandbox.egress.client_hello import HelloError, check_name, read_hello
from orchestrator.sandbox.egress.stream import Stream


async def read_head(
    client: Stream, limits: EgressLimits, parse: Callable[[bytes], RequestHead]
) -> RequestHead:
    """The head of a request, as `parse` reads it, in time and within its size.

    Raises: RefusedError, OSError.
    """
    try:
        async with asyncio.timeout(limits.head_seconds):
            return parse(await client.read_head(limits.head_bytes))
    except TimeoutError:
        raise RefusedError.with_text(
            HTTPStatus.REQUEST_TIMEOUT, "The request took too long."
        ) from None
    except asyncio.LimitOverrunError:
        raise RefusedError.with_text(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's head is too long."
        ) from None
    except asyncio.IncompleteReadError:
        raise ConnectionResetError from None
    except HeadError as error:
        raise RefusedError.with_text(
            HTTPStatus.BAD_REQUEST, f"Paddock refused this request: {error}."
        ) from None


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
