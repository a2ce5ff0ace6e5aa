"""A state directory that is full, read-only, damaged or newer: refused, and nothing half done."""

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from orchestrator.state.directory import SandboxDirectory, left_over
from tests.api.conftest import Api
from tests.support.fake_agent import Agents
from tests.support.restart import reopened

pytestmark = pytest.mark.slow

REFUSED = (StoreError, ConfigError, PaddockError)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time for which stops wait for a dead disk."""
    monkeypatch.setattr("orchestrator.record.audit.stop_records.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 0.01)


@pytest.fixture
def disk(state_dir: Path) -> Path:
    """A file system of its own, on which the state directory is."""
    path = state_dir / "state"
    path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=700", "none", str(path)]
    subprocess.run(mount, check=True)
    return path


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Nothing can be written, because there is no space."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", 0) as file:
        while True:
            file.write(b"x" * 4096)
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Nothing can be written, as after an error of the disk. Files that are open can be."""
    subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,bind,rw", str(disk)], check=True)


Bad = Callable[[Path], AbstractContextManager[None]]
BAD = pytest.mark.parametrize("bad", [full, read_only])


async def test_a_disk_that_is_full_since_a_moment_ago(
    disk: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record still had room for it."""

    def make(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(SandboxDirectory, "make", make)
        refused = await api.problem(
            503, "engine_unavailable", "POST", "/api/sessions", json={"id": "box"}
        )
        assert "directory could not be made" in refused["detail"]
        assert "No space left" in refused["detail"]
    assert not api.engine.containers
    assert left_over(disk) == []
    await api.session(id="box")


async def test_a_session_that_can_not_be_created_leaves_nothing(disk: Path, api: Api) -> None:
    await api.session(id="before", permission_level="low")
    with full(disk):
        # What is reserved for stops is not used up by refusals, however many there are.
        for _ in range(20):
            response = await api.call("POST", "/api/sessions", json={"id": "box"})
            assert response.status == 503, await response.text()
        assert len(api.engine.containers) == len(left_over(disk)) == 1
        await api.json("GET", "/api/sessions/before")
    await api.session(id="box", permission_level="low")
    for name in ("before", "box"):
        await api.json("POST", f"/api/sessions/{name}/exec", json={"argv": ["ls"]})
        assert (await api.json("GET", f"/api/sessions/{name}/audit/verify"))["ok"]
        await api.json("DELETE", f"/api/sessions/{name}?purge=true")
    assert os.listdir(disk / "slots") == []


@pytest.fixture
def failing_disk(state_dir: Path) -> Path:
    """An ext4, which becomes read-only at an error, even for files that are open."""
    image, path = state_dir / "disk.img", state_dir / "state"
    path.mkdir(mode=0o700)
    subprocess.run(["truncate", "-s", "48M", str(image)], check=True)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=True)
    path.chmod(0o700)
    return path


def fail(disk: Path) -> None:
    """As the kernel does it, after everything was written that it still had in memory.

    What a sandbox has in its directory isn't synced, because no sandbox outlives its machine.
    """
    subprocess.run(["sync", "--file-system", str(disk)], check=True)
    subprocess.run(["mount", "-o", "remount,abort", str(disk)], check=True)


def repair(disk: Path) -> None:
    """As an administrator does it, with a copy: others may still have the mount."""
    copy = disk.with_name("copy.img")
    subprocess.run(["umount", "-R", str(disk)], check=True)
    shutil.copy(disk.with_name("disk.img"), copy)
    subprocess.run(["fsck.ext4", "-p", str(copy)], check=False, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", str(copy), str(disk)], check=True)


async def test_when_the_disk_becomes_read_only_sessions_can_only_be_stopped(
    failing_disk: Path, api: Api, engine: FakeEngine, agents: Agents, settings: Settings
) -> None:
    for name in ("box", "other"):
        await api.session(id=name, permission_level="low")
    fail(failing_disk)
    code = "audit_unavailable"
    for path in ("", "/box/exec"):
        body = {"argv": ["ls"]} if path else {}
        response = await api.call("POST", f"/api/sessions{path}", json=body)
        assert (response.status, (await response.json())["code"]) == (503, code)
    assert len(engine.containers) == 2
    await api.json("POST", "/api/sessions/box/abort")
    assert len(engine.containers) == 1
    await api.plane.close()
    repair(failing_disk)
    plane = await reopened(settings, engine, agents)
    try:
        # The end could not be recorded: its sandbox is gone, so it has crashed.
        assert [session.id for session in plane.sessions.registry.live] == ["other"]
        ended = plane.sessions.registry.get("box")
        assert ended is not None
        assert ended.termination is not None
        assert ended.termination.rationale_code == "crash"
    finally:
        await plane.close()


@BAD
async def test_a_start_is_refused_and_changes_nothing(
    disk: Path,
    api: Api,
    engine: FakeEngine,
    agents: Agents,
    settings: Settings,
    bad: Bad,
) -> None:
    await api.session(id="box", permission_level="low")
    await api.plane.close()
    before = dict(engine.containers)
    with bad(disk), pytest.raises(REFUSED, match=r"full|[Rr]ead-only|readonly|No space"):
        await ControlPlane.open(settings, engine)
    assert engine.containers == before
    plane = await reopened(settings, engine, agents)
    try:
        (session,) = plane.sessions.registry.live
        assert session.id == "box"
    finally:
        await plane.close()


def newer(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO schema_version VALUES (9999, 'later', '')")


def damaged(database: Path) -> None:
    """Its tables can't be found any more."""
    with database.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 4000)


def other(database: Path) -> None:
    database.write_bytes(b"something else " * 1000)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (newer, "has schema 9999, but this Paddock knows schemas up to"),
        (damaged, "malformed"),
        (other, "not a database"),
    ],
)
async def test_a_database_that_can_not_be_used_is_left_as_it_is(
    api: Api,
    engine: FakeEngine,
    agents: Agents,
    settings: Settings,
    spoil: Callable[[Path], None],
    message: str,
) -> None:
    """Sandboxes go on, and are taken over once the database is the right one again."""
    await api.session(id="box", permission_level="low")
    await api.plane.close()
    database, good = settings.state_dir / "paddock.db", settings.state_dir / "good.db"
    shutil.copy(database, good)
    spoil(database)
    content, before = database.read_bytes(), dict(engine.containers)
    for _ in range(2):
        with pytest.raises(StoreError, match=message):
            await ControlPlane.open(settings, engine)
    assert database.read_bytes() == content
    assert engine.containers == before
    good.replace(database)
    plane = await reopened(settings, engine, agents)
    try:
        assert [session.id for session in plane.sessions.registry.live] == ["box"]
    finally:
        await plane.close()
