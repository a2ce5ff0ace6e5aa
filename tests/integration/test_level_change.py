"""A session moves to another permission level: a new sandbox, the same workspace."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.ground.errors import (
    EngineUnavailableError,
    InvalidTransitionError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
)
from orchestrator.host.engine.base import SandboxSpec
from orchestrator.host.workspace import disk_image, loop
from tests.conftest import BoxFactory
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box
from tests.support.leaks import left_behind
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAITING = ["sleep", "1000"]


async def change(box: Box, level: str | None) -> None:
    await box.plane.sessions.changes.set_level(TESTER, box.session, level, {})


def fail_next_create(box: Box, patch: pytest.MonkeyPatch) -> None:
    """Makes the engine refuse the next sandbox only."""

    async def create(_spec: SandboxSpec) -> str:
        patch.undo()
        raise EngineUnavailableError("no room today")

    patch.setattr(box.plane.engine, "create", create)


def hold_next_create(box: Box, patch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Holds the next sandbox's creation. Returns two events: it has arrived, and it may go on."""
    arrived, go_on = asyncio.Event(), asyncio.Event()
    real = box.plane.engine.create

    async def create(spec: SandboxSpec) -> str:
        patch.undo()
        arrived.set()
        await go_on.wait()
        return await real(spec)

    patch.setattr(box.plane.engine, "create", create)
    return arrived, go_on


def sandboxes(box: Box) -> int:
    """The number of the control plane's sandboxes on the host, including half-made ones."""
    left = left_behind(box.plane.settings.state_dir)
    counts = {len(found) for found in left.values()}
    assert len(counts) == 1, left
    return counts.pop()


