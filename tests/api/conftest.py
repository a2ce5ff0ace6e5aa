"""A control plane with a fake engine whose sandboxes have agents in this process."""

import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from pydantic import SecretStr

from api.app import create_app
from api.server import http_options
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError
from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import mounts
from orchestrator.rules.access.keys import Principal, Role, digest
from orchestrator.settings.settings import Settings
from tests.support.contract import check_response
from tests.support.fake_agent import Agents, FakeAgent
from tests.support.limits import WAIT_SECONDS

ADMIN_KEY = "pdk_admin-key-of-the-tests"
OPERATOR_KEY = "pdk_operator-key-of-the-tests"
OTHER_KEY = "pdk_other-operator-of-the-tests"
IMAGE = "paddock/sandbox:latest"


@dataclass
class Api:
    """A client of the API (by default with the admin's key) and everything behind it."""

    client: TestClient[Any, Any]
    server: TestServer
    plane: ControlPlane
    engine: FakeEngine
    agents: Agents

    @property
    def agent(self) -> FakeAgent:
        """The agent of the most recently started sandbox."""
        return self.agents.latest

    async def call(
        self, method: str, path: str, *, key: str | None = ADMIN_KEY, **arguments: Any
    ) -> ClientResponse:
        headers = dict(arguments.pop("headers", {}))
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        response = await self.client.request(method, path, headers=headers, **arguments)
        await check_response(response)
        return response

    async def json(
        self, method: str, path: str, *, status: int = 200, **arguments: Any
    ) -> dict[str, Any]:
        """The JSON of a response, whose status must be the given one."""
        response = await self.call(method, path, **arguments)
        body: dict[str, Any] = await response.json(content_type=None)
        assert response.status == status, body
        return body

    async def problem(
        self, status: int, code: str, method: str, path: str, **arguments: Any
    ) -> dict[str, Any]:
        """The problem document of a response, after a check of its form."""
        response = await self.call(method, path, **arguments)
        assert response.content_type == "application/problem+json", await response.text()
        body: dict[str, Any] = await response.json(content_type=None)
        assert (response.status, body["status"], body["code"]) == (status, status, code), body
        assert body["type"] == "about:blank"
        assert body["title"]
        assert body["detail"]
        assert body["request_id"] == response.headers["X-Request-Id"]
        assert "Traceback" not in str(body)
        return body

    async def session(self, **body: Any) -> dict[str, Any]:
        """A new session, with its handle."""
        key = body.pop("key", ADMIN_KEY)
        return await self.json("POST", "/api/sessions", json=body, key=key, status=201)


@pytest.fixture
def state_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pdk-") as name:
        yield Path(name)
        for point in reversed(mounts.mounts_under(name)):
            mounts.unmount(point)


@pytest.fixture
def settings(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    keys = state_dir / "keys.toml"
    keys.write_text(
        "".join(
            f'[[keys]]\nname = "{name}"\nrole = "operator"\nsha256 = "{digest(key)}"\n'
            for name, key in (("operator", OPERATOR_KEY), ("other", OTHER_KEY))
        )
    )
    for name in ("PADDOCK_CONFIG_FILE", "PADDOCK_WORKSPACES_DIR", "SESSION_WORKSPACES_DIR"):
        monkeypatch.delenv(name, raising=False)
    state = state_dir / "state"
    paths = {"state_dir": state, "workspaces_dir": state / "session-workspaces", "keys_file": keys}
    return usual_settings().model_copy(update=paths)


@functools.cache
def usual_settings() -> Settings:
    """What every test's settings are, except for their paths. Reading them takes 10 ms."""
    return Settings(
        admin_key=SecretStr(ADMIN_KEY),
        min_free_memory_bytes=0,
        min_free_disk_bytes=0,
        hello_timeout=WAIT_SECONDS,
        workspace_quota="none",
    )


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    agents = Agents()
    yield agents
    await agents.close()


@pytest.fixture
def engine(agents: Agents) -> FakeEngine:
    images = {
        IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"}),
    }
    return FakeEngine(images=images, on_start=agents.start, on_stop=agents.stop)


@pytest.fixture
async def plane(settings: Settings, engine: FakeEngine) -> AsyncIterator[ControlPlane]:
    plane = await ControlPlane.open(settings, engine)
    yield plane
    tester = Principal("test", Role.ADMIN)
    for session in plane.sessions.registry.all:
        # If a test closed the ledger, `state_dir` does the unmounting.
        with contextlib.suppress(PaddockError):
            await plane.sessions.close(tester, session, purge=False)
    await plane.close()


@pytest.fixture
async def api(plane: ControlPlane, engine: FakeEngine, agents: Agents) -> AsyncIterator[Api]:
    async with served(plane, engine, agents) as api:
        yield api


@contextlib.asynccontextmanager
async def served(plane: ControlPlane, engine: FakeEngine, agents: Agents) -> AsyncIterator[Api]:
    """The API of the given control plane, and a client of the API."""
    server = TestServer(create_app(plane))
    # Served as usual, except that requests get less time to finish at shutdown.
    await server.start_server(**http_options(plane), shutdown_timeout=0.1)
    async with TestClient(server) as client:
        yield Api(client, server, plane, engine, agents)
