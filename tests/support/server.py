"""A control plane in a separate process, for tests that end it in various ways."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from images.recipes import SANDBOX
from tests.support.forked import Forked, fork
from tests.support.free_ports import free_port
from tests.support.leaks import NOTHING, end_sandboxes, left_behind, unmount_all
from tests.support.limits import PROGRAM_SECONDS
from tests.support.made_agents import give
from tests.support.plane import uid_base

ROOT = Path(__file__).parents[2]
# Only one that was not killed is waited for as long: on a busy machine, an end takes seconds.
_DYING_SECONDS = 10


class Server:
    """Runs `python -m paddock serve` repeatedly on one state directory.

    `tests/integration/test_serve.py` starts it as users do.
    """

    def __init__(
        self,
        state_dir: Path,
        python: Path = Path(sys.executable),
        directory: Path = ROOT,
        module: str = "paddock",
        /,
        **environment: str,
    ) -> None:
        """By default, runs this clone's code with the tests' interpreter."""
        self.state_dir = state_dir
        self._python = python
        self._directory = directory
        self._port = free_port()
        # Of the next start. Tests of another worker may run others: the same uids would be their
        # processes. The larger default images of levels are not built for tests.
        usual = {"PADDOCK_UID_BASE": str(uid_base()), "PADDOCK_LEVEL_IMAGES": "{}"}
        self.environment = {**usual, **environment}
        # The module that is run.
        self.module = module
        # Its output up to its last end.
        self.log = b""
        self._process: asyncio.subprocess.Process | Forked | None = None
        self._client: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def key(self) -> str:
        """The admin key."""
        return (self.state_dir / "admin.key").read_text().strip()

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts it, and returns when it is ready."""
        environment = {
            **os.environ,
            "PADDOCK_STATE_DIR": str(self.state_dir),
            "PADDOCK_LISTEN": f"127.0.0.1:{self._port}",
            **self.environment,
        }
        self._process = await self._started(environment)
        assert self._process.stdout is not None
        async with asyncio.timeout(PROGRAM_SECONDS):
            said = b""
            while b"listening on" not in said:
                line = await self._process.stdout.readline()
                said += line
                self.log += line
                assert line, f"the control plane did not start: {said.decode()}"
        self._client = aiohttp.ClientSession(
            self.url, headers={"Authorization": f"Bearer {self.key}"}
        )

    async def _started(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process | Forked:
        """This clone's code needs no new Python, which would take two seconds to import it."""
        if (str(self._python), self._directory) == (sys.executable, ROOT):
            return await fork(self.module, "serve", cwd=ROOT, env=environment)
        return await asyncio.create_subprocess_exec(
            *(self._python, "-m", self.module, "serve"),
            cwd=self._directory,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def kill(self) -> None:
        """Sends SIGKILL, without a chance to react."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Sends SIGTERM, and waits for its end."""
        await self._end(signal.SIGTERM)

    async def died(self) -> bool:
        """Whether it has been killed by something else; its end may take a moment."""
        if self._process is None:  # ended by a test
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _DYING_SECONDS)
        return self._process.returncode == -signal.SIGKILL

    async def _end(self, number: int) -> None:
        client, self._client = self._client, None
        if self._process is not None:
            if self._process.returncode is None:
                self._process.send_signal(number)
            # Its last output must not fill the pipe while it ends.
            async with asyncio.timeout(PROGRAM_SECONDS):
                output, _ = await self._process.communicate()
            self.log += output
            self._process = None
        if client is not None:
            await client.close()

    @property
    def client(self) -> aiohttp.ClientSession:
        """An HTTP client with the admin key. Raises: ConnectionError unless it runs."""
        if self._client is None:
            raise ConnectionError("the control plane does not run")
        return self._client

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and JSON of one request."""
        data = None if body is None else json.dumps(body)
        async with self.client.request(method, path, data=data) as response:
            return response.status, await response.json(content_type=None)

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a request that must succeed."""
        status, answer = await self.call(method, path, body)
        assert status < 300, (method, path, status, answer)
        return answer


@asynccontextmanager
async def serving(
    state_dir: Path,
    python: Path = Path(sys.executable),
    directory: Path = ROOT,
    module: str = "paddock",
    /,
    **environment: str,
) -> AsyncIterator[Server]:
    """A running server, stopped at the end; its sandboxes go, and kept workspaces are unmounted."""
    server = Server(state_dir, python, directory, module, **environment)
    await give(state_dir, environment.get("PADDOCK_IMAGE", SANDBOX.image))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        end_sandboxes(state_dir)
        unmount_all(state_dir)


@asynccontextmanager
async def leaving_nothing(**environment: str) -> AsyncIterator[Server]:
    """A running server with a directory of its own; at its end, no session has left anything."""
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        state = Path(directory) / "state"
        async with serving(state, **environment) as running:
            yield running
            left = left_behind(state)
        assert left == NOTHING, left
