"""A small client of the HTTP API: a host creates sessions and uses each one by its handle."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import aiohttp

# The sandbox agent serves 8 file operations of a session at once.
UPLOADS_AT_ONCE = 6
# An idle stream has a heartbeat every 15 seconds; nothing else takes longer than this.
# A slow machine takes minutes for a sandbox with a network of its own.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=300)
_LONGEST_LINE = 4 * 1024 * 1024


class ApiError(Exception):
    """The API refused: `status` and `code` give the reason, `rule` the policy rule, if any."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.status = status
        self.code = problem.get("code")
        self.rule = problem.get("rule")


class UnreachableError(Exception):
    """No control plane answers."""


@dataclass(frozen=True, slots=True)
class Api:
    """Requests with one credential: an API key, or a session's handle."""

    http: aiohttp.ClientSession
    credential: str

    @asynccontextmanager
    async def request(
        self, method: str, path: str, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful response. Raises: ApiError, UnreachableError."""
        headers = {"Authorization": f"Bearer {self.credential}", **options.pop("headers", {})}
        with _reaching():
            async with self.http.request(method, path, headers=headers, **options) as response:
                if not response.ok:
                    raise ApiError(response.status, await _problem(response))
                yield response

    async def json(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of a successful response. Raises: ApiError, UnreachableError."""
        async with self.request(method, path, **options) as response:
            return await response.json()


@dataclass(frozen=True, slots=True)
class Session:
    """A session and its sandbox, as an agent with the session's handle sees it."""

    api: Api
    id: str
    level: str

    @property
    def _path(self) -> str:
        return f"/api/sessions/{self.id}"

    async def run(self, command: str) -> dict[str, Any]:
        """Runs a command to its end: `{exit_code, stdout, stderr, audit {seq, hash}, …}`."""
        result: dict[str, Any] = await self.api.json(
            "POST", f"{self._path}/exec", json={"command": command}
        )
        return result

    async def stream(self, **request: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Runs a command and yields `start`, `stdout`, `stderr` and `exit` as they come."""
        headers = {"Accept": "text/event-stream"}
        async with self.api.request(
            "POST", f"{self._path}/exec", json=request, headers=headers
        ) as response:
            async for name, data in server_sent_events(response.content):
                if name == "error":
                    raise ApiError(data.get("status", 500), data)
                yield name, data

    async def upload(self, files: Mapping[str, bytes]) -> None:
        """Uploads files by workspace-relative path, a few at a time; creates their directories."""
        for directory in _directories(files):
            await self.api.json("POST", f"{self._path}/files/mkdir", json={"path": directory})
        waiting = iter(files.items())

        async def put_some() -> None:
            for path, content in waiting:
                await self.api.json(
                    "PUT", f"{self._path}/files", params={"path": path}, data=content
                )

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(UPLOADS_AT_ONCE):
                    group.create_task(put_some())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def download(self, path: str) -> bytes:
        """A file's content."""
        async with self.api.request(
            "GET", f"{self._path}/files", params={"path": path}
        ) as response:
            return await response.read()

    async def inspect(self) -> dict[str, Any]:
        """The session, with its sandbox's limits as the engine reports them."""
        view: dict[str, Any] = await self.api.json("GET", self._path)
        return view

    async def audit_export(self) -> list[str]:
        """The audit chain, one JSON text per event."""
        async with self.api.request("GET", f"{self._path}/audit/export") as response:
            text = (await response.read()).decode()
        return text.removesuffix("\n").split("\n")

    async def audit_verify(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """The control plane's check of the chain, including the event of a receipt."""
        verdict: dict[str, Any] = await self.api.json(
            "GET",
            f"{self._path}/audit/verify",
            params={"seq": receipt["seq"], "hash": receipt["hash"]},
        )
        return verdict


@asynccontextmanager
async def connect(url: str, key: str) -> AsyncIterator[Api]:
    """The API with a host's key. Raises: UnreachableError if no control plane is ready."""
    async with aiohttp.ClientSession(url, timeout=_TIMEOUT, read_bufsize=_LONGEST_LINE) as http:
        host = Api(http, key)
        try:
            await host.json("GET", "/readyz")
        except ApiError as error:
            raise UnreachableError(
                f"the control plane is not ready (HTTP {error.status})"
            ) from None
        yield host


@asynccontextmanager
async def session(host: Api, level: str, **request: Any) -> AsyncIterator[Session]:
    """A new session at a permission level; closes it and purges its workspace at the end."""
    view = await host.json("POST", "/api/sessions", json={"permission_level": level, **request})
    try:
        yield Session(Api(host.http, view["handle"]), view["id"], view["permission_level"])
    finally:
        await host.json("DELETE", f"/api/sessions/{view['id']}", params={"purge": "true"})


async def server_sent_events(lines: AsyncIterable[bytes]) -> AsyncIterator[tuple[str, Any]]:
    """The events of a `text/event-stream`: the name, and the data as JSON."""
    name, data = "message", ""
    async for line in lines:
        field, _, value = line.decode().removesuffix("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = value
        elif not field and data:  # an empty line ends an event, and a comment has no data
            yield name, json.loads(data)
            name, data = "message", ""


def _directories(files: Mapping[str, bytes]) -> list[str]:
    """The innermost directories of the paths: creating them creates their parents."""
    parents = {str(PurePosixPath(path).parent) for path in files} - {"."}
    return sorted(
        path for path in parents if not any(other.startswith(f"{path}/") for other in parents)
    )


async def _problem(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The problem document of a failure; another server's answer may have none."""
    try:
        problem = await response.json(content_type=None)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UnreachableError(str(error) or "no answer in time") from error
