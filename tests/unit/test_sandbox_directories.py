"""Directories of sandboxes on disks that hang."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.sandbox.sandboxes import sandbox_directories
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories
from orchestrator.state.directory import SandboxDirectory
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until


class Late:
    """A call whose disk hangs until the test frees it, and which then makes the directory."""

    def __init__(self, state_dir: Path) -> None:
        self.free, self.began = threading.Event(), threading.Event()
        self.directory = SandboxDirectory.fresh(state_dir)

    def __call__(self) -> None:
        self.began.set()
        assert self.free.wait(WAIT_SECONDS)
        self.directory.make()


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Late]:
    late = Late(tmp_path)
    yield late
    late.free.set()


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of released directories; nothing is mounted in these."""
    names: list[str] = []
    monkeypatch.setattr(SandboxDirectory, "release", lambda self: names.append(self.name))
    return names


async def test_what_comes_too_late_is_released(
    late: Late, released: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_directories, "_SECONDS", 0.05)
    directories = SandboxDirectories()
    with pytest.raises(EngineUnavailableError, match="did not answer"):
        await directories.make(late.directory, late)
    monkeypatch.setattr(sandbox_directories, "_SECONDS", 30)
    # After a wait that timed out, later calls do not wait again.
    with pytest.raises(TimeoutError, match="still busy"):
        await directories.remove(late.directory, late.directory.remove)
    assert released == []
    late.free.set()
    await until(lambda: released == [late.directory.name])


async def test_what_nobody_waits_for_is_released(late: Late, released: list[str]) -> None:
    directories = SandboxDirectories()
    making = asyncio.create_task(directories.make(late.directory, late))
    await asyncio.to_thread(late.began.wait, 60)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    late.free.set()
    await until(lambda: released == [late.directory.name])


async def test_what_was_given_up_is_removed_after_it_was_made(late: Late) -> None:
    """The removal waits for the call, because the directory does not exist yet."""
    directories = SandboxDirectories()
    making = asyncio.create_task(directories.make(late.directory, late))
    await asyncio.to_thread(late.began.wait, 60)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    removing = asyncio.create_task(directories.remove(late.directory, late.directory.remove))
    late.free.set()
    await removing
    assert not late.directory.path.exists()


async def test_what_comes_in_time_is_kept(late: Late, released: list[str]) -> None:
    late.free.set()
    await SandboxDirectories().make(late.directory, late)
    assert late.directory.passwd.exists()
    assert released == []


async def test_calls_for_one_directory_come_one_after_the_other(tmp_path: Path) -> None:
    directories, directory = SandboxDirectories(), SandboxDirectory(tmp_path / "a")
    under_way: list[int] = []
    most: list[int] = []

    def change() -> None:
        under_way.append(1)
        most.append(len(under_way))
        under_way.pop()

    await asyncio.gather(*(directories.make(directory, change) for _ in range(20)))
    assert most == [1] * 20


async def test_what_can_not_be_made_is_told(tmp_path: Path) -> None:
    directory = SandboxDirectory.fresh(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        await SandboxDirectories().make(directory, lambda: directory.make())
