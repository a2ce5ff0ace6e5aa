"""A sandbox that was started ahead is like any other once a session has it."""

import errno
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.host.workspace import mounts
from orchestrator.sandbox.sandboxes.warm_state import WarmFailures
from tests.support.box import TESTER, Box, mount_options
from tests.support.dying import POINTS
from tests.support.leaks import (
    NO_WORKSPACES,
    NONE_AHEAD,
    NOTHING,
    containers,
    left_behind,
    made_ahead,
    unmount_all,
    workspaces_left,
)
from tests.support.plane import opened
from tests.support.server import Server, serving
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Tries what only the confinement refuses, and prints the errors' numbers.
FIRST = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
found = {"uid": os.getuid(), "parent": os.getppid()}
libc.unshare(0x10000000)
found["unshare"] = ctypes.get_errno()
try:
    os.kill(os.getppid(), 0)
except OSError as error:
    found["signal"] = error.errno
try:
    open("/proc/self/oom_score_adj", "w")
except OSError as error:
    found["proc"] = error.errno
print(json.dumps(found))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    least = {"low": 1, "medium": 1, "high": 1}
    async with opened(image=sandbox_image, warm_sandboxes=3, warm_least=least) as plane:
        yield plane


async def warm(plane: ControlPlane, level: str, **members: object) -> Box:
    """A session whose sandbox was waiting."""
    await until(lambda: level in {shape.level_name for shape in plane.pool.shapes})
    box = await Box.create(plane, level, **members)
    assert box.session.sandbox is not None
    assert box.session.sandbox.start == "warm"
    return box


@pytest.mark.parametrize("level", ["low", "medium", "high"])
async def test_it_has_its_level_s_confinement(plane: ControlPlane, level: str) -> None:
    box, cold = await warm(plane, level), await Box.create(plane, level, limits={"pids": 60})
    assert cold.session.sandbox is not None
    assert cold.session.sandbox.start == "cold"
    options = [mount_options(each.agent())["/workspace"] for each in (box, cold)]
    assert options[0] == options[1]
    assert ("noexec" in options[0]) == (level != "high")
    for each in (box, cold):
        await each.write("script", b"#!/bin/sh\necho ran\n", permissions=0o755)
        await each.write("a/b", b"content", parents=True)
        assert await each.read("a/b") == b"content"
        listed = await each.run("ls -n")
        assert str(each.uid) in listed.stdout
    if level == "high":
        assert (await box.run(argv=["./script"])).stdout == "ran\n"
        who = await box.bash("whoami; id -u; touch /etc/x || echo read-only")
        assert who.stdout.split() == ["sandbox", str(box.uid), "read-only"]
        found = [
            await each.bash("awk '{print $5}' /proc/self/mountinfo | sort -u")
            for each in (box, cold)
        ]
        assert found[0].stdout == found[1].stdout
    await cold.close()
    await box.close()


async def test_its_workspace_has_its_size(plane: ControlPlane) -> None:
    box = await warm(plane, "high", limits={"workspace_bytes": 32 * 2**20})
    filled = await box.bash("dd if=/dev/zero of=big bs=1M count=64 2>&1 || true; stat -c %s big")
    assert "No space left" in filled.stdout
    await box.close()


async def test_one_tenant_after_the_other(plane: ControlPlane) -> None:
    """Neither finds anything of the other, and no sandbox comes back."""
    first = await warm(plane, "high")
    await first.bash(
        "echo canary > /workspace/file; echo canary > /tmp/file; echo canary > /dev/shm/f"
    )
    mine, uid = first.container_id, first.uid
    second = await warm(plane, "high")
    assert (second.container_id, second.uid) != (mine, uid)
    seen = await second.bash(
        "cat /etc/passwd; grep -rs canary /workspace /tmp /dev/shm /run; ls -A"
    )
    assert "canary" not in seen.stdout
    assert str(uid) not in seen.stdout
    assert seen.stdout.count("sandbox:") == 1
    await first.close()
    third = await warm(plane, "high")
    assert third.container_id not in (mine, second.container_id)
    assert "canary" not in (await third.bash("grep -rs canary /workspace /tmp /dev/shm")).stdout
    for box in (second, third):
        await box.close()
    assert mine not in plane.pool.container_ids


