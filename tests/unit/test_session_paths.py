"""Requests below a session find their route at once, and any other path finds what it found."""

from collections.abc import Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from aiohttp.typedefs import Handler

from api.catalog import OPERATIONS
from api.http.session_paths import SessionPaths
from api.shape.operation import SESSION

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


async def _handler(_: web.Request) -> web.Response:
    return web.Response()


def _routers() -> tuple[web.UrlDispatcher, web.UrlDispatcher]:
    """All operations below sessions: as they are, and as aiohttp alone has them."""
    ours, plain = web.UrlDispatcher(), web.UrlDispatcher()
    paths = SessionPaths()
    ours.register_resource(paths)
    adders: list[Callable[[str, str, Handler], object]] = [paths.add_route, plain.add_route]
    for operation in OPERATIONS:
        for add in adders:
            if operation.path.startswith(SESSION):
                add(operation.method, operation.path, _handler)
    return ours, plain


def _cases() -> list[str]:
    paths = {each.path for each in OPERATIONS if each.path.startswith(SESSION)}
    made = [path.replace("{", "").replace("}", "") for path in sorted(paths)]
    more = ("/x", "/", "//", "/%65xec", "/a%2Fb")
    odd = ["/api/sessions", "/api/sessions/", "/api/sessions/a/", "/api/sessions/a%2Fexec"]
    odd += ["/api/sessions/a//exec", "/api/sessions/%C3%A9/exec", "/api/sessions/a/exec?b=/c/d"]
    return [*made, *(path + end for path in made for end in more), *odd]


@pytest.mark.parametrize("method", METHODS)
async def test_each_path_finds_what_aiohttp_would(method: str) -> None:
    ours, plain = _routers()
    for path in _cases():
        request = make_mocked_request(method, path)
        found, expected = await ours.resolve(request), await plain.resolve(request)
        assert dict(found) == dict(expected), path
        assert _told(found) == _told(expected), path


def _told(found: web.UrlMappingMatchInfo) -> tuple[object, ...]:
    error = found.http_exception
    if error is not None:
        allowed = error.allowed_methods if isinstance(error, web.HTTPMethodNotAllowed) else ()
        return error.status, frozenset(allowed)
    resource = found.route.resource
    assert resource is not None
    return found.route.method, resource.canonical


def test_all_routes_are_listed() -> None:
    ours, plain = _routers()

    def told(router: web.UrlDispatcher) -> set[tuple[str, str]]:
        found = [(each.method, each.resource) for each in router.routes()]
        return {(method, resource.canonical) for method, resource in found if resource is not None}

    assert told(ours) == told(plain)
    assert len(list(ours.routes())) == len(list(plain.routes()))


async def test_few_resources_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0
    resolve = web.DynamicResource.resolve

    async def counting(self: web.DynamicResource, request: web.Request) -> object:
        nonlocal tried
        tried += 1
        return await resolve(self, request)

    monkeypatch.setattr(web.DynamicResource, "resolve", counting)
    ours, plain = _routers()
    request = make_mocked_request("POST", "/api/sessions/a/exec")
    assert (await ours.resolve(request)).http_exception is None
    assert tried == 1
    tried = 0
    await plain.resolve(request)
    assert tried > 10
