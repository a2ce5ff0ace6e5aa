"""The measured control plane: a separate process, reached over HTTP."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.leaks import NOTHING, left_behind
from tests.support.live import live
from tests.support.server import Server, serving

_WAIT_SECONDS = 60


class BenchError(Exception):
    """A measurement failed; the message says what."""


class Restarted(NamedTuple):
    """A start after a kill: sessions taken over, the time for that, and for the whole start."""

    sessions: int
    recovery_ms: float
    start_ms: float


class Plane:
    """The timed operations of a host application."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def pid(self) -> int:
        """The pid of the control plane's process."""
        return self._server.pid

    @property
    def url(self) -> str:
        """Its URL."""
        return self._server.url

    @property
    def key(self) -> str:
        """The admin key."""
        return self._server.key

    @property
    def state_dir(self) -> Path:
        """Its state directory."""
        return self._server.state_dir

    async def killed_and_restarted(self) -> Restarted:
        """Kills the control plane, and starts it again."""
        await self._server.kill()
        began = time.perf_counter()
        await self._server.start()
        start_ms = 1000 * (time.perf_counter() - began)
        path = "/api/audit?operation=recovery&limit=1"
        (event,) = (await self._server.ok("GET", path))["items"]
        found = event["result"]
        return Restarted(found["sessions_recovered"], found["recovery_time_ms"], start_ms)

    async def list_sessions(self) -> None:
        """Lists all sessions."""
        await self._server.ok("GET", "/api/sessions?limit=1000")

    async def image(self) -> str:
        """The image of new sandboxes."""
        session = await self.create("low")
        try:
            view = await self.inspect(session)
            return str(view["sandbox"]["image"])
        finally:
            await self.close(session)

    async def waits(self, level: str) -> None:
        """Waits until a sandbox of that level waits for a session, and nothing else happens."""
        line = f'paddock_warm_sandboxes{{level="{level}"}} 1.0'
        async with asyncio.timeout(_WAIT_SECONDS):
            while True:
                async with self._server.client.get("/metrics") as response:
                    if line in await response.text():
                        return
                await asyncio.sleep(0.1)

    async def create(self, level: str, **limits: int) -> str:
        """Creates a session; returns its id."""
        body = {"permission_level": level, "limits": limits}
        view = await self._server.ok("POST", "/api/sessions", body)
        return str(view["id"])

    async def inspect(self, session: str) -> dict[str, Any]:
        """A session's object."""
        view: dict[str, Any] = await self._server.ok("GET", f"/api/sessions/{session}")
        return view

    async def container(self, session: str) -> str:
        """The name of the session's container."""
        return f"paddock-{(await self.inspect(session))['sandbox']['id']}"

    async def close(self, session: str) -> None:
        """Ends the session and purges its workspace."""
        await self._server.ok("DELETE", f"/api/sessions/{session}?purge=true")

    async def run(self, session: str, argv: list[str]) -> str:
        """A command's output. Raises: BenchError if it fails."""
        path = f"/api/sessions/{session}/exec"
        result = await self._server.ok("POST", path, {"argv": argv})
        if result["exit_code"] != 0:
            raise BenchError(f"{argv[0]} ended with {result['exit_code']}: {result['stderr']}")
        return str(result["stdout"])

    async def exec_true(self, session: str, times: int) -> list[float]:
        """Seconds for each `true`, one after another: request to durable, recorded result."""
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            await self.run(session, ["true"])
            taken.append(time.perf_counter() - began)
        return taken

    async def open_tool(self, session: str, tool: str) -> str:
        """Opens a terminal; returns its path."""
        path = f"/api/sessions/{session}/ptys"
        opened = await self._server.ok("POST", path, {"tool": tool})
        return f"{path}/{opened['id']}"

    async def lines(self, terminal: str, tool: str, text: str, times: int) -> list[float]:
        """Seconds for each line, one after another: request to durable, recorded answer."""
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            body = {"tool": tool, "command": text}
            answer = await self._server.ok("POST", f"{terminal}/interactions", body)
            taken.append(time.perf_counter() - began)
            if answer["status"] != "success":
                raise BenchError(f"{text} came to {answer['status']}: {answer['error']}")
        return taken

    async def null_calls(self, times: int) -> list[float]:
        """Seconds for each request that does nothing, one after another."""
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            async with self._server.client.get("/healthz") as response:
                await response.read()
            taken.append(time.perf_counter() - began)
        return taken

    @asynccontextmanager
    async def typing(self, session: str) -> AsyncIterator[Callable[[int], Awaitable[list[float]]]]:
        """Types single keys at a shell's `cat`: seconds until each one's echo is shown."""
        path = f"/api/sessions/{session}/terminal"
        async with live(self._server.client, path) as shell:
            await shell.until("$ ")
            await shell.type("echo re''ady; cat\r")
            await shell.until("ready\r\n")

            async def keys(times: int) -> list[float]:
                taken = []
                for _ in range(times):
                    shell.output = b""
                    began = time.perf_counter()
                    await shell.type("x")
                    await shell.until("x")
                    taken.append(time.perf_counter() - began)
                return taken

            yield keys

    async def exec_rate(self, sessions: list[str], times: int) -> float:
        """`true`s per second, in all sessions at the same time."""
        began = time.perf_counter()
        await asyncio.gather(*(self.exec_true(session, times) for session in sessions))
        return len(sessions) * times / (time.perf_counter() - began)

    async def upload(self, session: str, path: str, block: bytes, count: int) -> float:
        """Seconds to write a file of `count` blocks."""

        async def blocks() -> AsyncIterator[bytes]:
            for _ in range(count):
                yield block

        began = time.perf_counter()
        url = f"/api/sessions/{session}/files"
        async with self._server.client.put(url, params={"path": path}, data=blocks()) as response:
            written = (await response.json())["bytes"] if response.ok else await response.text()
        if written != len(block) * count:
            raise BenchError(f"the upload failed: {written}")
        return time.perf_counter() - began

    async def download(self, session: str, path: str, block: bytes, count: int) -> float:
        """Seconds to read that file, which must hold these blocks."""
        began = time.perf_counter()
        url = f"/api/sessions/{session}/files"
        async with self._server.client.get(url, params={"path": path}) as response:
            for _ in range(count):
                if await response.content.readexactly(len(block)) != block:
                    raise BenchError("the download is not what was uploaded")
            if await response.content.read():
                raise BenchError("the download is longer than what was uploaded")
        return time.perf_counter() - began


@asynccontextmanager
async def measured_plane(**environment: str) -> AsyncIterator[Plane]:
    """A control plane with a separate state directory; nothing of it is left at the end."""
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        state_dir = Path(directory) / "state"
        async with serving(state_dir, **environment) as server:
            plane = Plane(server)
            try:
                yield plane
            finally:
                for session in (await server.ok("GET", "/api/sessions?limit=1000"))["items"]:
                    await plane.close(session["id"])
        # Sandboxes that wait for sessions are removed when it stops.
        left = left_behind(state_dir)
        if left != NOTHING:
            raise BenchError(f"left behind: {left}")
