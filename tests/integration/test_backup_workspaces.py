"""Workspaces in backups: mounted images, written or not, and what a restoration makes of them."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ground.store.database import Database
from orchestrator.host.workspace import ext4, mounts, slots
from orchestrator.host.workspace.disk_image import DiskImages
from orchestrator.host.workspace.paths import slot_path
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.slots import Workspace
from orchestrator.operate.backups.backup import take
from orchestrator.operate.backups.backup_file import BackupError
from orchestrator.operate.backups.restoration import restore, settle
from orchestrator.settings.settings import Settings
from tests.support.leaks import devices_below, unmount_all

SIZE = 64 * 1024 * 1024
UID_BASE = 1_900_002_000


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    yield Settings(state_dir=state)
    unmount_all(tmp_path)
    assert devices_below(tmp_path) == []


async def claimed(settings: Settings, **quotas: Quota) -> dict[str, Workspace]:
    """Records workspaces, and makes the images of those that have one."""
    database = await Database.open(settings.state_dir / "paddock.db")
    found = {}
    for name, quota in quotas.items():
        found[name] = await database.write(
            lambda conn, name=name, quota=quota: slots.claim(  # type: ignore[misc]
                conn, name, "owner", UID_BASE, 100, quota
            )
        )
    await database.close()
    return found


def opened(settings: Settings, workspace: Workspace) -> Path:
    return DiskImages().open(slot_path(settings.state_dir, workspace.slot), workspace.uid, SIZE)


def quiet(_text: str) -> None:
    """Reports nothing."""


async def test_files_owners_and_modes_come_back(settings: Settings, tmp_path: Path) -> None:
    file, state = tmp_path / "backup.tar", settings.state_dir
    both = await claimed(settings, web=Quota.IMAGE, never=Quota.IMAGE, plain=Quota.NONE)
    web = both["web"]
    data = opened(settings, web)
    (data / "kept").write_text("at the time of the backup")
    os.chown(data / "kept", web.uid, web.uid)
    (data / "kept").chmod(0o640)
    taken = take(settings, file, quiet, workspaces=True)
    assert taken.workspaces == 1
    assert set(taken.left_out) == {"never", "plain"}
    assert "plain directory" in taken.left_out["plain"]
    assert file.stat().st_size < SIZE / 4
    assert sorted(os.listdir(tmp_path)) == ["backup.tar", "state"]

    # In the same directory, while what it replaces is mounted and in use.
    (data / "kept").write_text("later")
    with (data / "kept").open():
        done = await restore(settings, file, quiet, replace=True)
    assert (done.workspaces, mounts.mounts_under(str(state))) == (1, [])
    assert done.kept is not None
    assert (done.kept / "slots" / web.slot / "workspace.img").exists()
    image = slot_path(state, web.slot) / "workspace.img"
    assert image.stat().st_size == SIZE
    assert image.stat().st_blocks * 512 < SIZE / 4
    assert image.stat().st_mode & 0o777 == 0o600
    # In an empty one.
    other = Settings(state_dir=tmp_path / "other")
    await restore(other, file, quiet)
    for each in (settings, other):
        path = opened(each, web) / "kept"
        assert path.read_text() == "at the time of the backup"
        facts = path.stat()
        assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (web.uid, web.uid, 0o640)
        slot = slot_path(each.state_dir, web.slot)
        assert (slot.stat().st_mode | slot.parent.stat().st_mode) & 0o777 == 0o700


async def test_what_is_written_meanwhile_is_left_out(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy is of several moments; one write during it makes it begin again."""
    (web,) = (await claimed(settings, web=Quota.IMAGE)).values()
    data, copies, most = opened(settings, web), 0, 1
    real = ext4.copy_sparse

    def copy(source: Path, target: Path) -> None:
        nonlocal copies
        copies += 1
        real(source, target)
        if copies <= most:
            (data / "new").write_text(f"{copies}")

    monkeypatch.setattr(ext4, "copy_sparse", copy)
    taken = take(settings, tmp_path / "once.tar", quiet, workspaces=True)
    assert (taken.workspaces, taken.left_out, copies) == (1, {}, 2)
    copies, most = 0, 100
    taken = take(settings, tmp_path / "always.tar", quiet, workspaces=True)
    assert (taken.workspaces, copies) == (0, 3)
    assert "being written" in taken.left_out["web"]
    assert sorted(os.listdir(tmp_path)) == ["always.tar", "once.tar", "state"]
    other = Settings(state_dir=tmp_path / "other")
    await restore(other, tmp_path / "once.tar", quiet)
    assert (opened(other, web) / "new").read_text() == "1"


async def test_a_copy_beside_a_writer_is_whole_or_refused(
    settings: Settings, tmp_path: Path
) -> None:
    (web,) = (await claimed(settings, web=Quota.IMAGE)).values()
    data, stop = opened(settings, web), threading.Event()

    def write() -> None:
        while not stop.is_set():
            for name in range(20):
                path = data / str(name)
                path.write_bytes(os.urandom(10_000))
                path.rename(data / f"{name}.done")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        taken = take(settings, tmp_path / "backup.tar", quiet, workspaces=True)
    finally:
        stop.set()
        writer.join()
    assert taken.workspaces + len(taken.left_out) == 1
    assert all("being written" in why for why in taken.left_out.values())


async def test_killed_or_damaged(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup.tar"
    (web,) = (await claimed(settings, web=Quota.IMAGE)).values()
    (opened(settings, web) / "kept").write_text("x")
    take(settings, file, quiet, workspaces=True)
    other = Settings(state_dir=tmp_path / "other")
    damaged = tmp_path / "damaged.tar"
    data = bytearray(file.read_bytes())
    at = data.rindex(b"\x53\xef")  # of a superblock
    data[at] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(BackupError, match=r"workspace.img.sparse is not as"):
        await restore(other, damaged, quiet)
    assert os.listdir(other.state_dir) == ["lock"]

    class Killed(BaseException):
        pass

    real, moves = Path.rename, 0

    def rename(path: Path, target: Path) -> Path:
        nonlocal moves
        if web.slot in str(path):
            moves -= 1
            if moves < 0:
                raise Killed
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(Killed):
        await restore(settings, file, quiet, replace=True)
    moves = 1
    with pytest.raises(Killed):
        settle(settings)
    moves = 10
    assert settle(settings) is not None
    assert (opened(settings, web) / "kept").read_text() == "x"
