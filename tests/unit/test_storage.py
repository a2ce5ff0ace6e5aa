"""A slot runs one call at a time, even if its caller no longer waits."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.host.workspace import storage as module
from orchestrator.host.workspace.quota import Choice, DiskUsage, Quota
from orchestrator.host.workspace.slots import Workspace
from orchestrator.host.workspace.storage import Storage, StorageError
from orchestrator.settings.settings import Settings
from tests.support.until import until

ONE = Workspace("one", "tester", 1000, "0" * 16, "", Quota.NONE)
TWO = Workspace("two", "tester", 1001, "1" * 16, "", Quota.NONE)


class SlowDisk:
    """A driver whose calls wait until released; it counts the calls at work in a slot."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.begun = 0
        self.at_work: dict[Path, int] = {}
        self.most_at_work = 0
        self._lock = threading.Lock()

    def data(self, slot: Path) -> Path:
        return slot

    def open(self, slot: Path, uid: int, size: int) -> Path:
        self._work(slot)
        return slot

    def mount(self, slot: Path) -> None:
        self._work(slot)

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        self._work(slot)
        return None

    def remove(self, slot: Path, uid: int) -> None:
        self._work(slot)

    def _work(self, slot: Path) -> None:
        with self._lock:
            self.begun += 1
            self.at_work[slot] = self.at_work.get(slot, 0) + 1
            self.most_at_work = max(self.most_at_work, *self.at_work.values())
        self.release.wait()
        with self._lock:
            self.at_work[slot] -= 1


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def storage(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Storage]:
    storage = Storage(Settings(state_dir=tmp_path), Choice(Quota.NONE))
    monkeypatch.setitem(storage._drivers, Quota.NONE, disk)
    yield storage
    disk.release.set()
    await storage.close()


async def test_what_takes_too_long_keeps_its_slot_until_it_is_done(
    storage: Storage, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG_SECONDS", 0.02)
    with pytest.raises(StorageError, match="does not answer in time"):
        await storage.prepare(ONE, 1)
    for _ in range(3):
        with pytest.raises(StorageError, match="still busy with a call that took too long"):
            await storage.remove(ONE)
    assert disk.begun == 1
    disk.release.set()
    await until(lambda: not storage._overdue)
    await storage.remove(ONE)
    assert (disk.begun, disk.most_at_work) == (2, 1)


async def test_a_caller_who_leaves_frees_no_slot(storage: Storage, disk: SlowDisk) -> None:
    preparing = asyncio.create_task(storage.prepare(ONE, 1))
    await until(lambda: disk.begun == 1)
    preparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await preparing
    removing = asyncio.create_task(storage.remove(ONE))
    other = asyncio.create_task(storage.prepare(TWO, 1))
    await until(lambda: disk.begun == 2)  # the other slot's call
    disk.release.set()
    await removing
    await other
    assert (disk.begun, disk.most_at_work) == (3, 1)


async def test_calls_that_hang_take_a_bounded_number_of_threads(
    storage: Storage, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG_SECONDS", 0.5)
    workspaces = [
        Workspace(str(number), "tester", number, f"{number:016x}", "", Quota.NONE)
        for number in range(40)
    ]
    failed = await asyncio.gather(
        *(storage.prepare(workspace, 1) for workspace in workspaces), return_exceptions=True
    )
    assert all(isinstance(error, StorageError) for error in failed)
    assert sum("all 32 threads for workspaces are taken" in str(error) for error in failed) == 8
    assert disk.begun == 32


async def test_a_slot_that_hangs_is_looked_at_once(
    storage: Storage, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_USAGE_SECONDS", 0.02)
    for _ in range(20):
        assert await storage.usage(ONE) is None
    assert disk.begun == 1
