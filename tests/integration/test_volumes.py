"""Volumes in real sandboxes: kept, shared, limited, confined, and nobody else's."""

import os
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError, NotFoundError, PermissionDeniedError
from orchestrator.ground.limits import KeyLimits
from orchestrator.host.workspace.mounts import mounts_under
from orchestrator.operate.backups.backup import take
from orchestrator.operate.backups.restoration import restore
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.volume_use import VolumeUse
from tests.support.box import TESTER, Box, mount_options
from tests.support.leaks import (
    NO_WORKSPACES,
    NOTHING,
    engine_client,
    left_behind,
    workspaces_left,
)
from tests.support.new_session import new_session
from tests.support.plane import clear, opened, running, state
from tests.support.server import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
OTHER = Principal("other", Role.OPERATOR)
PLACE = "/data/kept"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image) as plane:
        yield plane


async def made(plane: ControlPlane, name: str, size: int = 32 * MIB) -> Path:
    """A new volume; its files on the host."""
    shown = await plane.volumes.create(TESTER, name, size, KeyLimits())
    return plane.node.storage.data(shown.volume.files)


def at(name: str, path: str = PLACE, *, read_only: bool = False) -> dict[str, Any]:
    return {"volumes": (VolumeUse(name, path, read_only),)}


async def said(box: Box, *argv: str) -> str:
    """What a command prints that succeeds."""
    done = await box.run(argv=list(argv))
    assert done.exit_code == 0, (argv, done.stdout, done.stderr)
    return done.stdout


async def test_what_one_session_wrote_the_next_one_changes(plane: ControlPlane) -> None:
    await made(plane, "kept")
    levels = ("low", "medium", "high")
    for number, level in enumerate(levels):
        box = await Box.create(plane, level, **at("kept"))
        assert (await said(box, "ls", PLACE)).split() == sorted(levels[:number])
        await box.write("note", level.encode())
        await said(box, "cp", "note", f"{PLACE}/{level}")
        await said(box, "cp", "note", f"{PLACE}/{levels[0]}")  # over what another uid has written
        assert await said(box, "cat", f"{PLACE}/{levels[0]}") == level
        assert await said(box, "stat", "-c", "%u", f"{PLACE}/{levels[0]}") == f"{box.uid}\n"
        await box.close()
    assert left_behind(plane.settings.state_dir) == NOTHING


async def test_programs_find_the_flags_of_the_workspace(plane: ControlPlane) -> None:
    data = await made(plane, "flags")
    box = await Box.create(plane, "high", **at("flags", "/srv/tools"))
    await box.bash("printf '#!/bin/sh\\necho ran\\n' > /srv/tools/program; chmod +x /srv/tools/*")
    assert await said(box, "/srv/tools/program") == "ran\n"
    assert mount_options(box.agent())["/srv/tools"] >= {"rw", "nosuid", "nodev"}
    assert (data / "program").stat().st_uid != box.uid
    await box.close()
    box = await Box.create(plane, "medium", **at("flags", "/srv/tools"))
    assert mount_options(box.agent())["/srv/tools"] >= {"noexec", "nosuid", "nodev"}
    with pytest.raises(PermissionDeniedError):
        await box.run(argv=["/srv/tools/program"])
    await box.close()


async def test_one_writes_and_any_number_read(plane: ControlPlane) -> None:
    await made(plane, "shared")
    writer = await Box.create(plane, "high", id="writer", **at("shared"))
    await writer.bash(f"echo one > {PLACE}/file")
    readers = [
        await Box.create(plane, level, **at("shared", "/mnt/shared", read_only=True))
        for level in ("low", "high")
    ]
    with pytest.raises(ConflictError, match="session writer has volume shared for writing"):
        await Box.create(plane, "low", id="second", **at("shared"))
    assert plane.sessions.finder.existing(TESTER, "second") is None
    for reader in readers:
        assert await said(reader, "cat", "/mnt/shared/file") == "one\n"
    refused = await readers[1].bash("echo two > /mnt/shared/file; rm -f /mnt/shared/file")
    assert "Read-only file system" in refused.stderr
    with pytest.raises(PermissionDeniedError):
        await readers[0].run(argv=["rm", "/mnt/shared/file"])
    assert await said(writer, "cat", f"{PLACE}/file") == "one\n"
    with pytest.raises(ConflictError, match="volume shared is used by"):
        await plane.volumes.remove(TESTER, "tester", "shared")
    await writer.close()
    second = await Box.create(plane, "low", id="second", **at("shared"))
    await said(second, "rm", f"{PLACE}/file")
    for box in (*readers, second):
        await box.close()