async def test_nothing_can_be_written_while_it_waits(plane: ControlPlane) -> None:
    await until(lambda: len(plane.pool.shapes) == 3)
    for waiting in plane.pool._waiting:
        point = waiting.parts.plan.directory.workspace
        assert (point.stat().st_uid, point.stat().st_mode & 0o777) == (0, 0o700)
        first = waiting.parts.plan.first
        assert first is not None
        for path in (point, Path(f"/proc/{first.pid}/root/workspace")):  # on the host, inside
            with pytest.raises(OSError, match="Read-only"):
                (path / "file").touch()
        assert list(point.iterdir()) == []
        with pytest.raises(Exception, match="not configured"):
            await waiting.parts.plan.link.request("exec", {})


async def test_its_level_changes_and_its_files_stay(plane: ControlPlane) -> None:
    box = await warm(plane, "high")
    await box.write("kept", b"content")
    await until(lambda: "low" in {shape.level_name for shape in plane.pool.shapes})
    await plane.sessions.changes.set_level(TESTER, box.session, "low", {})
    assert box.session.sandbox is not None
    assert (box.session.sandbox.start, await box.read("kept")) == ("warm", b"content")
    denied = await box.run("cat kept")
    assert denied.stdout == "content"
    assert "noexec" in mount_options(box.agent())["/workspace"]
    await box.close()


async def test_a_workspace_is_used_again(plane: ControlPlane) -> None:
    box = await warm(plane, "low", id="again")
    await box.write("kept", b"content")
    await plane.sessions.close(TESTER, box.session, purge=False)
    box = await warm(plane, "low", id="again")
    assert await box.read("kept") == b"content"
    await box.close()


