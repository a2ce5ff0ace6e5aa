"""Workspaces at another path than /workspace, in real sandboxes at every level."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from orchestrator.state.volume_use import VolumeUse
from paddock import Paddock
from tests.integration.test_code import run as run_cell
from tests.integration.test_file_watches import told, until, watching
from tests.integration.test_snapshots import restored
from tests.support.box import PATIENCE, TESTER, Box, mount_options
from tests.support.leaks import NOTHING, left_behind
from tests.support.plane import clear, opened, running, state
from tests.support.server import leaving_nothing
from tests.support.until import until as happens

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEVELS = ("low", "medium", "high")
HOME = "/home/user"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image) as plane:
        yield plane
        assert left_behind(plane.settings.state_dir) == NOTHING


async def moved(plane: ControlPlane, level: str, path: str = HOME, **members: Any) -> Box:
    """A session whose workspace is at that path."""
    return await Box.create(plane, level, workspace_path=path, **members)


async def said(box: Box, *argv: str, **more: Any) -> str:
    """What a command prints that succeeds."""
    done = await box.run(argv=list(argv), **more)
    assert done.exit_code == 0, (argv, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", [HOME, "/testbed", "/repo/deep/er"])
async def test_files_and_commands_have_one_name_for_it(
    plane: ControlPlane, level: str, path: str
) -> None:
    box = await moved(plane, level, path)
    assert box.shown().workspace_path == path
    assert await said(box, "pwd") == f"{path}\n"
    await box.write(f"{path}/sub/absolute", b"one", parents=True)
    await box.write("sub/relative", b"two")
    assert await box.read("sub/absolute") == await box.read(f"{path}/sub/absolute") == b"one"
    assert await box.paths(f"{path}/sub") == ["sub/absolute", "sub/relative"]
    assert (await box.stat(f"{path}/sub/relative")).size == 3
    for cwd in ("sub", f"{path}/sub"):
        assert await said(box, "pwd", cwd=cwd) == f"{path}/sub\n"
        assert await said(box, "cat", "absolute", f"{path}/sub/relative", cwd=cwd) == "onetwo"
    await said(box, "cp", f"{path}/sub/absolute", "copy")
    await said(box, "ls", output_file=f"{path}/listed")
    assert await box.read("listed") == b"copy\nlisted\nsub\n"
    data, _ = await box.pack(f"{path}/sub")
    await box.unpack(data, f"{path}/unpacked")
    assert await box.read("unpacked/relative") == b"two"
    async with watching(box, f"{path}/sub") as watch:
        await said(box, "mkdir", f"{path}/sub/made")
        assert ("create", "sub/made") in told(await until(watch, "sub/made"))
    flags = mount_options(box.agent())
    assert ("noexec" in flags[path]) == (level != "high")
    assert "/workspace" not in flags
    (event, *_) = await box.events("command.start")
    assert event["args"]["cwd"] == path
    await box.close()


@pytest.mark.parametrize("level", LEVELS)
async def test_nothing_else_can_be_named(plane: ControlPlane, level: str) -> None:
    """Neither the usual name nor a link nor the way around leads out of it, or into it."""
    box = await moved(plane, level)
    await box.write("own", b"own")
    for path in ("/workspace/own", "/workspace/new", f"{HOME}/../own", "/home/user2/own"):
        with pytest.raises(PermissionDeniedError):
            await box.write(path, b"x")
    for path in (f"{HOME}/../../etc/shadow", f"{HOME}x", "/workspace/../etc/shadow"):
        if level != "high":
            with pytest.raises(PermissionDeniedError):
                await box.read(path)
            with pytest.raises(PermissionDeniedError):
                await box.run(argv=["cat", path])
            with pytest.raises(PermissionDeniedError):
                await box.run(argv=["cp", "own", path])
    with pytest.raises(PermissionDeniedError):
        await box.run(argv=["cp", "own", "/workspace/new"])
    if level == "high":
        refused = await box.bash(
            "ln -s /etc etc; ln -s /workspace usual; echo x > /workspace/new;"
            " echo x > /home/new; echo x > usual/new; ls /workspace"
        )
        assert refused.stderr.count("Read-only file system") == 3, refused.stderr
        assert refused.stdout == ""
        with pytest.raises(PermissionDeniedError):
            await box.read("etc/passwd")
        await plane.sessions.changes.set_level(TESTER, box.session, "low", {})
        for path in ("etc/passwd", f"{HOME}/etc/passwd", "usual/new"):
            with pytest.raises(PermissionDeniedError):
                await box.run(argv=["cat", path])
            with pytest.raises(PermissionDeniedError):
                await box.read(path)
        assert await said(box, "cat", f"{HOME}/own") == "own"
    await box.close()


async def test_the_kernel_has_the_same_place(plane: ControlPlane) -> None:
    """At a level that lists its commands, Landlock allows the session's path and no other."""
    box = await moved(plane, "medium")
    await box.write("file", b"x")
    assert await said(box, "find", HOME, "-name", "file") == f"{HOME}/file\n"
    for path in ("/workspace", "/home", "/etc/hostname", "/srv"):
        link = await box.ask("file.symlink", path=f"to{path.replace('/', '-')}", target=path)
        assert link == {}
    for name in ("to-workspace", "to-home", "to-etc-hostname", "to-srv"):
        with pytest.raises(PermissionDeniedError):
            await box.run(argv=["ls", name])
    await box.close()


