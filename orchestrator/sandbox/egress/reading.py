"""Reads the head of a request, in time and within its size."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from orchestrator.record.secrets.request_head import HeadError, RequestHead
from orchestrator.rules.egress.limits import EgressLimits
from orchestrator.sandbox.egress.answers import RefusedError
from orchestrator.sandbox.egress.stream import Stream


async def read_head(
    client: Stream, limits: EgressLimits, parse: Callable[[bytes], RequestHead]
) -> RequestHead:
    """The head that `parse` finds. Raises: RefusedError, OSError."""
    try:
        async with asyncio.timeout(limits.head_seconds):
            return parse(await client.read_head(limits.head_bytes))
    except TimeoutError:
        raise RefusedError.said(HTTPStatus.REQUEST_TIMEOUT, "The request took too long.") from None
    except asyncio.LimitOverrunError:
        raise RefusedError.said(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's head is too long."
        ) from None
    except asyncio.IncompleteReadError:
        raise ConnectionResetError from None
    except HeadError as error:
        raise RefusedError.said(
            HTTPStatus.BAD_REQUEST, f"Paddock refused this request: {error}."
        ) from None
