"""No attempt makes a workspace exceed its limit, or use more of the host's disk."""

import errno
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.host.node.requirements import Requirements, UnmetError
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.mounts import mounts_under
from orchestrator.host.workspace.prepared_slots import READY
from orchestrator.host.workspace.project_quota import ProjectUse
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.storage import StorageError, choice_for
from orchestrator.operate.checks.quota import check_quota
from orchestrator.rules.policy.levels import load_levels
from orchestrator.state.requests import NewSession
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box
from tests.support.leaks import devices_below, unmount_all
from tests.support.plane import clear, readiness, running, state
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
LIMIT = 64 * MIB
# Each prints the number of bytes that it could store before the first error, and that error.
ATTEMPTS = {
    "one file": """
size = 0
with open("big", "wb", buffering=0) as file:
    while True:
        size += file.write(block)
""",
    "many files": """
size = number = 0
while True:
    with open(f"f{number}", "wb") as file:
        file.write(block[:2048])
    size, number = size + 2048, number + 1
""",
    "empty files and long names": """
size = number = 0
while True:
    open(f"{number}-" + "n" * 200, "wb").close()
    size, number = size + 200, number + 1
""",
    "a sparse file that is filled": """
size = 0
with open("sparse", "r+b" if os.path.exists("sparse") else "w+b", buffering=0) as file:
    file.truncate(1 << 40)
    while True:
        file.seek(size * 37)
        size += file.write(block)
""",
    "hard links to growing files": """
size = number = 0
while True:
    with open("growing", "ab", buffering=0) as file:
        size += file.write(block)
    os.link("growing", f"link{number}")
    if number % 4 == 3:
        os.unlink("growing")
    number += 1
""",
    "deleted but open files": """
size, held = 0, []
while True:
    file = open("gone", "wb", buffering=0)
    held.append(file)
    os.unlink("gone")
    for _ in range(64):
        size += file.write(block)
""",
    "fallocate": """
size = 0
file = os.open("reserved", os.O_CREAT | os.O_RDWR)
while True:
    os.posix_fallocate(file, size, len(block))
    size += len(block)
""",
    "extended attributes": """
size = number = 0
while True:
    open(f"x{number}", "wb").close()
    os.setxattr(f"x{number}", "user.a", block[:3000])
    size, number = size + 3000, number + 1
""",
}
FRAME = """
import errno, os
block = os.urandom(65536)
size = 0
try:
    exec(os.environ["ATTEMPT"])
except OSError as error:
    print(size, errno.errorcode[error.errno])
    os.sync()
"""


@pytest_asyncio.fixture(loop_scope="module")
async def small(new_box: BoxFactory) -> AsyncIterator[Box]:
    box = await new_box("high", limits={"workspace_bytes": LIMIT})
    yield box
    await box.close()


def slot_of(box: Box) -> Path:
    return box.plane.settings.state_dir / "slots" / box.session.workspace.slot


def on_host(slot: Path) -> int:
    """Bytes that the slot uses on the host's disk."""
    return sum(path.lstat().st_blocks * 512 for path in slot.iterdir() if path.is_file())


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_the_limit_is_hard(small: Box, attempt: str) -> None:
    result = await small.python(FRAME, env={"ATTEMPT": ATTEMPTS[attempt]}, timeout=120)
    assert result.exit_code == 0, (result.stdout, result.stderr)
    size, error = result.stdout.split()
    assert error == "ENOSPC"
    assert 0 < int(size) < LIMIT
    assert on_host(slot_of(small)) <= LIMIT + MIB  # including the host's map of the file
    assert (slot_of(small) / "workspace.img").stat().st_size == LIMIT
    # The workspace is full, not broken: freed space can be written again.
    assert (await small.bash("find . -mindepth 1 -delete && echo again > file")).exit_code == 0
    assert await small.read("file") == b"again\n"


async def test_most_of_the_limit_can_be_used(small: Box) -> None:
    result = await small.python(FRAME, env={"ATTEMPT": ATTEMPTS["one file"]}, timeout=120)
    assert int(result.stdout.split()[0]) > LIMIT * 7 // 8
    disk = (await small.plane.sessions.inspector.inspect(small.session)).disk
    assert disk is not None
    assert disk.limit_bytes > LIMIT * 7 // 8
    assert disk.limit_bytes - disk.used_bytes < MIB


async def test_uploads_end_there_too(small: Box) -> None:
    await small.python(FRAME, env={"ATTEMPT": ATTEMPTS["one file"]}, timeout=120)
    with pytest.raises(Exception, match=r"full|space"):
        await small.write("more", os.urandom(MIB))


async def test_nothing_but_the_session_s_files_is_there(new_box: BoxFactory) -> None:
    box = await new_box("low")
    found = await box.run("find .")
    assert (found.exit_code, found.stdout, found.stderr) == (0, ".\n", "")
    assert await box.paths() == []
    assert os.listdir(box.workspace) == []
    assert box.session.workspace.quota is Quota.IMAGE
    await box.close()
    assert not slot_of(box).exists()