async def test_without_the_workspace_the_session_starts_cold(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent does not accept a session whose workspace it does not see."""
    await until(lambda: "low" in {shape.level_name for shape in plane.pool.shapes})
    attached: list[str] = []
    real = mounts.bind

    def fail_once(source: str, target: str, **flags: bool) -> None:
        if "shared" in flags or attached:
            real(source, target, **flags)
        else:
            attached.append(target)  # but it is not

    before = set(plane.pool.container_ids)
    with monkeypatch.context() as patch:
        patch.setattr(mounts, "bind", fail_once)
        box = await Box.create(plane, "low")
    assert attached
    assert box.session.sandbox is not None
    assert box.session.sandbox.start == "cold"
    assert box.container_id not in before
    await box.close()


async def test_one_that_dies_is_replaced(plane: ControlPlane) -> None:
    await until(lambda: len(plane.pool.shapes) == 3)
    victim = plane.pool.container_ids[0]
    first = plane.pool._waiting[0].parts.plan.first
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: victim not in plane.pool.container_ids)
    await until(lambda: len(plane.pool.shapes) == 3)


def guards_of_waiting(plane: ControlPlane, level: str) -> list[psutil.Process]:
    """The children of the agent that waits at that level."""
    (waiting,) = (each for each in plane.pool._waiting if each.shape.level_name == level)
    first = waiting.parts.plan.first
    assert first is not None
    return psutil.Process(first.pid).children()


def fact(process: psutil.Process, name: str) -> int:
    """The last number in that line of the process's status."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[-1])
    raise AssertionError(name)


@pytest.mark.parametrize("level", ["low", "medium", "high"])
async def test_its_first_command_has_the_guard_that_waited(
    plane: ControlPlane, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That guard is confined then: what the first command tries fails."""
    # After the failures of other tests, their account's sessions start without for a while.
    monkeypatch.setattr(plane.pool, "_take_overs", WarmFailures())
    await until(lambda: len(plane.pool.shapes) == 3)
    (guard,) = guards_of_waiting(plane, level)
    filters, inside = fact(guard, "Seccomp_filters"), fact(guard, "NSpid")
    box = await warm(plane, level)
    if level == "high":
        tried = await box.python(FIRST)
        assert tried.value == {
            **{"uid": box.uid, "parent": inside},
            **{"unshare": errno.EPERM, "signal": errno.EPERM, "proc": errno.EACCES},
        }
    else:
        assert (await box.run("pwd")).stdout == "/workspace\n"
    # It has run the command, as there is no other.
    assert [each.pid for each in box.agent().children()].count(guard.pid) == 1
    assert fact(guard, "Seccomp_filters") == filters + 1
    await box.close()


async def test_a_guard_that_waits_has_nothing_open_and_is_replaced(plane: ControlPlane) -> None:
    await until(lambda: len(plane.pool.shapes) == 3)
    (guard,) = guards_of_waiting(plane, "low")
    # Three standard streams, two sockets and its own preference when memory runs out.
    await until(lambda: guard.num_fds() <= 6)
    for each in Path(f"/proc/{guard.pid}/fd").iterdir():
        target = os.readlink(each)
        assert int(each.name) < 3 or target.startswith("socket:") or "oom_score_adj" in target
    guard.kill()
    await until(
        lambda: [each.pid for each in guards_of_waiting(plane, "low")] not in ([], [guard.pid])
    )
    (other,) = guards_of_waiting(plane, "low")
    box = await warm(plane, "low")
    assert (await box.run("pwd")).stdout == "/workspace\n"
    assert other.pid in [each.pid for each in box.agent().children()]
    await box.close()


async def test_a_kill_leaves_what_sessions_have_and_nothing_else(
    tmp_path: Path, sandbox_image: str
) -> None:
    environment = {
        "PADDOCK_IMAGE": sandbox_image,
        "PADDOCK_WARM_SANDBOXES": "2",
        "PADDOCK_WARM_LEAST": '{"low": 2}',
        "PADDOCK_MIN_FREE_MEMORY_BYTES": "0",
        "PADDOCK_MIN_FREE_DISK_BYTES": "0",
    }
    async with serving(tmp_path / "state", **environment) as server:
        await wait(server, 2)
        made = await server.ok("POST", "/api/sessions", {"permission_level": "low"})
        assert made["sandbox"]["start"] == "warm"
        before = set(containers(server.state_dir))
        await server.kill()
        await server.start()
        assert set(containers(server.state_dir)) & before == {f"/paddock-{made['sandbox']['id']}"}
        path = f"/api/sessions/{made['id']}"
        assert (await server.ok("GET", path))["sandbox"] == made["sandbox"]
        answer = await server.ok("POST", path + "/exec", {"argv": ["pwd"]})
        assert answer["stdout"] == "/workspace\n"
        await wait(server, 2)
        await server.ok("DELETE", path + "?purge=true")
        await server.stop()
        assert left_behind(server.state_dir) == NOTHING


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_while_a_session_takes_it_over_leaves_nothing(
    tmp_path: Path, sandbox_image: str, point: str
) -> None:
    """Nobody learned of the session, so its workspace goes, too."""
    environment = {
        "PADDOCK_IMAGE": sandbox_image,
        "PADDOCK_WARM_SANDBOXES": "1",
        "PADDOCK_WARM_LEAST": '{"low": 1}',
        "PADDOCK_MIN_FREE_MEMORY_BYTES": "0",
        "PADDOCK_MIN_FREE_DISK_BYTES": "0",
        "DIES_AFTER": point,
    }
    server = Server(tmp_path / "state", **environment)
    server.module = "tests.support.dying"
    try:
        await server.start()
        await wait(server, 1)
        before = left_behind(server.state_dir)
        (name,) = before["directories"]
        with pytest.raises(aiohttp.ClientError):
            await server.call("POST", "/api/sessions", {"id": "lost", "permission_level": "low"})
        assert left_behind(server.state_dir)["directories"] == [name]
        await server.kill()
        server.module = "paddock"
        await server.start()
        after = left_behind(server.state_dir)
        assert not set(after["containers"]) & set(before["containers"])
        assert name not in str(after)
        assert workspaces_left(server.state_dir) == NO_WORKSPACES
        assert (await server.ok("GET", "/api/sessions"))["items"] == []
        await wait(server, 1)
        body = {"id": "lost", "permission_level": "low"}
        assert (await server.ok("POST", "/api/sessions", body))["sandbox"]["start"] == "warm"
        await server.ok("DELETE", "/api/sessions/lost?purge=true")
    finally:
        await server.stop()
        unmount_all(server.state_dir)
    assert left_behind(server.state_dir) == NOTHING
    assert made_ahead(server.state_dir) == NONE_AHEAD


async def wait(server: Server, number: int) -> None:
    """Waits until that many sandboxes wait at low."""
    text = ""
    while f'paddock_warm_sandboxes{{level="low"}} {number}.0' not in text:
        async with server.client.get("/metrics") as response:
            text = await response.text()
