"""Directories of sandboxes on disks that hang."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import EngineUnavailableError
from orchestrator.sandboxes import placing
from orchestrator.sandboxes.directory import SandboxDirectory
from orchestrator.sandboxes.placing import Places
from tests.support.until import until


class Late:
    """A directory whose disk hangs until it is free."""

    def __init__(self) -> None:
        self.free, self.began, self.released = (threading.Event() for _ in range(3))
        self.directory = cast(Any, SimpleNamespace(name="late", release=self.released.set))

    def __call__(self) -> SandboxDirectory:
        self.began.set()
        assert self.free.wait(60)
        return cast(SandboxDirectory, self.directory)


@pytest.fixture
def late() -> Iterator[Late]:
    late = Late()
    yield late
    late.free.set()


async def test_what_comes_too_late_is_released(late: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "_SECONDS", 0.05)
    places = Places()
    with pytest.raises(EngineUnavailableError, match="did not answer"):
        await places.make(late)
    monkeypatch.setattr(placing, "_SECONDS", 30)
    assert not late.released.is_set()
    late.free.set()
    await until(late.released.is_set)


async def test_what_nobody_waits_for_is_released(late: Late) -> None:
    making = asyncio.create_task(Places().make(late))
    await asyncio.to_thread(late.began.wait, 60)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    late.free.set()
    await until(late.released.is_set)


async def test_what_comes_in_time_is_kept(late: Late) -> None:
    late.free.set()
    assert await Places().make(late) is late.directory
    assert not late.released.is_set()


async def test_what_can_not_be_made_is_told(tmp_path: Path) -> None:
    def fail() -> SandboxDirectory:
        return SandboxDirectory.create(
            tmp_path / "none", tmp_path, uid=1, home="/nonexistent", noexec=True
        )

    with pytest.raises(FileNotFoundError):
        await Places().make(fail)