async def test_a_closed_session_s_files_stay_and_come_back(new_box: BoxFactory) -> None:
    box = await new_box("medium", id="kept-files")
    await box.write("file", b"content")
    await box.plane.sessions.close(TESTER, box.session, purge=False)
    assert (box.workspace / "file").read_bytes() == b"content"
    disk = (await box.plane.sessions.inspector.inspect(box.session)).disk
    assert disk is not None
    assert disk.used_bytes > 0
    again = await new_box("medium", id="kept-files")
    assert await again.read("file") == b"content"
    slot = slot_of(again)
    await again.close()
    assert not slot.exists()
    assert devices_below(slot) == []
    assert mounts_under(str(slot)) == []
    assert (await again.plane.sessions.inspector.inspect(again.session)).disk is None


async def test_another_limit_at_the_next_session(new_box: BoxFactory) -> None:
    box = await new_box("high", id="another-limit")
    await box.write("file", os.urandom(MIB))
    content = await box.read("file")
    for limit in (32, 128, 64):
        await box.plane.sessions.close(TESTER, box.session, purge=False)
        box = await new_box("high", id="another-limit", limits={"workspace_bytes": limit * MIB})
        assert (slot_of(box) / "workspace.img").stat().st_size == limit * MIB
        assert await box.read("file") == content
    await box.close()


