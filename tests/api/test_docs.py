"""The API's description: public, with a page that works offline."""

import hashlib
import re

from api.http import docs
from api.openapi import document
from tests.api.conftest import Api
from tests.support.cases import each

# Files of the npm package, unmodified.
REDOC_SHA256 = "dcaf76612bc4a3fbcc923a8966dee2f6146a5f32e5ce1b6f02dd60cbbf89500b"
PAGE = "/api/docs"


async def test_the_root_says_what_this_is(api: Api) -> None:
    response = await api.call("GET", "/", key=None)
    assert (response.status, response.content_type) == (200, "application/json")
    said = await response.json()
    assert said["name"] == "paddock"
    for link in ("documentation", "openapi", "health"):
        assert (await api.call("GET", said[link], key=None)).status == 200


async def test_document(api: Api) -> None:
    response = await api.call("GET", "/api/openapi.json", key=None)
    assert response.status == 200
    assert response.content_type == "application/json"
    assert await response.json() == document()


async def test_page_and_what_it_loads(api: Api) -> None:
    response = await api.call("GET", PAGE, key=None)
    assert response.content_type == "text/html"
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "http" not in policy
    text = await response.text()
    assert not re.search(r"<script>|<style>|javascript:|//|\son\w+=", text)
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', text)
    assert len(loaded) >= 4
    for name in loaded:
        part = await api.call("GET", f"/api/{name}", key=None)
        assert part.status == 200
        assert part.headers["X-Content-Type-Options"] == "nosniff"
        assert part.content_type != "application/octet-stream"


async def test_redoc_is_the_published_one_without_its_logo(api: Api) -> None:
    response = await api.call("GET", PAGE + "/redoc.standalone.js", key=None)
    served = await response.read()
    assert b"cdn.redoc.ly" not in served
    assert b"fonts.googleapis" not in served
    vendored = (docs._STATIC / "redoc" / "redoc.standalone.js").read_bytes()
    assert hashlib.sha256(vendored).hexdigest() == REDOC_SHA256
    assert len(vendored) - len(served) == len(docs._LOGO) - len(docs._NO_LOGO)


@each("path", ["/", "/docs.html", "/redoc/LICENSE", "/%2e%2e/app.py"])
async def test_nothing_else_is_served(api: Api, path: str) -> None:
    await api.problem(404, "not_found", "GET", PAGE + path, key=None)