async def test_programs_find_their_home_in_it(plane: ControlPlane) -> None:
    box = await moved(plane, "high")
    shown = "echo $HOME $PWD ~sandbox; id -un; touch ~/mark; ls"
    assert (await box.bash(shown)).stdout == f"{HOME} {HOME} {HOME}\nsandbox\nmark\n"
    assert (await box.run("session workspace")).stdout == f"{HOME}\n"
    cell = await run_cell(box, "import os; open('cell', 'w').close(); os.getcwd()")
    assert cell.text == f"'{HOME}'", cell
    assert "cell" in await box.paths()
    await box.close()


async def test_clients_have_it_in_all_of_their_operations(
    sandbox_image: str, tmp_path: Path
) -> None:
    """The SDK over HTTP: directories, shells that keep their state, terminals, code, watches."""
    (tmp_path / "up" / "deep").mkdir(parents=True)
    (tmp_path / "up" / "deep" / "file").write_text("one\n")
    async with (
        leaving_nothing(PADDOCK_IMAGE=sandbox_image) as server,
        Paddock(server.url, server.key) as paddock,
        await paddock.sessions.create(permission_level="high", workspace_path="/repo") as session,
    ):
        await session.files.upload_dir(tmp_path / "up", "/repo/up")
        await session.files.download_dir("up", tmp_path / "down")
        assert (tmp_path / "down" / "deep" / "file").read_text() == "one\n"
        assert (await session.exec("cat up/deep/file /repo/up/deep/file")).stdout == "one\none\n"
        assert (await session.exec(shell="pwd; echo $HOME")).stdout == "/repo\n/repo\n"
        for number, (cwd, place) in enumerate(((None, "/repo"), ("up", "/repo/up"))):
            shell = await session.shells.create(f"s{number}", cwd=cwd)
            assert (shell.info.cwd, (await shell.run("pwd")).output) == (place, f"{place}\n")
            await shell.close()
        assert (await session.run_code("import os; os.getcwd()")).text == "'/repo'"
        live = await session.terminals.live()
        await live.write(b"pwd; exit\n")
        async with asyncio.timeout(PATIENCE), aclosing(live.output()) as frames:
            shown = b"".join([frame async for frame in frames if isinstance(frame, bytes)])
        assert b"/repo\r\n" in shown
        await live.close()
        assert (await session.files.search("one", "/repo/up")).items[0].path == "up/deep/file"
        entries = await session.files.list("/repo", depth=3)
        assert [entry.path for entry in entries.items] == ["up", "up/deep", "up/deep/file"]
        await session.files.delete("/repo/up", recursive=True)
        assert not (await session.files.list(".")).items


async def test_it_stays_there_for_its_life(sandbox_image: str) -> None:
    """A restart of the control plane, a suspension, other levels and a snapshot keep the place."""
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            box = await moved(plane, "high", "/app", id="long")
            await box.bash("echo kept > /app/file")
        async with running(settings) as plane:
            session = plane.sessions.finder.existing(TESTER, "long")
            assert session is not None
            box = Box(plane, session)
            assert await said(box, "cat", "/app/file") == "kept\n"
            assert await plane.sessions.suspensions.suspend(session, "idle")
            async with plane.sessions.suspensions.using(TESTER, session):
                assert await said(box, "cat", "/app/file") == "kept\n"
            taken = await plane.snapshots.take(TESTER, session)
            try:
                async with opened(image=sandbox_image) as fresh:
                    there = await restored(fresh, taken)
                    assert there.session.workspace_path == "/app"
                    assert await said(there, "cat", "/app/file") == "kept\n"
                    await there.close()
            finally:
                taken.close()
            await plane.sessions.changes.set_level(TESTER, session, "low", {})
            async with plane.sessions.suspensions.using(TESTER, session):
                assert await said(box, "cat", "/app/file") == "kept\n"
            await clear(plane)


async def test_sandboxes_that_wait_are_for_the_usual_path(sandbox_image: str) -> None:
    async with opened(image=sandbox_image, warm_sandboxes=1, warm_least={"low": 1}) as plane:
        await happens(lambda: bool(plane.pool.shapes))
        box = await moved(plane, "low")
        assert box.session.sandbox is not None
        assert box.session.sandbox.start == "cold"
        assert await said(box, "pwd") == f"{HOME}\n"
        usual = await moved(plane, "low", "/workspace")
        assert usual.session.sandbox is not None
        assert usual.session.sandbox.start == "warm"
        await box.close()
        await usual.close()


async def test_a_volume_beside_it(plane: ControlPlane) -> None:
    with pytest.raises(ValidationError, match="overlaps with /data"):
        await moved(plane, "low", "/data", volumes=(VolumeUse("cache", "/data/cache", False),))
