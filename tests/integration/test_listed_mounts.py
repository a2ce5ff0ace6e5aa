"""Directories from the operator's list in real sandboxes."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import (
    EngineUnavailableError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.settings.operator_mounts import OperatorMount
from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms
from tests.support.box import TESTER, Box, mount_options
from tests.support.leaks import NOTHING, left_behind
from tests.support.plane import clear, opened, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEVEL = Path(__file__).parents[2] / "examples" / "levels" / "build.toml"
GREETED = """\
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/run/greeter/socket")
print(s.recv(100).decode())
"""
WRITTEN = """\
import sys
with open(sys.argv[1], "w") as file:
    file.write("x")
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A greeting server, a writable directory, and a level that mounts the server's directory."""
    root = tmp_path_factory.mktemp("host")
    for name in ("greeter", "data", "levels"):
        (root / name).mkdir()
    (root / "data").chmod(0o777)
    shutil.copy("/bin/true", root / "data" / "program")
    shutil.copy(LEVEL, root / "levels" / "build.toml")
    text = LEVEL.read_text().replace("rank = 250", "rank = 260")
    (root / "levels" / "greeted.toml").write_text('mounts = ["greeter"]\n' + text)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_unix_server(greet, root / "greeter" / "socket")
    (root / "greeter" / "socket").chmod(0o777)
    yield root
    server.close()
    await server.wait_closed()


def listed(host: Path) -> dict[str, Any]:
    """Settings with the operator's list."""
    return {
        "levels_dir": host / "levels",
        "mounts": {
            "greeter": OperatorMount(source=f"{host}/greeter", target="/run/greeter"),
            "data": OperatorMount(source=f"{host}/data", target="/mnt/data", read_only=False),
            "missing": OperatorMount(source=f"{host}/missing", target="/mnt/missing"),
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str, host: Path) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image, **listed(host)) as plane:
        yield plane


async def mounts_of(box: Box) -> list[str]:
    sandbox = box.shown().sandbox
    assert sandbox is not None
    return sandbox.mounts


async def test_a_session_has_what_it_asked_for(plane: ControlPlane, host: Path) -> None:
    box = await Box.create(plane, "high", mounts=("greeter", "data"))
    assert (await box.python(GREETED)).stdout == "hello\n"
    options = mount_options(box.agent())
    assert options["/run/greeter"] >= {"ro", "nosuid", "nodev", "noexec"}
    assert options["/mnt/data"] >= {"rw", "nosuid", "nodev", "noexec"}
    refused = await box.python(WRITTEN, "/run/greeter/file")
    assert "Read-only file system" in refused.stderr
    refused = await box.bash("rm /run/greeter/socket")
    assert "Read-only file system" in refused.stderr
    assert (await box.python(WRITTEN, "/mnt/data/file")).exit_code == 0
    assert (host / "data" / "file").stat().st_uid == box.uid
    for argv in (["touch", "/mnt/data/by-words"], ["rm", "/mnt/data/by-words"]):
        done = await box.run(argv=argv)
        assert (done.exit_code, done.stderr) == (0, "")
    with pytest.raises(PermissionDeniedError):
        await box.run(argv=["touch", "/run/greeter/by-words"])
    assert "Permission denied" in (await box.bash("/mnt/data/program")).stderr
    assert await mounts_of(box) == ["greeter", "data"]
    created = await box.event("session.create")
    assert created["args"]["mounts"] == ["greeter", "data"]
    await box.close()
    assert (host / "greeter" / "socket").exists()
    assert (host / "data" / "file").exists()


async def test_it_has_nothing_that_it_did_not_ask_for(plane: ControlPlane) -> None:
    box = await Box.create(plane, "high")
    assert "No such file" in (await box.python(GREETED)).stderr
    assert not {"/run/greeter", "/mnt/data"} & set(mount_options(box.agent()))
    assert await mounts_of(box) == []
    await box.close()


async def test_a_confined_command_reads_and_writes_as_the_list_says(
    plane: ControlPlane, host: Path
) -> None:
    box = await Box.create(plane, "build", mounts=("greeter", "data"))
    assert (await box.python(GREETED)).stdout == "hello\n"
    listing = await box.python("import os; print(os.listdir('/run/greeter'))")
    assert listing.stdout == "['socket']\n"
    assert (await box.python(WRITTEN, "/mnt/data/confined")).exit_code == 0
    assert (host / "data" / "confined").read_text() == "x"
    refused = await box.python(WRITTEN, "/run/greeter/file")
    assert "Permission denied" in refused.stderr or "Read-only" in refused.stderr
    await box.close()


async def test_a_level_names_them_for_all_its_sessions(plane: ControlPlane) -> None:
    box = await Box.create(plane, "greeted")
    assert (await box.python(GREETED)).stdout == "hello\n"
    await box.plane.sessions.changes.set_level(TESTER, box.session, "build", {})
    assert await mounts_of(box) == []
    assert "No such file" in (await box.python(GREETED)).stderr
    await box.plane.sessions.changes.set_level(TESTER, box.session, "greeted", {})
    assert await mounts_of(box) == ["greeter"]
    await box.close()


async def test_what_can_not_be_given_leaves_no_session(plane: ControlPlane) -> None:
    with pytest.raises(ValidationError, match="mounts: other is not on the operator's list"):
        await plane.sessions.create(
            TESTER, NewSession(id="refused", terms=Terms(mounts=("other",)))
        )
    with pytest.raises(EngineUnavailableError, match=r"mount missing: .* is not a directory"):
        await plane.sessions.create(
            TESTER, NewSession(id="refused", terms=Terms(mounts=("greeter", "missing")))
        )
    assert plane.sessions.finder.existing(TESTER, "refused") is None
    assert left_behind(plane.settings.state_dir) == NOTHING


async def test_they_survive_a_restart_and_the_list_is_read_anew(
    sandbox_image: str, host: Path
) -> None:
    with state(image=sandbox_image, **listed(host)) as settings:
        async with running(settings) as plane:
            box = await Box.create(plane, "high", id="kept", mounts=("greeter",))
        without = settings.model_copy(update={"mounts": {}})
        async with running(without) as plane:
            session = plane.sessions.finder.existing(TESTER, "kept")
            assert session is not None
            box = Box(plane, session)
            assert await mounts_of(box) == ["greeter"]
            assert (await box.python(GREETED)).stdout == "hello\n"
            # A directory that was removed from the list is not mounted again.
            with pytest.raises(Exception, match="greeter is not on the operator's list"):
                await plane.sessions.changes.set_level(TESTER, session, "medium", {})
            await clear(plane)
