"""Serves the console's files, and tells browsers from programs at `/`."""

import hashlib
import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import web

_STATIC = files("api") / "console" / "static"
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
# Pages load our own files and run nothing inline, so that a sandbox's output is never more than
# text. Images of a workspace are shown from the memory of the page.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers keep a file, and ask by its tag whether it has changed.
    "Cache-Control": "no-cache",
}
# The answer at `/` for programs.
_ABOUT = json.dumps(
    {
        "name": "paddock",
        "description": "Governed sandboxes for AI agents: the HTTP API of a control plane.",
        "documentation": "/api/docs",
        "openapi": "/api/openapi.json",
        "health": "/readyz",
    },
    indent=2,
).encode()


class _File(NamedTuple):
    body: bytes
    content_type: str
    tag: str


class Console:
    """The console's files, which are read once."""

    def __init__(self) -> None:
        self._files = _found(_STATIC)

    def add_to(self, app: web.Application) -> None:
        """Adds the routes, which need no credential: the pages themselves have no data."""
        app.router.add_get("/", self._show_root, allow_head=False)
        app.router.add_get("/console/{path:.+}", self._show, allow_head=False)

    async def _show_root(self, request: web.Request) -> web.Response:
        if "text/html" not in request.headers.get("Accept", ""):
            return web.Response(body=_ABOUT, content_type="application/json", charset="utf-8")
        return _response(request, self._files["index.html"])

    async def _show(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info["path"])
        if found is None:
            raise web.HTTPNotFound
        return _response(request, found)


def _found(directory: Traversable) -> dict[str, _File]:
    """The files that are served, by their paths below the directory."""
    found: dict[str, _File] = {}
    for entry in directory.iterdir():
        if entry.is_dir():
            found.update({f"{entry.name}/{path}": file for path, file in _found(entry).items()})
        elif content_type := _TYPES.get(entry.name.rpartition(".")[2]):
            body = entry.read_bytes()
            found[entry.name] = _File(body, content_type, hashlib.sha256(body).hexdigest())
    return found


def _response(request: web.Request, file: _File) -> web.Response:
    headers = {**_HEADERS, "ETag": f'"{file.tag}"'}
    if any(tag.value == file.tag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    # Without compression: anyone may ask for it, so serving it must cost nothing.
    return web.Response(
        body=file.body, content_type=file.content_type, charset="utf-8", headers=headers
    )