async def test_it_is_full_at_its_size(plane: ControlPlane) -> None:
    await made(plane, "small", 16 * MIB)
    box = await Box.create(plane, "high", **at("small"))
    filled = await box.bash(f"head -c 64M /dev/zero > {PLACE}/big")
    assert "No space left on device" in filled.stderr
    await box.bash(f"rm {PLACE}/big; echo room > /workspace/own")
    assert await said(box, "cat", "/workspace/own") == "room\n"
    await box.close()


async def test_it_is_nobody_elses(plane: ControlPlane) -> None:
    await made(plane, "mine")
    with pytest.raises(NotFoundError, match="there is no volume mine"):
        await plane.sessions.create(OTHER, new_session(permission_level="low", **at("mine")))
    with pytest.raises(NotFoundError):
        await plane.volumes.show("other", "mine")
    assert await plane.volumes.page("other", ("", ""), 10) == []
    assert left_behind(plane.settings.state_dir) == NOTHING


async def test_links_that_a_session_leaves_lead_nowhere(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Neither the next session at a lower level nor the host follows one out of the volume."""
    (tmp_path / "file").write_text("the host's")
    data = await made(plane, "links")
    box = await Box.create(plane, "high", **at("links"))
    await box.bash(
        f"cd {PLACE}; ln -s /etc/passwd absolute; ln -s ../../etc/passwd climbing; ln -s .. up;"
        f" ln -s {tmp_path} host; echo inside > real; ln -s real good; mkdir deep; ln -s / deep/top"
    )
    await box.close()
    box = await Box.create(plane, "low", **at("links"))
    for path in ("absolute", "climbing", "up/kept/real", "deep/top/etc/passwd", "host/file"):
        with pytest.raises(PermissionDeniedError):
            await box.run(argv=["cat", f"{PLACE}/{path}"])
    with pytest.raises(PermissionDeniedError):
        await box.run(argv=["cat", f"{PLACE}/../../etc/passwd"])
    await box.write("new", b"new")
    with pytest.raises(PermissionDeniedError):
        await box.run(argv=["cp", "new", f"{PLACE}/host/file"])
    assert await said(box, "cat", f"{PLACE}/good") == "inside\n"
    await box.close()
    await plane.volumes.remove(TESTER, "tester", "links")
    assert (tmp_path / "file").read_text() == "the host's"
    assert not os.path.lexists(data)


async def test_file_operations_act_in_it_at_every_level(plane: ControlPlane) -> None:
    await made(plane, "files")
    for level in ("low", "high"):
        box = await Box.create(plane, level, **at("files"))
        await box.mkdir(f"{PLACE}/{level}")
        await box.write(f"{PLACE}/{level}/note", level.encode())
        assert (await box.stat(f"{PLACE}/{level}/note")).size == len(level)
        assert any(each.endswith(f"{level}/note") for each in await box.paths(PLACE, depth=2))
        await box.move(f"{PLACE}/{level}/note", f"{PLACE}/{level}/moved")
        assert await box.read(f"{PLACE}/low/moved") == b"low"
        assert await said(box, "cat", f"{PLACE}/{level}/moved") == level
        if level == "high":
            await box.bash(f"ln -s /etc {PLACE}/etc; ln -s /workspace/own {PLACE}/own")
            await box.delete(f"{PLACE}/{level}/moved")
        await box.close()
    for level in ("low", "high"):
        box = await Box.create(plane, level, **at("files", read_only=True))
        await box.write("own", b"own")
        for path in ("etc/passwd", "own"):
            with pytest.raises(PermissionDeniedError):
                await box.read(f"{PLACE}/{path}")
        for path in ("new", "low/moved"):
            with pytest.raises(PermissionDeniedError, match="for reading only"):
                await box.write(f"{PLACE}/{path}", b"x")
        with pytest.raises(PermissionDeniedError):
            await box.delete(f"{PLACE}/low/moved")
        assert await box.read(f"{PLACE}/low/moved") == b"low"
        await box.close()


async def test_a_volume_without_a_file_system_of_its_own(
    sandbox_image: str, tmp_path: Path
) -> None:
    """On a host without loop devices, it behaves like a workspace."""
    (tmp_path / "file").write_text("the host's")
    async with opened(image=sandbox_image, workspace_quota="none") as plane:
        data = await made(plane, "plain")
        for level in ("high", "low"):
            box = await Box.create(plane, level, **at("plain"))
            await box.write("note", b"text")
            await said(box, "cp", "note", f"{PLACE}/{level}")
            if level == "high":
                await box.bash(
                    f"ln -s {tmp_path} {PLACE}/host; mkdir {PLACE}/a; ln -s .. {PLACE}/a/b"
                )
            await box.close()
        await plane.volumes.remove(TESTER, "tester", "plain")
        assert (tmp_path / "file").read_text() == "the host's"
        assert not os.path.lexists(data)


async def test_restarts_and_changes_of_the_level(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            await made(plane, "kept")
            box = await Box.create(plane, "high", id="long", **at("kept"))
            await box.bash(f"echo one > {PLACE}/file")
        async with running(settings) as plane:
            session = plane.sessions.finder.existing(TESTER, "long")
            assert session is not None
            box = Box(plane, session)
            assert await said(box, "cat", f"{PLACE}/file") == "one\n"
            with pytest.raises(ConflictError, match="session long has volume kept for writing"):
                await Box.create(plane, "low", **at("kept"))
            await plane.sessions.changes.set_level(TESTER, session, "low", {})
            assert await said(box, "cat", f"{PLACE}/file") == "one\n"
            await clear(plane)
        assert mounts_under(str(settings.state_dir)) == []


async def test_a_kill_leaves_no_mount_and_loses_nothing(sandbox_image: str, tmp_path: Path) -> None:
    """One session is taken up with its volume; the end of the other releases its volume."""
    async with serving(tmp_path / "state", PADDOCK_IMAGE=sandbox_image) as server:
        for name in ("kept", "lost"):
            body = {"name": name, "size_bytes": 16 * MIB}
            await server.ok("POST", "/api/volumes", body)
            uses = [{"name": name, "path": PLACE}]
            await server.ok("POST", "/api/sessions", {"id": name, "volumes": uses})
            await server.ok("POST", f"/api/sessions/{name}/exec", {"argv": ["mkdir", f"{PLACE}/d"]})
        lost = await server.ok("GET", "/api/sessions/lost")
        await server.kill()
        with closing(engine_client()) as client:
            client.remove_container(f"paddock-{lost['sandbox']['id']}", force=True)
        await server.start()
        shown = (await server.ok("GET", "/api/volumes"))["items"]
        assert {each["name"]: [use["id"] for use in each["sessions"]] for each in shown} == {
            "kept": ["kept"],
            "lost": [],
        }
        left = left_behind(server.state_dir)
        assert len(left["mounts"]) == 2, left  # of the session that goes on
        done = await server.ok("POST", "/api/sessions/kept/exec", {"argv": ["ls", PLACE]})
        assert done["stdout"] == "d\n"
        await server.ok("DELETE", "/api/volumes/lost")
        await server.ok("DELETE", "/api/sessions/kept?purge=true")
        await server.ok("DELETE", "/api/sessions/lost?purge=true")
        await server.ok("DELETE", "/api/volumes/kept")
        assert left_behind(server.state_dir) == NOTHING
        assert workspaces_left(server.state_dir) == NO_WORKSPACES


async def test_a_backup_has_what_is_in_it(sandbox_image: str, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            await made(plane, "kept")
            box = await Box.create(plane, "high", **at("kept"))
            await box.bash(f"echo one > {PLACE}/file")
            await box.close()
        taken = take(settings, file, lambda _text: None, workspaces=True)
        assert (taken.workspaces, taken.left_out) == (1, {})
        async with running(settings) as plane:
            await clear(plane)
    with state(image=sandbox_image) as settings:
        await restore(settings, file, lambda _text: None)
        async with running(settings) as plane:
            box = await Box.create(plane, "low", **at("kept"))
            assert await said(box, "cat", f"{PLACE}/file") == "one\n"
            await clear(plane)
