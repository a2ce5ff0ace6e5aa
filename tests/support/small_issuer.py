"""An issuer of tokens in this process: its documents, and any token that a test wants."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc import jws
from joserfc.jwk import RSAKey

AUDIENCE = "https://paddock.test"
_FILE = """\
[[oidc]]
name = "corp"
issuer = "{url}"
audience = "https://paddock.test"
client_id = "paddock"
{more}
[[oidc.rules]]
when = {{ groups = "platform" }}
role = "admin"

[[oidc.rules]]
when = {{ groups = "readers" }}
role = "viewer"
scope = "all"
scopes = ["sessions:read"]

[[oidc.rules]]
when = {{ groups = "engineers" }}
role = "operator"
"""


class SmallIssuer:
    """Signs what it is told to. Users have the groups in their names: `alice.engineers`."""

    def __init__(self) -> None:
        self.url = ""
        self.key = RSAKey.generate_key(2048)

    def write(self, file: Path, more: str = "") -> None:
        """The operator's file for it; `more` are further members."""
        file.write_text(_FILE.format(url=self.url, more=more))

    def token(self, user: str, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """An access token; members that are None are left out."""
        now = int(time.time())
        given = {
            **{"iss": self.url, "aud": AUDIENCE, "sub": user, "groups": user.split(".")[1:]},
            **{"iat": now - 5, "exp": now + 300},
            **claims,
        }
        whole = {"alg": "RS256", "kid": "one", "typ": "at+jwt", **(header or {})}
        body = {name: value for name, value in given.items() if value is not None}
        return jws.serialize_compact(
            whole, json.dumps(body).encode(), self.key, algorithms=["RS256"]
        )

    async def answer(self, request: web.Request) -> web.Response:
        """Its documents."""
        if request.path.endswith("/jwks"):
            key = {**self.key.as_dict(private=False), "kid": "one"}
            return web.json_response({"keys": [key]})
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"})


@asynccontextmanager
async def small_issuer() -> AsyncIterator[SmallIssuer]:
    """One that listens meanwhile."""
    issuer = SmallIssuer()
    app = web.Application()
    app.router.add_get("/{path:.*}", issuer.answer)
    server = TestServer(app)
    await server.start_server()
    issuer.url = f"http://127.0.0.1:{server.port}"
    try:
        yield issuer
    finally:
        await server.close()
