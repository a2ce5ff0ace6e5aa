"""The middlewares, the outermost first.

Each request gets an id for the log, a log line for its answer, and its metrics. Every failure is
answered with a problem document. Only requests to a known host are answered.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from api.http.auth import learn
from api.http.forwarded import client_of
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError, RateLimitedError
from orchestrator.ground.log_context import logging_about
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.metrics import OTHER, Metrics
from orchestrator.ground.serving import stream
from orchestrator.ground.serving.errors import problem
from orchestrator.ground.serving.failed_answers import answered_or_broken
from orchestrator.ground.traces.spans import BeginSpan, OpenSpan, within
from orchestrator.ground.traces.traceparent import TRACEPARENT, ids_of, parsed_traceparent
from orchestrator.rules.access.keys import Principal
from orchestrator.settings.allowed_hosts import AllowedHosts

REQUEST_ID = web.RequestKey("request_id", str)
SPAN = web.RequestKey("span", OpenSpan)
PRINCIPAL = web.RequestKey("principal", Principal)
# As in proxies: the client closed the connection before the answer.
CLIENT_GONE = 499
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_MOST_LOGGED = 128
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Server": "paddock",
}

access_log = logging.getLogger("paddock.access")


def observe(metrics: Metrics, lag: LoopLag, begin_span: BeginSpan | None = None) -> Middleware:
    """The outermost middleware. `begin_span` begins traces; None: there are none."""

    @web.middleware
    async def observed(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[REQUEST_ID] = secrets.token_hex(8)
        known = {"request_id": request[REQUEST_ID]}
        if "session_id" in request.match_info:
            known["session_id"] = request.match_info["session_id"][:_MOST_LOGGED]
        # Now, since the connection may be over when it is reported.
        client = client_of(request)
        started = time.perf_counter()
        status = CLIENT_GONE
        span = None if begin_span is None else _begun(request, begin_span)
        if span is not None:
            known |= ids_of(span.place)
        with logging_about(known), nullcontext() if span is None else within(span):
            try:
                work = cast(Coroutine[Any, Any, web.StreamResponse], handler(request))
                response = await lag.measured(_operation(request), work)
                status = response.status
                return response
            finally:
                seconds = time.perf_counter() - started
                if span is not None:
                    span.end({"http.response.status_code": status}, failed=status >= 500)
                # After the answer, which need not wait for this.
                loop = asyncio.get_running_loop()
                loop.call_soon(_report, request, client, status, seconds, metrics)

    return observed


def _begun(request: web.Request, begin: BeginSpan) -> OpenSpan:
    """The span of a request. Its route is named, and nothing that its client has chosen."""
    resource = request.match_info.route.resource
    route = OTHER if resource is None else resource.canonical
    span = begin(_method(request), route, parsed_traceparent(request.headers.get(TRACEPARENT)))
    request[SPAN] = span
    return span


def _operation(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return OTHER if resource is None else f"{_method(request)} {resource.canonical}"


def _method(request: web.Request) -> str:
    return request.method if request.method in _METHODS else OTHER


def _report(
    request: web.Request, client: str | None, status: int, seconds: float, metrics: Metrics
) -> None:
    """Reports a request; `client` is its address, if a gateway has named it.

    Labels come from the route table; unknown values are `other`.
    """
    resource = request.match_info.route.resource
    route = OTHER if resource is None else resource.canonical
    method = _method(request)
    begun: web.StreamResponse | None = request.get(stream.STREAM)
    if begun is not None:
        status = begun.status  # clients normally end a stream by disconnecting
    metrics.request(method, route, status, None if begun is not None else seconds)
    if access_log.isEnabledFor(logging.INFO):
        principal = request.get(PRINCIPAL)
        fields = {
            "method": request.method[:_MOST_LOGGED],
            "route": route,
            "status": status,
            "duration_ms": round(seconds * 1000, 3),
            "principal": None if principal is None else principal.name,
        }
        if client is not None:
            fields["client"] = client
        access_log.info("request", extra=fields)


def guarded(metrics: Metrics) -> Middleware:
    """Answers every failure with a problem document."""

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        def explain(error: PaddockError) -> web.Response:
            if isinstance(error, RateLimitedError):
                metrics.rate_limited(error.fields["limit"])
            return problem(error, request[REQUEST_ID])

        return await answered_or_broken(request, handler, explain, ordinary=(ConnectionError,))

    return answered


def addressed(hosts: AllowedHosts) -> Middleware:
    """The handlers raise MisdirectedRequestError for any other host."""

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts.check(request.headers.getall("Host", ()))
        return await handler(request)

    return checked


def signed_in(plane: ControlPlane) -> Middleware:
    """Users' tokens are verified before the handler, which does not wait for an issuer then."""

    @web.middleware
    async def learnt(request: web.Request, handler: Handler) -> web.StreamResponse:
        if plane.sign_in.enabled:
            await learn(plane, request)
        return await handler(request)

    return learnt


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the headers that every answer has."""
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    if SPAN in request:
        response.headers[TRACEPARENT] = request[SPAN].place.text
    if REQUEST_ID in request:
        response.headers["X-Request-Id"] = request[REQUEST_ID]
