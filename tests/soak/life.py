"""One session's life, chosen at random: created, used, closed."""

import os
from random import Random
from typing import Any

from tests.support.server import Server

LEVELS = ("low", "medium", "high")
_MOST_STEPS = 12
_MOST_BYTES = 300_000


class Life:
    """Raises AssertionError if an answer is not what it must be."""

    def __init__(self, server: Server, chance: Random) -> None:
        self._server = server
        self._chance = chance
        self._path = ""
        self._level = ""
        self._files: dict[str, bytes] = {}
        self.steps = 0

    async def live(self) -> None:
        """Creates a session, uses it, and closes it with its workspace."""
        self._level = self._chance.choice(LEVELS)
        session = await self._post("/api/sessions", {"permission_level": self._level})
        self._path = f"/api/sessions/{session['id']}"
        try:
            await self._use()
        finally:
            status, answer = await self._server.call("DELETE", f"{self._path}?purge=true")
        assert status < 300, answer

    async def _use(self) -> None:
        for _ in range(self._chance.randint(1, _MOST_STEPS)):
            await self._chance.choice(
                (self._run, self._run, self._write, self._read, self._change_level, self._pause)
            )()
            self.steps += 1
        if self._chance.random() < 0.3:
            await self._post(f"{self._path}/{self._chance.choice(('abort', 'complete'))}")

    async def _run(self) -> None:
        """A command that succeeds, fails, is refused, or leaves a process behind."""
        if self._level != "high":
            assert (await self._exec(["ls", "-la"]))["exit_code"] == 0
            assert (await self._exec(["cat", "missing"]))["exit_code"] == 1
            status, answer = await self._server.call(
                "POST", f"{self._path}/exec", {"argv": ["python3", "-c", "pass"]}
            )
            assert (status, answer["code"]) == (403, "permission_denied"), answer
            return
        length = self._chance.randint(0, _MOST_BYTES)
        script = f"head -c {length} /dev/zero | tr '\\0' x; sleep 1000 & exit 3"
        result = await self._exec(["sh", "-c", script])
        assert result["exit_code"] == 3, result
        assert result["output_bytes"] == length, result["output_bytes"]

    async def _write(self) -> None:
        name = f"file-{self._chance.randint(0, 3)}"
        content = os.urandom(self._chance.randint(0, _MOST_BYTES))
        async with self._server.client.put(
            f"{self._path}/files", params={"path": name}, data=content
        ) as response:
            assert response.status < 300, await response.text()
        self._files[name] = content

    async def _read(self) -> None:
        for name, content in self._files.items():
            async with self._server.client.get(
                f"{self._path}/files", params={"path": name}
            ) as response:
                assert await response.read() == content, name

    async def _change_level(self) -> None:
        """The workspace stays."""
        self._level = self._chance.choice(LEVELS)
        await self._server.ok(
            "PUT", f"{self._path}/settings", {"settings": {"permission_level": self._level}}
        )
        await self._read()

    async def _pause(self) -> None:
        await self._post(f"{self._path}/pause")
        await self._post(f"{self._path}/resume")

    async def _exec(self, argv: list[str]) -> Any:
        return await self._post(f"{self._path}/exec", {"argv": argv})

    async def _post(self, path: str, body: Any = None) -> Any:
        return await self._server.ok("POST", path, body)
