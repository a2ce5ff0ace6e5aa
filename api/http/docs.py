"""Serves the API's description: the OpenAPI document, and a page that shows it, even offline."""

import asyncio
import json
from importlib.resources import files

from aiohttp import web

from api.openapi import document
from orchestrator.ground.threads import bounded

_SECONDS = 60.0
_STATIC = files("api") / "static"
# The page runs only our scripts. Redoc sets styles on elements, and searches in a worker that it
# creates from its own text.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "worker-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# Redoc loads its vendor's logo from their host; an empty picture replaces it.
_LOGO = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
_NO_LOGO = b"data:image/gif;base64,R0lGODlhAQABAAAAACw="


class Docs:
    """The public description; created on first use, then kept."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()
        self._document: bytes | None = None
        self._redoc: bytes | None = None

    def add_to(self, app: web.Application) -> None:
        """Adds the routes, which need no credential."""
        app.router.add_get("/api/openapi.json", self._show_document, allow_head=False)
        app.router.add_get("/api/docs", self._show_page, allow_head=False)
        app.router.add_get("/api/docs/docs.js", self._show_script, allow_head=False)
        app.router.add_get("/api/docs/docs.css", self._show_style, allow_head=False)
        app.router.add_get("/api/docs/redoc.standalone.js", self._show_redoc, allow_head=False)

    async def _show_document(self, _: web.Request) -> web.Response:
        async with self._making:  # once, even for concurrent requests
            if self._document is None:
                self._document = await bounded(_document, _SECONDS)
        return _response(self._document, "application/json")

    async def _show_page(self, _: web.Request) -> web.Response:
        return _response((_STATIC / "docs.html").read_bytes(), "text/html")

    async def _show_script(self, _: web.Request) -> web.Response:
        return _response((_STATIC / "docs.js").read_bytes(), "text/javascript")

    async def _show_style(self, _: web.Request) -> web.Response:
        return _response((_STATIC / "docs.css").read_bytes(), "text/css")

    async def _show_redoc(self, _: web.Request) -> web.Response:
        if self._redoc is None:
            source = (_STATIC / "redoc" / "redoc.standalone.js").read_bytes()
            self._redoc = source.replace(_LOGO, _NO_LOGO)
        return _response(self._redoc, "text/javascript")


def _response(body: bytes, content_type: str) -> web.Response:
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_HEADERS)


def _document() -> bytes:
    return json.dumps(document()).encode()