@attempt(
    "commands and limits of a higher level, after a change to a lower one",
    layer="control plane",
    levels="low high",
)
async def test_up_and_down_again(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.write("kept", b"through everything")
    first = box.container_id
    with pytest.raises(PermissionDeniedError):
        await box.run("uname")

    await change(box, "high")
    assert (await box.bash("cat kept; uname")).stdout == "through everythingLinux\n"
    limits = (await box.container()).limits
    assert (limits["cpus"], limits["memory_bytes"]) == (2.0, 4 * 2**30)
    running = await box.start(argv=["bash", "-c", "echo on; trap '' TERM; sleep 1000; sleep 1000"])
    background = await box.start(argv=WAITING, background=True)
    await box.printed(running, "on")

    await change(box, "low")
    for command in (running, background):
        done = await box.plane.executions.wait(box.session, command)
        assert done.reason == "level_changed"
        assert done.exit_code in (137, 143)
    assert box.processes() == []
    assert await box.read("kept") == b"through everything"
    with pytest.raises(PermissionDeniedError):
        await box.run("uname")
    assert (await box.container()).limits["memory_bytes"] == 256 * 2**20
    assert await box.plane.engine.inspect(first) is None
    changes = [(e["args"], e["permission_level"]) for e in await box.events("session.settings")]
    assert [args["to"] for args, _ in changes] == ["high", "low"]
    # Each agent numbers its events from the start, with its own boot id.
    boots = {e["agent"]["boot_id"] for e in await box.events("command.exit") if e["agent"]}
    assert len(boots) == 1
    await box.close()


async def test_a_lower_level_is_on_record_before_anything_else(new_box: BoxFactory) -> None:
    box = await new_box("high")
    await box.start(argv=WAITING)
    await change(box, "low")
    operations = [event["operation"] for event in await box.events()]
    assert operations.index("session.settings") < operations.index("command.exit")
    await box.close()


async def test_the_same_level_restarts_nothing(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.write("zeros", b"")
    command = await box.start("tail -f zeros", background=True)
    before = box.container_id
    await change(box, "low")
    assert box.container_id == before
    assert not command.ended
    assert len(await box.events("session.settings")) == 1
    await change(box, None)
    assert len(await box.events("session.settings")) == 1
    await box.close()


async def test_limits_that_were_asked_for_hold_at_every_level(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"memory_bytes": 512 * 2**20, "pids": 100})
    await change(box, "low")
    found = (await box.container()).limits
    assert (found["memory_bytes"], found["pids"]) == (256 * 2**20, 64)
    await change(box, "high")
    found = (await box.container()).limits
    assert (found["memory_bytes"], found["pids"]) == (512 * 2**20, 100)
    await box.close()


async def test_a_raise_that_fails_leaves_the_session_at_its_level(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("low")
    others = sandboxes(box) - 1
    await box.write("kept", b"x")
    fail_next_create(box, monkeypatch)
    with pytest.raises(
        SandboxUnavailableError, match="no room today; the session continues at low"
    ):
        await change(box, "high")
    assert box.session.level.name == "low"
    assert sandboxes(box) == others + 1
    assert (await box.run("cat kept")).stdout == "x"
    (failed,) = await box.events("session.settings")
    assert failed["args"] == {"from": "low", "to": "high"}
    assert failed["error"] == "no room today"
    await change(box, "high")
    assert (await box.bash("cat kept")).stdout == "x"
    await box.close()


async def test_a_lowering_that_fails_leaves_the_session_closed_to_work(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = "low"
    box = await new_box("high")
    others = sandboxes(box) - 1
    await box.write("kept", b"x")
    fail_next_create(box, monkeypatch)
    with pytest.raises(SandboxUnavailableError, match="no room today"):
        await change(box, after)
    assert sandboxes(box) == others
    assert box.session.live
    for work in (lambda: box.run("ls"), lambda: box.read("kept")):
        with pytest.raises(SandboxUnavailableError, match="set the permission level again"):
            await work()
    assert box.session.level.name == after

    await change(box, after)
    assert box.session.level.name == after
    assert await box.read("kept") == b"x"
    assert sandboxes(box) == others + 1
    await box.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others on the host get less time to release a workspace."""
    monkeypatch.setattr(disk_image, "RESIZE_SECONDS", 0.2)


@contextmanager
def holding_mounts() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a copy of all mounts of the host, as a container that starts has them."""
    script = ["sh", "-c", "echo holding; exec cat"]
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", *script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holding\n"
        yield holder


@pytest.mark.usefixtures("impatient")
async def test_a_raise_while_the_host_holds_the_mount_names_the_holder(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.write("kept", b"x")
    with holding_mounts() as holder:
        with pytest.raises(SandboxUnavailableError) as failed:
            await change(box, "high")
        assert f"cat (process {holder.pid}); the session continues at low" in failed.value.detail
        assert (await box.run("cat kept")).stdout == "x"
        (event,) = await box.events("session.settings")
        assert f"cat (process {holder.pid})" in event["error"]
    await change(box, "high")
    assert (await box.bash("cat kept")).stdout == "x"

    await box.close()


@pytest.mark.usefixtures("impatient")
async def test_a_lowering_while_the_host_holds_the_mount_keeps_the_size(
    new_box: BoxFactory,
) -> None:
    box = await new_box("high")
    await box.write("kept", b"x")
    size = box.session.limits.workspace_bytes
    with holding_mounts() as holder:
        await change(box, "low")
        assert box.session.level.name == "low"
        assert (await box.run("cat kept")).stdout == "x"
        with pytest.raises(PermissionDeniedError):
            await box.run("uname")
        lowered, kept = await box.events("session.settings")
        assert lowered["args"]["to"] == "low"
        assert kept["args"] == {"workspace_bytes": size}
        assert f"cat (process {holder.pid})" in kept["error"]
        assert box.session.limits.workspace_bytes == size
    async with asyncio.timeout(WAIT_SECONDS):
        # A container of another test that starts holds the mount for a moment, too.
        while box.session.limits.workspace_bytes == size:
            await change(box, "high")
            await change(box, "low")
    assert box.session.limits.workspace_bytes < size
    await box.close()


async def test_a_mount_that_is_held_for_a_moment_is_waited_for(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("low")
    with holding_mounts() as holder:
        in_use = loop.in_use
        seen: list[bool] = []

        def release(image: Path) -> bool:
            found = in_use(image)
            if found and not seen:
                assert holder.stdin is not None
                holder.stdin.close()
            seen.append(found)
            return found

        monkeypatch.setattr(loop, "in_use", release)
        await change(box, "high")
        assert True in seen
    assert (await box.bash("pwd")).exit_code == 0
    await box.close()


async def test_going_back_after_a_failure_works_too(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("low")
    fail_next_create(box, monkeypatch)
    with pytest.raises(SandboxUnavailableError):
        await change(box, "high")
    await change(box, "low")
    assert (await box.run("ls")).exit_code == 0
    await box.close()


async def test_a_failed_session_can_be_closed(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("low")
    fail_next_create(box, monkeypatch)
    with pytest.raises(SandboxUnavailableError):
        await change(box, "high")
    await box.close()
    assert box.session.status == "completed"


async def test_new_work_waits_outside_while_the_level_changes(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("low")
    arrived, go_on = hold_next_create(box, monkeypatch)
    changing = asyncio.create_task(change(box, "medium"))
    await arrived.wait()
    for work in (box.run("ls"), box.read("x"), box.plane.sessions.interrupt(box.session)):
        with pytest.raises(PaddockError, match="is being changed"):
            await work
    # Requests to change or end the session wait for their turn.
    closing = asyncio.create_task(box.close())
    go_on.set()
    await asyncio.gather(changing, closing)
    assert box.session.status == "completed"
    assert await box.events("command.start") == []


async def test_a_caller_that_goes_away_does_not_stop_a_change(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("low")
    arrived, go_on = hold_next_create(box, monkeypatch)
    changing = asyncio.create_task(change(box, "medium"))
    await arrived.wait()
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)
    go_on.set()
    await change(box, "medium")
    assert (await box.run("whoami")).stdout == "sandbox\n"
    await box.close()


async def test_a_paused_session_keeps_its_level(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.plane.sessions.pause(TESTER, box.session)
    with pytest.raises(InvalidTransitionError):
        await change(box, "high")
    await box.plane.sessions.resume(TESTER, box.session)
    assert box.session.level.name == "low"
    assert (await box.run("ls")).exit_code == 0
    await box.close()


async def test_commands_that_are_being_started_run_once_or_not_at_all(
    new_box: BoxFactory,
) -> None:
    box = await new_box("high")

    async def append(number: int) -> None:
        await box.bash(f"echo {number} >> log")

    results = await asyncio.gather(
        *(append(number) for number in range(12)), change(box, "medium"), return_exceptions=True
    )
    assert not isinstance(results[-1], BaseException), results[-1]
    for result in results:
        assert result is None or isinstance(result, PaddockError), result
    lines = (await box.read("log")).decode().split() if "log" in await box.paths() else []
    assert len(lines) == len(set(lines))
    events = await box.events()
    started = [e["args"]["command_id"] for e in events if e["operation"] == "command.start"]
    ended = [e["args"]["command_id"] for e in events if e["operation"] == "command.exit"]
    # On a busy machine, the old agent may have no time to hand over its events.
    gaps = [e["args"]["commands"] for e in events if e["operation"] == "audit.gap"]
    assert sorted(started) == sorted([*ended, *(lost for gap in gaps for lost in gap)])
    await box.close()
