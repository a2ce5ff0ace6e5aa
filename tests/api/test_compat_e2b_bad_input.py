"""Whatever is sent to E2B's interface, the answer is in its form, and nothing breaks."""

import asyncio
import json
import re
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from api.compat.e2b.inside.routes import INSIDE_ROUTES
from api.compat.e2b.routes import PROTOCOL
from orchestrator.settings.settings import Settings
from tests.api.conftest import Api
from tests.support.e2b import made, sent


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("e2b",)})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_NAMES = (
    "templateID timeout autoPause metadata envVars network volumeMounts allow_internet_access "
    "name count duration denyOut allowOut memory mcp"
)
MEMBERS = st.sampled_from(_NAMES.split())
BODIES = (
    st.dictionaries(MEMBERS, JSON_VALUES, max_size=4).map(lambda each: json.dumps(each).encode())
) | st.binary(max_size=64)
QUERIES = st.dictionaries(st.text(max_size=8), st.text(max_size=16), max_size=3).map(
    lambda each: urlencode(each, errors="replace")
)
KINDS = st.sampled_from(["application/json", "text/plain", "multipart/form-data", "x/y; charset=z"])
ROUTES = [
    route
    for route in PROTOCOL.routes
    if route not in INSIDE_ROUTES and route.method in ("POST", "PUT", "DELETE", "GET")
]


@pytest.mark.slow
async def test_no_request_breaks_it(api: Api) -> None:
    loop = asyncio.get_running_loop()

    async def attempt(number: int, body: bytes, query: str, kind: str) -> None:
        route = ROUTES[number % len(ROUTES)]
        live = api.plane.sessions.registry.live
        sandbox = live[0].id if live else (await made(api))["sandboxID"]
        path = route.path.replace("{session_id}", sandbox)
        path = re.sub(r"\{[^}]*\}", "x", path)
        response = await sent(
            api, route.method, f"{path}?{query}", data=body, headers={"Content-Type": kind}
        )
        text = await response.text()
        assert response.status < 500 or response.status in (502, 503), (route, text)
        assert "Traceback" not in text
        if response.status >= 400:
            assert json.loads(text)["code"] == response.status

    @given(st.integers(0, 10**6), BODIES, QUERIES, KINDS)
    @hypothesis_settings(deadline=None, suppress_health_check=list(HealthCheck))
    def attempts(number: int, body: bytes, query: str, kind: str) -> None:
        asyncio.run_coroutine_threadsafe(attempt(number, body, query, kind), loop).result()

    await asyncio.to_thread(attempts)
