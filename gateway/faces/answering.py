"""What all answers of a gateway's own have: a caller who is known, and the form of a page."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from http import HTTPStatus
from typing import NamedTuple, TypeVar

from aiohttp import web

from gateway.access import READERS
from gateway.dispatch import KIND
from gateway.faces.answers import listed, listed_alone, refused
from gateway.faces.asking import NEXT_HEADER, Headers, Query, RefusedError
from gateway.faces.sessions import ListPage
from gateway.headers import for_asking
from gateway.limits import answered
from gateway.open import Gateway
from gateway.proxy import read_body
from orchestrator.ground.errors import TooLargeError
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.requests import query_parameters, read_query
from paddock.contract.requests import Query as QueryModel
from paddock.contract.scopes import SCOPE_OF

_KIND = "merged"
_MOST_BODY = 256 * 1024
# E2B's lists have no member for it.
_MISSING_HEADER = "X-Paddock-Missing"
Model = TypeVar("Model", bound=QueryModel)
Handler = Callable[["Asked"], Awaitable[web.StreamResponse]]


class FaceRoute(NamedTuple):
    """A route that a gateway answers; `operation` is the node's that it stands for."""

    method: str
    path: str
    operation: str
    handler: Handler
    roles: Collection[Role] = READERS


class Asked(NamedTuple):
    """A request, its caller, and the headers with which nodes are asked for it."""

    request: web.Request
    caller: Principal
    headers: Headers

    def query(self, model: type[Model]) -> Model:
        """The query as `model`. Raises: ValidationError."""
        return read_query(self.request.rel_url.raw_query_string, model)

    @property
    def parameters(self) -> Query:
        """The query's parameters as they were sent."""
        return query_parameters(self.request.rel_url.raw_query_string)


def add_routes(app: web.Application, gateway: Gateway, routes: Iterable[FaceRoute]) -> None:
    """Adds them, each behind the checks that all of them have."""
    for each in routes:
        app.router.add_route(each.method, each.path, _answering(gateway, each))


def _answering(
    gateway: Gateway, route: FaceRoute
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    scope = SCOPE_OF[route.operation]

    async def answer(request: web.Request) -> web.StreamResponse:
        request[KIND] = _KIND
        with gateway.open_requests.counted(request, proves=True):
            try:
                caller = await gateway.callers.authorize(request, route.roles, scope)
                answered(request, HTTPStatus.OK)
                sent = [*request.headers.items()]
                headers = for_asking(sent, request.remote or "", request.scheme)
                return await route.handler(Asked(request, caller, headers))
            except RefusedError as error:
                return refused(error.refusal)

    return answer


async def short_body(asked: Asked) -> bytes:
    """Raises: TooLargeError, ValidationError."""
    body = await read_body(asked.request, _MOST_BODY)
    if body is None:
        raise TooLargeError(f"the body is over the limit, {_MOST_BODY} bytes")
    return body


async def answer_page(request: web.Request, page: ListPage) -> web.StreamResponse:
    """The page as one machine has it, with `missing`."""
    others = {"next": page.next, **page.others, "missing": list(page.missing)}
    return await listed(request, page.items, others)


async def answer_list(request: web.Request, page: ListPage) -> web.StreamResponse:
    """The page as E2B's SDKs read it."""
    headers = {} if page.next is None else {NEXT_HEADER: page.next}
    if page.missing:
        headers[_MISSING_HEADER] = ",".join(page.missing)
    return await listed_alone(request, page.items, headers)
