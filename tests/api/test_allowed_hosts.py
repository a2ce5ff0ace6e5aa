"""Pages under other host names can't use the API, so DNS rebinding has no effect."""

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr

from api.catalog import OPERATIONS
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cases import each
from tests.support.limits import WAIT_SECONDS

OTHERS = ("/", "/api/docs", "/api/docs/docs.js", "/api/docs/docs.css", "/api/openapi.json",
          "/api/docs/redoc.standalone.js", "/nothing/here")  # fmt: skip


@pytest.fixture
def settings(settings: Settings) -> Settings:
    members = settings.model_dump(exclude={"admin_key"})
    return Settings(
        **{**members, "allowed_hosts": ("paddock.example.org",)}, admin_key=SecretStr(ADMIN_KEY)
    )


async def test_no_route_answers_a_rebound_name(api: Api) -> None:
    routes = [(operation.method, operation.path) for operation in OPERATIONS]
    routes += [("GET", path) for path in OTHERS] + [("OPTIONS", "/api/sessions"), ("PUT", "/x")]
    session = await api.session(id="box")
    for method, path in routes:
        for key in (None, ADMIN_KEY, session["handle"]):
            asked = (method, path.replace("{session_id}", "box"))
            rebound: dict[str, Any] = {"key": key, "headers": {"Host": "rebound.example:8700"}}
            if method == "HEAD":
                assert (await api.call(*asked, **rebound)).status == 421
                continue
            body = await api.problem(421, "misdirected_request", *asked, **rebound)
            assert "PADDOCK_ALLOWED_HOSTS" in body["detail"]
    assert (await api.json("GET", "/api/sessions/box"))["status"] == "active"


async def test_names_of_the_list_are_answered(api: Api) -> None:
    for host in ("paddock.example.org", "localhost:1", f"127.0.0.1:{api.server.port}"):
        for path in ("/healthz", "/readyz", "/api/docs", "/api/sessions"):
            response = await api.call("GET", path, headers={"Host": host})
            assert response.status == 200, (host, path)


@each(
    "head",
    [
        "GET /healthz HTTP/1.0",
        "GET /healthz HTTP/1.1",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example",
        "GET http://localhost/healthz HTTP/1.1\r\nHost: rebound.example",
    ],
)
async def test_what_browsers_never_send_gets_no_further(api: Api, head: str) -> None:
    assert api.server.port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(WAIT_SECONDS):
        answer = await reader.read()
    writer.close()
    assert answer.split(b" ", 2)[1] in (b"400", b"421"), answer
    assert b'"ok"' not in answer
