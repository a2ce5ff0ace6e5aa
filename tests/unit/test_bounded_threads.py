"""What hangs while sandboxes end takes few threads, and the ends come all the same."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import EngineUnavailableError
from orchestrator.sessions import stopping
from orchestrator.sessions.sandbox import Sandbox, Sandboxes
from orchestrator.sessions.stopping import Stopper

SANDBOXES = 40


class Hanging:
    """Calls that hang until as many are under way as ever are."""

    def __init__(self, most: int) -> None:
        self.calls = self.highest = 0
        self._most = most
        self._now = 0
        self._lock = threading.Lock()
        self._full = threading.Event()

    def __call__(self, *_: object, **__: object) -> None:
        with self._lock:
            self.calls += 1
            self._now += 1
            self.highest = max(self.highest, self._now)
            if self._now == self._most:
                self._full.set()
        assert self._full.wait(30)
        with self._lock:
            self._now -= 1


async def test_releases_that_hang_take_few_threads(tmp_path: Path) -> None:
    release = Hanging(4)
    settings = SimpleNamespace(image="an image")
    sandboxes = Sandboxes(cast(Any, settings), *[cast(Any, None)] * 5)

    async def closed() -> None:
        """The link is."""

    link = SimpleNamespace(close=closed)
    directory = SimpleNamespace(release=release, name="x", workspace=tmp_path / "none")
    await asyncio.gather(
        *(sandboxes._discard(cast(Any, directory), cast(Any, link), None) for _ in range(SANDBOXES))
    )
    assert release.calls == SANDBOXES
    assert release.highest == 4


async def test_kills_that_hang_take_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    kill = Hanging(16)
    monkeypatch.setattr(stopping, "kill_all", kill)

    class Broken:
        """An engine that freezes nothing."""

        async def pause(self, _container: str) -> None:
            raise EngineUnavailableError("no")

    stops = Stopper(cast(Any, Broken()))
    held = [
        cast(Sandbox, SimpleNamespace(name="x", container_id="c", first=None, freezing=None))
        for _ in range(SANDBOXES)
    ]
    frozen = await asyncio.gather(*(stops.freeze(sandbox) for sandbox in held))
    assert not any(frozen)
    assert kill.calls >= SANDBOXES
    assert kill.highest == 16
