"""The control plane's own pages on the previews' origin."""

import html
from http import HTTPStatus

from aiohttp import web

from orchestrator.ground.errors import (
    BudgetExceededError,
    BusyError,
    MisdirectedRequestError,
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    RateLimitedError,
    SessionTerminatedError,
    UnauthorizedError,
    ValidationError,
)
from orchestrator.sandbox.ports.tunnels import NothingListensError


class BadGatewayError(PaddockError):
    """The program in the sandbox did not answer as HTTP has it."""


# The first that matches; anything else is 503: it may be tried again.
_STATUSES: tuple[tuple[type[PaddockError], HTTPStatus], ...] = (
    (ValidationError, HTTPStatus.BAD_REQUEST),
    (UnauthorizedError, HTTPStatus.UNAUTHORIZED),
    (PermissionDeniedError, HTTPStatus.FORBIDDEN),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (MisdirectedRequestError, HTTPStatus.MISDIRECTED_REQUEST),
    (SessionTerminatedError, HTTPStatus.GONE),
    (BudgetExceededError, HTTPStatus.GONE),
    (BusyError, HTTPStatus.TOO_MANY_REQUESTS),
    (RateLimitedError, HTTPStatus.TOO_MANY_REQUESTS),
    (NothingListensError, HTTPStatus.BAD_GATEWAY),
    (BadGatewayError, HTTPStatus.BAD_GATEWAY),
)
_PAGE = """<!doctype html>
<meta charset="utf-8"><title>{title}</title>
<h1>{title}</h1>
<p>{text}</p>
"""


def page(error: PaddockError) -> web.Response:
    """A page that says what is wrong."""
    status = next(
        (status for kind, status in _STATUSES if isinstance(error, kind)),
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
    detail = error.detail[:1].upper() + error.detail[1:]
    title = f"{int(status)} {status.phrase}"
    return web.Response(
        status=status,
        text=_PAGE.format(title=html.escape(title), text=html.escape(f"{detail}.")),
        content_type="text/html",
        headers={
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Server": "paddock",
        },
    )
