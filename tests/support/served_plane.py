"""A control plane with a fake engine, served at an address that outlives it."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from api.app import create_app
from api.server import http_options
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import mounts
from orchestrator.rules.access.keys import Principal
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from tests.support.box import TESTER
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.new_session import new_session
from tests.support.restart import reopened

KEY = "pdk_admin-key-of-the-tests"
_IMAGE = "paddock/sandbox:latest"


class ServedPlane:
    """A control plane without containers. `restart` replaces it, `stop` and `serve` its server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.agents = Agents()
        images = {_IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"})}
        self.engine = FakeEngine(
            images=images, on_start=self.agents.start, on_stop=self.agents.stop
        )
        self.plane: ControlPlane
        self._server: TestServer | None = None
        self._port: int | None = None

    @property
    def address(self) -> str:
        """Where it is, or will be again."""
        host, port = self.listens
        return f"http://{host}:{port}/"

    @property
    def listens(self) -> tuple[str, int]:
        """Its host and port."""
        assert self._port is not None
        return "127.0.0.1", self._port

    async def open(self, lag: LoopLag | None = None) -> None:
        """Starts it for the first time; `lag` is that of a loop that is watched."""
        self.plane = await ControlPlane.open(self.settings, self.engine, lag=lag)
        await self.serve()

    async def serve(self) -> None:
        """Serves it, always at the same address."""
        self._server = TestServer(create_app(self.plane), port=self._port)
        await self._server.start_server(**http_options(self.plane), shutdown_timeout=0.1)
        self._port = self._server.port

    async def stop(self) -> None:
        """Ends the server and the control plane; its sandboxes go on."""
        if self._server is not None:
            await self._server.close()
        self._server = None
        await self.plane.close()

    async def restart(self) -> None:
        """Starts another control plane that takes over what the stopped one left."""
        self.plane = await reopened(self.settings, self.engine, self.agents)
        await self.serve()

    async def session(self, principal: Principal = TESTER, **members: Any) -> Session:
        """A new session, of an admin unless another key is given."""
        members = {"permission_level": "low", **members}
        session, *_ = await self.plane.sessions.create(principal, new_session(**members))
        return session

    async def close(self) -> None:
        """Ends everything."""
        for session in self.plane.sessions.registry.all:
            await self.plane.sessions.close(TESTER, session, purge=False)
        await self.stop()
        await self.agents.close()


@asynccontextmanager
async def served_plane(**members: Any) -> AsyncIterator[ServedPlane]:
    """A control plane that is served, in a state directory of its own; with further settings."""
    with tempfile.TemporaryDirectory(prefix="pdk-") as directory:
        served = ServedPlane(
            Settings(
                state_dir=Path(directory) / "state",
                admin_key=SecretStr(KEY),
                min_free_memory_bytes=0,
                min_free_disk_bytes=0,
                hello_timeout=WAIT_SECONDS,
                workspace_quota="none",
                max_active=200,
                **members,
            )
        )
        try:
            await served.open()
            yield served
            await served.close()
        finally:
            for point in reversed(mounts.mounts_under(directory)):
                mounts.unmount(point)
