"""What clients were told, and so what must be true after a kill."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.server import Server

# The label of a session that is forked, and of its forks: how many there are.
FORKED = "forked"
LIVE = frozenset({"active", "paused"})
# The answer to a request that was not answered.
_LOST: tuple[int, Any] = (0, {})


@dataclass
class Expected:
    """One session: the values that each member may have; one if the last change was answered."""

    status: set[str] = field(default_factory=lambda: {"active"})
    level: set[str] = field(default_factory=set)
    # None: there is no such file.
    files: dict[str, set[bytes | None]] = field(default_factory=dict)
    # Whether its creation was answered, and so whether it must exist.
    known: bool = False
    purged: set[bool] = field(default_factory=lambda: {False})
    # What its workspace may have, without what is staged; empty: anything.
    workspaces: list[dict[str, bytes]] = field(default_factory=list)
    # The outcomes of its turns that were answered, by number.
    turns: dict[int, str] = field(default_factory=dict)


class Clients:
    """Calls the control plane, and remembers what it answered."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sessions: dict[str, Expected] = {}
        # The hashes of events that a client has seen.
        self.acknowledged: set[str] = set()
        self._following: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Follows all events from now on, until the control plane ends."""
        stream = await self.server.client.get("/api/events")
        self._following = asyncio.create_task(self._collect(stream))

    async def _collect(self, stream: aiohttp.ClientResponse) -> None:
        try:
            async for line in stream.content:
                if line.startswith(b"data:") and line.endswith(b"\n"):
                    self.acknowledged.add(json.loads(line[5:])["hash"])
        except (aiohttp.ClientError, ValueError):  # it was killed, perhaps within a line
            pass
        finally:
            stream.close()

    async def parted(self) -> None:
        """Waits until the stream of the ended control plane is read to its end."""
        if self._following is not None:
            await self._following
            self._following = None

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the answer; 0 if there is none."""
        try:
            status, answer = await self.server.call(method, path, body)
        except (aiohttp.ClientError, ConnectionError):
            return _LOST
        if isinstance(answer, dict) and isinstance(answer.get("audit"), dict):
            self.acknowledged.add(answer["audit"]["hash"])
        return status, answer

    async def create(self, session: str, level: str, **members: Any) -> bool:
        """Creates it; returns whether it exists now. A wrong answer fails the run."""
        expected = self.sessions.setdefault(session, Expected(level={level}))
        body = {"id": session, "permission_level": level, **members}
        status, answer = await self.call("POST", "/api/sessions", body)
        assert status in (0, 201, 502, 503), answer
        expected.known = status == 201
        return expected.known

    async def change(
        self,
        session: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        meanwhile: frozenset[str] = frozenset(),
        **after: Any,
    ) -> bool:
        """Changes members of a session; returns whether that was answered.

        `meanwhile`: further values that its status may have if it was not.
        """
        expected = self.sessions[session]
        status_before = set(expected.status)
        before = {name: set(getattr(expected, name)) for name in after}
        for name, value in after.items():
            getattr(expected, name).add(value)
        expected.status |= meanwhile
        status, _ = await self.call(method, f"/api/sessions/{session}{path}", body)
        if 200 <= status < 300:
            for name, value in after.items():
                setattr(expected, name, {value})
            if "status" not in after:
                expected.status = status_before
        elif status >= 400:
            for name, values in before.items():
                setattr(expected, name, values | {after[name]})
        return 200 <= status < 300

    async def reissue(self, session: str, method: str, path: str, body: Any) -> bool:
        """Creates it again, with its workspace; returns whether it exists now.

        A wrong answer fails the run.
        """
        expected = self.sessions[session]
        expected.status.add("active")
        status, answer = await self.call(method, f"/api/sessions/{session}{path}", body)
        assert status in (0, 201, 502, 503), answer
        if status == 201:
            expected.status = {"active"}
        return status == 201

    async def miss(self, session: str, path: str) -> bool:
        """Reads a file that is not in the session's pack; returns whether that was answered."""
        expected = self.sessions[session]
        expected.status.add("aborted")
        status, _ = await self.call("POST", f"/api/sessions/{session}/reads", {"path": path})
        if status == 403:
            expected.status = {"aborted"}
        return status == 403

    async def turn(self, session: str, operations: list[dict[str, Any]]) -> bool:
        """Runs a turn; returns whether that was answered."""
        body = {"operations": operations}
        status, answer = await self.call("POST", f"/api/sessions/{session}/turns", body)
        if status == 200:
            self.sessions[session].turns[answer["turn_number"]] = answer["outcome"]["tag"]
        return status == 200

    async def commit(self, session: str, after: dict[str, bytes]) -> bool:
        """Commits what is staged; its workspace has `after` then. Whether that was answered."""
        expected = self.sessions[session]
        before = list(expected.workspaces)
        expected.workspaces.append(after)
        status, answer = await self.call("POST", f"/api/sessions/{session}/proposals/commit", {})
        # Another scenario of a storm may use it at present.
        assert status in (0, 200, 409, 503), answer
        if status == 200:
            expected.workspaces = [after]
        elif status == 409:
            expected.workspaces = before
        return status == 200

    async def write(self, session: str, path: str, content: bytes) -> bool:
        """Replaces a file; returns whether that was answered."""
        known = self.sessions[session].files.setdefault(path, {None})
        known.add(content)
        url = f"/api/sessions/{session}/files"
        try:
            async with self.server.client.put(url, params={"path": path}, data=content) as answer:
                done = answer.status < 300
        except (aiohttp.ClientError, ConnectionError):
            return False
        if done:
            self.sessions[session].files[path] = {content}
        return done

    async def read(self, session: str, path: str) -> bytes | None:
        """A file's content; None if there is none."""
        url = f"/api/sessions/{session}/files"
        async with self.server.client.get(url, params={"path": path}) as answer:
            return await answer.read() if answer.status == 200 else None
