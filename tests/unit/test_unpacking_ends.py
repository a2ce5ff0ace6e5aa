"""However unpacking an archive goes wrong, its stream is closed and its reason is told."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import PaddockError, SandboxUnavailableError, TooLargeError
from orchestrator.work.files import file_archives
from orchestrator.work.files.file_archives import FileArchives

MORE = {"bytes": 0, "more": True}


class FakeAgent:
    """A link and its requests, whose file.close is answered by `done`."""

    def __init__(self, done: dict[str, Any], *, hangs: bool = False, gone: bool = False) -> None:
        self.closed: list[bool] = []
        self._done, self._hangs, self._gone = done, hangs, gone

    async def prepare(self, *_args: Any, **_members: Any) -> tuple["FakeAgent", str]:
        return self, "in"

    async def open(self, *_args: Any, **_members: Any) -> dict[str, Any]:
        return {"stream": 1}

    async def ask(self, _link: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self.request(method, params)

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "file.close":
            self.closed.append(params["commit"])
            if self._hangs and params["commit"]:
                await asyncio.Event().wait()
        return self._done

    async def settled(self) -> None:
        if self._gone:
            raise SandboxUnavailableError("gone")


async def nothing() -> AsyncIterator[bytes]:
    for piece in (b"x",):
        yield piece


async def broken() -> AsyncIterator[bytes]:
    yield b"x"
    raise ConnectionResetError("the client has gone")


async def unpack(agent: FakeAgent, chunks: AsyncIterator[bytes]) -> None:
    archives = FileArchives(cast(Any, agent))
    session = SimpleNamespace(limits=SimpleNamespace(workspace_bytes=1000))
    await archives.unpack(cast(Any, None), cast(Any, session), "in", "tar", chunks)


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_agent_that_is_never_done(monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    monkeypatch.setattr(file_archives, "_MOST_STEPS", 3)
    monkeypatch.setattr(file_archives, "_MOST_SECONDS", 0.01 if hangs else 3600.0)
    agent = FakeAgent(MORE, hangs=hangs)
    with pytest.raises(TooLargeError, match="too long"):
        await unpack(agent, nothing())
    assert agent.closed == [True] * (1 if hangs else 3) + [False]


async def test_a_malformed_summary_closes_the_stream() -> None:
    agent = FakeAgent({"bytes": 0, "summary": {"files": "many"}})
    with pytest.raises(PaddockError, match="malformed"):
        await unpack(agent, nothing())
    assert agent.closed == [True, False]


async def test_the_reason_is_told_even_if_the_agent_is_gone() -> None:
    agent = FakeAgent({}, gone=True)
    with pytest.raises(ConnectionResetError, match="client has gone"):
        await unpack(agent, broken())
    assert agent.closed == [False]
