"""State directories on other file systems than ext4: sizes, staging, suspension, copies."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.operate.backups.backup import take
from orchestrator.operate.backups.restoration import restore
from orchestrator.settings.settings import Settings
from tests.integration.test_proposals import seeded
from tests.support.box import TESTER, Box
from tests.support.leaks import unmount_all
from tests.support.limits import PROGRAM_SECONDS
from tests.support.plane import clear, readiness, running, state

MIB = 1024 * 1024
LIMIT = 64 * MIB
# Writes until the first error, and prints what it was.
FILL = """
import errno
try:
    with open("big", "wb", buffering=0) as file:
        while True:
            file.write(bytes(range(256)) * 4096)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@pytest.fixture(params=["btrfs", "xfs"])
def file_system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty file system of that kind, in which state directories are made."""
    kind = str(request.param)
    if kind not in Path("/proc/filesystems").read_text().split():
        pytest.skip(f"this kernel has no {kind}")
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"mkfs.{kind} is not installed: {kind}progs, or {kind}-progs")
    disk, point = tmp_path / "disk", tmp_path / "fs"
    point.mkdir()
    with disk.open("wb") as file:
        file.truncate(2048 * MIB)
    _do(f"mkfs.{kind}", "-q", str(disk))
    _do("mount", "-o", "loop", str(disk), str(point))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(point))
            yield point
    finally:
        _do("umount", str(point))


def _do(*program: str) -> None:
    subprocess.run(program, check=True, capture_output=True, timeout=PROGRAM_SECONDS)


async def test_workspaces_work_as_on_any_other(file_system: Path, sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        assert settings.state_dir.is_relative_to(file_system)
        async with running(settings) as plane:
            assert (await readiness(plane))["workspace quota"].status == "ok"

            limits = {"workspace_bytes": LIMIT}
            box = await Box.create(plane, "high", id="full", limits=limits)
            assert (await box.python(FILL)).stdout == "ENOSPC\n"
            # Blocks are given when they are written, first in the image and then on the host.
            assert (await box.bash("sync")).exit_code == 0
            _do("sync", "--file-system", str(file_system))
            image = settings.state_dir / "slots" / box.session.workspace.slot / "workspace.img"
            assert LIMIT // 2 < on_disk(image) <= LIMIT + MIB
            assert (await box.bash("rm big; echo kept > file; sync")).exit_code == 0
            assert on_disk(image) < LIMIT // 2  # freed blocks return to the host

            staged = await seeded(plane, "staged", "echo 1 > a")
            await staged.bash("echo 2 > a")
            await plane.proposals.commit(TESTER, staged.session, None, None)
            assert (staged.workspace / "a").read_text() == "2\n"
            assert await plane.sessions.suspensions.suspend(box.session, "room")
            async with plane.sessions.suspensions.using(TESTER, box.session):
                assert (await box.run("cat file")).stdout == "kept\n"

            backup = file_system / "backup.tar"
            taken = take(settings, backup, lambda _line: None, workspaces=True)
            assert taken.workspaces == 2, taken
            assert backup.stat().st_size < LIMIT  # holes are not copied
            other = Settings(state_dir=file_system / "other")
            await restore(other, backup, lambda _line: None)
            copied = other.state_dir / "slots" / box.session.workspace.slot / "workspace.img"
            assert copied.stat().st_size == LIMIT
            assert on_disk(copied) < LIMIT // 2
            unmount_all(other.state_dir)
            await clear(plane)


def on_disk(file: Path) -> int:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    return file.stat().st_blocks * 512
