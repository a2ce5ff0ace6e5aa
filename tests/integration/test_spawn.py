"""Children in real sandboxes: ten levels that end together, and a workspace that two can read."""

import asyncio
import signal
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.programs.turns.inheritance import SpawnRequest
from orchestrator.rules.access.keys import ADMIN_NAME, Principal
from orchestrator.state.family import MAX_DEPTH
from orchestrator.state.requests import NewSession
from paddock.contract.words import SpawnedWorkspace
from tests.support.box import PATIENCE, Box
from tests.support.leaks import NOTHING, left_behind
from tests.support.plane import opened, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image) as plane:
        yield plane


def admin(plane: ControlPlane) -> Principal:
    """The key to which the sessions belong."""
    found = plane.keys.named(ADMIN_NAME)
    assert found is not None
    return found


async def root(plane: ControlPlane, level: str) -> Box:
    async with asyncio.timeout(PATIENCE):
        made = await plane.sessions.create(admin(plane), NewSession(permission_level=level))
    return Box(plane, made.session)


async def child(box: Box, workspace: SpawnedWorkspace = "own") -> Box:
    async with asyncio.timeout(PATIENCE):
        wanted = SpawnRequest(workspace=workspace)
        made = await box.plane.spawning.spawn(admin(box.plane), box.session, wanted)
    return Box(box.plane, made.session)


async def test_ten_levels_end_together_and_leave_nothing(plane: ControlPlane) -> None:
    family = [await root(plane, "high")]
    for _ in range(MAX_DEPTH):
        family.append(await child(family[-1]))
    sleepers = []
    for box in family:
        # It ignores the signal that asks it to end.
        command = await box.start(
            argv=["bash", "-c", "trap '' TERM; echo ready; sleep 1000"], background=True
        )
        await box.printed(command, "ready")
        sandbox = box.session.sandbox
        assert sandbox is not None
        assert sandbox.first is not None
        sleepers.append(psutil.Process(sandbox.first.pid))
    assert [box.session.family.depth for box in family] == list(range(MAX_DEPTH + 1))
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(PATIENCE):
        await plane.sessions.close(admin(plane), family[0].session, purge=True)
    print(f"closed in {asyncio.get_running_loop().time() - began:.1f} s")
    assert not any(box.session.live for box in family)
    assert not any(process.is_running() for process in sleepers)
    assert left_behind(plane.settings.state_dir) == NOTHING
    assert not any(box.workspace.exists() for box in family)


async def test_a_child_reads_its_parent_s_workspace_and_changes_nothing_in_it(
    plane: ControlPlane,
) -> None:
    parent = await root(plane, "high")
    await parent.bash("echo one > a; mkdir -m 700 d; echo two > d/b; chmod 600 d/b")
    reader, stranger = await child(parent, "read-only"), await child(parent)
    assert (await reader.bash("cat a d/b")).stdout == "one\ntwo\n"
    assert (await stranger.bash("ls -A")).stdout == ""
    for attempt in (
        "echo x > a",
        "echo x > new",
        "rm a",
        "mv a c",
        "chmod 777 d",
        "touch d/b",
        "mount -o remount,rw /workspace",
        "ln a link",
        "truncate -s 0 a",
    ):
        assert (await reader.bash(attempt)).exit_code != 0, attempt
    # By the API's way, too.
    refused = await reader.run(argv=["python3", "-c", "open('/workspace/a', 'r+')"])
    assert refused.exit_code == 1
    assert "Read-only file system" in refused.stderr
    assert (await parent.bash("cat a d/b; ls -A")).stdout == "one\ntwo\na\nd\n"
    # What the parent writes is there, and its processes can't be reached.
    sleeping = await parent.start(argv=["bash", "-c", "echo up; sleep 1000"], background=True)
    await parent.printed(sleeping, "up")
    await parent.bash("echo three > late")
    assert (await reader.bash("cat late")).stdout == "three\n"
    assert "1000" not in (await reader.bash("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
    await reader.bash("kill -9 -1")
    assert sleeping.result is None
    await reader.close()
    assert (await parent.bash("cat a")).stdout == "one\n"
    below = await child(stranger, "read-only")
    assert (await below.bash("cat a")).exit_code != 0
    await parent.signal(sleeping, signal.SIGKILL)
    await parent.close()
    assert not stranger.workspace.exists()


async def test_children_outlive_a_restart_and_end_with_their_parent(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            parent = await root(plane, "low")
            await parent.run("touch a")
            reader = await child(parent, "read-only")
            ids = parent.session.id, reader.session.id
        async with running(settings) as plane:
            again, below = (plane.sessions.registry.get(each) for each in ids)
            assert again is not None
            assert below is not None
            assert below.family.parent is again
            read = Box(plane, below)
            assert (await read.run("ls")).stdout == "a\n"
            assert (await read.run("touch b")).exit_code != 0
            await plane.sessions.close(admin(plane), again, purge=True)
            assert not below.live
            assert left_behind(settings.state_dir) == NOTHING
            await plane.pool.close()