async def test_a_level_change_moves_the_limit(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.write("file", b"content")
    sizes = {}
    for level in ("medium", "high", "low"):
        await box.plane.sessions.changes.set_level(TESTER, box.session, level, {})
        sizes[level] = (slot_of(box) / "workspace.img").stat().st_size
        assert sizes[level] == box.session.limits.workspace_bytes
        assert await box.read("file") == b"content"
    assert sizes["low"] < sizes["medium"] < sizes["high"]
    await box.close()


async def test_noexec_holds_on_an_image(new_box: BoxFactory) -> None:
    for level, runs in (("medium", False), ("high", True)):
        box = await new_box(level)
        script = box.workspace / "script"
        script.write_text("#!/bin/sh\necho ran\n")
        script.chmod(0o755)
        flags = os.statvfs(next(iter(mounts_of(box)))).f_flag
        assert bool(flags & os.ST_NOEXEC) is not runs
        assert flags & os.ST_NOSUID
        assert flags & os.ST_NODEV
        if runs:
            assert (await box.run(argv=["/workspace/script"])).stdout == "ran\n"
        await box.close()


def mounts_of(box: Box) -> list[str]:
    assert box.session.sandbox is not None
    return mounts_under(str(box.session.sandbox.directory.path))


async def test_slots_are_made_ahead_and_removed_at_the_end(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        ahead = settings.state_dir / "prepared"
        async with running(settings) as plane:
            await (await Box.create(plane, "low")).close()
            await until(lambda: len(list(ahead.glob(f"{256 * MIB}-*"))) == READY)
            inodes = {(slot / "workspace.img").stat().st_ino for slot in ahead.iterdir()}
            box = await Box.create(plane, "low")
            assert (slot_of(box) / "workspace.img").stat().st_ino in inodes
            await clear(plane)
        assert list(ahead.iterdir()) == []


async def test_what_was_made_without_a_limit_stays_so(sandbox_image: str) -> None:
    with state(image=sandbox_image, workspace_quota="none") as settings:
        async with running(settings) as plane:
            box = await Box.create(plane, "low", id="plain")
            await box.write("file", b"content")
            assert (await plane.sessions.inspector.inspect(box.session)).disk is None
            assert (await readiness(plane))["workspace quota"].status == "warning"
            await plane.sessions.close(TESTER, box.session, purge=False)
        async with running(settings.model_copy(update={"workspace_quota": "image"})) as plane:
            assert (await readiness(plane))["workspace quota"].status == "ok"
            box = await Box.create(plane, "low", id="plain")
            assert box.session.workspace.quota is Quota.NONE
            assert await box.read("file") == b"content"
            await clear(plane)


async def test_a_control_plane_that_can_not_hold_limits_does_not_start(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.host.workspace.ext4._PATH", "/nowhere")
    with state(image=sandbox_image) as settings:
        with pytest.raises(ConfigError, match="PADDOCK_WORKSPACE_QUOTA: image: mkfs"):
            async with running(settings.model_copy(update={"workspace_quota": "image"})):
                pass
        async with running(settings) as plane:  # it may run without quotas, and warns about it
            assert (await readiness(plane))["workspace quota"].status == "warning"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (errno.ENOENT, "this host has no loop devices (/dev/loop-control: No such file"),
        (errno.EPERM, "this process may not use loop devices (/dev/loop-control: Operation not"),
    ],
)
async def test_a_host_without_loop_devices_says_what_is_missing_and_what_to_do(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch, error: int, why: str
) -> None:
    def refused(_image: int) -> tuple[str, int]:
        raise OSError(error, os.strerror(error), "/dev/loop-control")

    monkeypatch.setattr("orchestrator.host.workspace.loop._bind", refused)
    with state(image=sandbox_image) as settings:
        demanding = settings.model_copy(update={"workspace_quota": "image"})
        with pytest.raises(ConfigError, match=f"image: {re.escape(why)}"):
            async with running(demanding):
                pass
        found = check_quota(demanding)
        assert (found.status, why in found.detail) == ("failure", True)
        assert found.remedy is not None
        assert "modprobe loop" in found.remedy
        assert "prjquota" in found.remedy
        async with running(settings) as plane:
            check = (await readiness(plane))["workspace quota"]
            assert check.status == "warning"
            box = await Box.create(plane, "low")
            assert (await box.run("pwd")).exit_code == 0
            # Nothing says that it is held to a size.
            assert (await plane.sessions.inspector.inspect(box.session)).disk is None
            with pytest.raises(UnmetError, match="sizes can't be limited"):
                await plane.sandboxes.check_level(box.session, DEMANDING)
            await clear(plane)
        # The state directory's own file system comes next.
        monkeypatch.setattr("orchestrator.host.workspace.storage.KernelCalls", Projects)
        choice = choice_for(settings, settings.state_dir)
        assert choice.quota is Quota.PROJECT
        assert why in choice.refusals[0]
        assert list(settings.state_dir.glob("probe*")) == []


class Projects:
    """A file system with project quotas, as far as it is asked whether it has them."""

    def quota(self, _directory: Path, _project: int) -> ProjectUse:
        return ProjectUse(0, 0)


DEMANDING = replace(
    load_levels()["low"],
    requires=Requirements(landlock=0, seccomp=False, mounts=False, quota=True),
)


async def test_a_host_without_room_refuses_a_session(
    new_box: BoxFactory, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orchestrator.host.workspace.disk_image.DiskImages.open", fail)
    with pytest.raises(CapacityExhaustedError, match="disk space"):
        await control_plane.sessions.create(TESTER, NewSession(id="no-room"))
    monkeypatch.undo()
    box = await new_box("low", id="no-room")
    await box.close()


async def test_after_a_restart_of_the_host_kept_workspaces_are_mounted(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            boxes = [await Box.create(plane, "low", id=f"kept-{number}") for number in range(3)]
            for box in boxes:
                await box.write("file", box.session.id.encode())
                await plane.sessions.close(TESTER, box.session, purge=False)
        unmount_all(settings.state_dir)
        # A lost image does not prevent the others from being mounted.
        (slot_of(boxes[0]) / "workspace.img").unlink()
        async with running(settings) as plane:
            await until(lambda: all((box.workspace / "file").exists() for box in boxes[1:]))
            assert not boxes[0].workspace.exists()
            await clear(plane)


async def test_a_mount_of_no_workspace_is_taken_away(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            box = await Box.create(plane, "low")
            await plane.sessions.close(TESTER, box.session, purge=False)
            await plane.database.write(lambda conn: slots.release(conn, box.session.id))
        async with running(settings) as plane:
            assert plane.recovered.workspaces_unmounted == 1
        slot = slot_of(box)
        assert mounts_under(str(slot)) == []
        assert (slot / "workspace.img").exists()  # it may be the only copy of someone's data
        shutil.rmtree(slot)
        box.workspace.unlink()


async def test_a_purge_that_fails_is_tried_again_at_the_next_start(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(5, "broken")

    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            box = await Box.create(plane, "low")
            monkeypatch.setattr("orchestrator.host.workspace.disk_image.DiskImages.remove", fail)
            with pytest.raises(StorageError, match="broken"):
                await plane.sessions.close(TESTER, box.session, purge=True)
        # The probe at the start also calls the failing `remove`.
        monkeypatch.setattr(
            "orchestrator.host.workspace.disk_image.refusal", lambda _directory: None
        )
        async with running(settings) as plane:
            assert plane.recovered.workspaces_purged == 0
        monkeypatch.undo()
        async with running(settings) as plane:
            assert plane.recovered.workspaces_purged == 1
            assert not slot_of(box).exists()


async def test_retention_ends_a_workspace_also_after_a_restart(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            box = await Box.create(plane, "low")
            await plane.sessions.close(TESTER, box.session, purge=False)
        async with running(settings.model_copy(update={"workspace_retention": 1})) as plane:
            await until(lambda: not slot_of(box).exists())
            later, living = await Box.create(plane, "low"), await Box.create(plane, "low")
            await plane.sessions.close(TESTER, later.session, purge=False)
            await until(lambda: not slot_of(later).exists())
            assert (await living.run("pwd")).exit_code == 0
            await clear(plane)
