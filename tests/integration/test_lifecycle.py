"""Sessions from creation to every kind of end, with real containers."""

import asyncio
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import docker
import psutil
import pytest

from orchestrator.ground.errors import (
    AuditUnavailableError,
    CapacityExhaustedError,
    ConflictError,
    EngineUnavailableError,
    InvalidTransitionError,
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
    SessionTerminatedError,
    ValidationError,
)
from orchestrator.host.engine.base import ContainerState
from orchestrator.host.workspace.mounts import MountError
from orchestrator.rules.access.keys import Principal, Role, digest
from orchestrator.sandbox.sandboxes.agent_parts import AgentPart
from orchestrator.sandbox.sandboxes.configuration import configuration_of
from orchestrator.sandbox.sandboxes.parts import Assembly, Plan
from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms
from orchestrator.work.commands import running_command
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box, ended
from tests.support.leaks import NOTHING, left_behind
from tests.support.plane import opened
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAITING = ["sleep", "1000"]
STRANGER = Principal("stranger", Role.OPERATOR)


@pytest.fixture
def client() -> Iterator[docker.APIClient]:
    client = docker.APIClient(version="auto")
    yield client
    client.close()


# Creating


async def test_a_session_is_what_its_level_says(new_box: BoxFactory) -> None:
    box = await new_box("medium", id="Named.1", labels={"team": "a"}, limits={"cpus": 0.5})
    view = box.shown().model_dump()
    assert (view["id"], view["status"], view["activity"]) == ("Named.1", "active", "idle")
    assert view["sandbox"]["state"] == "running"
    assert view["sandbox"]["network"] == "none"
    assert view["sandbox"]["limits"] == {"cpus": 0.5, "memory_bytes": 2**30, "pids": 128}
    assert box.workspace.is_dir()
    with pytest.raises(ConflictError):
        await new_box("medium", id="Named.1")
    with pytest.raises(ConflictError):
        await new_box("medium", id="nAMED.1")
    await box.close()
    assert not box.workspace.exists()


async def test_a_workspace_outlives_its_session(new_box: BoxFactory) -> None:
    box = await new_box("low", id="again")
    await box.write("kept", b"x")
    uid, key = box.uid, box.session.key
    await box.plane.sessions.close(TESTER, box.session, purge=False)
    assert (box.workspace / "kept").read_bytes() == b"x"
    with pytest.raises(ConflictError):
        await box.plane.sessions.create(STRANGER, NewSession(id="again"))
    again = await new_box("high", id="again")
    assert again.uid == uid
    assert again.session.key != key
    assert (await again.bash("cat kept; echo y > new")).stdout == "x"
    with pytest.raises(ConflictError):
        await again.plane.sessions.purge(TESTER, "again")
    await again.plane.sessions.close(TESTER, again.session, purge=False)
    with pytest.raises(NotFoundError):
        await again.plane.sessions.purge(STRANGER, "again")
    await again.plane.sessions.purge(TESTER, "again")
    assert not again.workspace.exists()
    with pytest.raises(NotFoundError):
        await again.plane.sessions.purge(TESTER, "again")


@pytest.mark.parametrize("number", range(2))
async def test_many_are_created_and_closed_at_once(new_box: BoxFactory, number: int) -> None:
    boxes = await asyncio.gather(*(new_box("low") for _ in range(6)))
    assert len({box.uid for box in boxes}) == 6
    done = await asyncio.gather(*(box.run("ls") for box in boxes))
    assert [outcome.exit_code for outcome in done] == [0] * 6
    await asyncio.gather(*(box.close() for box in boxes))


async def test_a_creation_goes_on_when_its_caller_goes_away(new_box: BoxFactory) -> None:
    box = await new_box("low")
    plane = box.plane
    creating = asyncio.create_task(plane.sessions.create(TESTER, NewSession(id="orphaned")))
    await asyncio.wait([creating], timeout=0.01)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    await plane.sessions._tasks.drain()
    session = plane.sessions.finder.find(TESTER, "orphaned")
    await plane.sessions.close(TESTER, session, purge=True)
    await box.close()


@pytest.fixture
def foreign_image(client: docker.APIClient) -> Iterator[str]:
    """An image that Paddock has not built."""
    archive = io.BytesIO()
    tarfile.open(fileobj=archive, mode="w").close()
    name = "paddock-test/foreign:latest"
    client.import_image_from_data(archive.getvalue(), repository=name.split(":")[0], tag="latest")
    yield name
    client.remove_image(name)


async def test_images_must_be_listed_present_and_ours(
    sandbox_image: str, foreign_image: str
) -> None:
    missing = "paddock-test/missing:latest"
    async with opened(image=sandbox_image, images=(foreign_image, missing)) as plane:
        for image, said in [
            ("debian:latest", "not on the operator's list"),
            (missing, "get it with `docker pull"),
            (foreign_image, "is not Paddock.s, and was not checked"),
        ]:
            with pytest.raises(ValidationError, match=said):
                await plane.sessions.create(TESTER, NewSession(terms=Terms(image=image)))
        assert plane.sessions.registry.all == []


async def test_admission_stops_before_the_host_is_full(sandbox_image: str) -> None:
    async with opened(image=sandbox_image, max_active=1) as plane:
        both = await asyncio.gather(
            Box.create(plane, "low"), Box.create(plane, "low"), return_exceptions=True
        )
        (refused,) = [one for one in both if isinstance(one, BaseException)]
        (box,) = [one for one in both if isinstance(one, Box)]
        assert isinstance(refused, CapacityExhaustedError)
        assert refused.fields["retry_after"] > 0
        await box.close()
        await (await Box.create(plane, "low")).close()


FAILURES = {
    "record": ("sessions.creation._recorder.record", AuditUnavailableError("full")),
    "prepare": ("sessions.creation._workspaces.prepare", OSError("no slot")),
    "network": ("engine.ensure_open_network", EngineUnavailableError("no rules")),
    "image": ("engine.image", EngineUnavailableError("asleep")),
    "create": ("engine.create", EngineUnavailableError("no room")),
    "names": ("engine.close_names", EngineUnavailableError("no rule")),
    "hello": (
        "sessions.creation._sandboxes._starter._hello._hello",
        SandboxUnavailableError("silent"),
    ),
    "interrupted": (
        "sessions.creation._sandboxes._starter._hello._hello",
        asyncio.CancelledError(),
    ),
    "acknowledge": ("sessions.creation._workspaces.keeping", AuditUnavailableError("full")),
}


@pytest.mark.parametrize("step", FAILURES)
async def test_a_creation_that_fails_leaves_nothing(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target, error = FAILURES[step]
    async with opened(image=sandbox_image) as plane:
        owner = plane
        *parents, name = target.split(".")
        for parent in parents:
            owner = getattr(owner, parent)

        def fail(*_args: object, **_members: object) -> None:
            monkeypatch.undo()
            raise error

        monkeypatch.setattr(owner, name, fail)
        seen = EngineUnavailableError if isinstance(error, OSError) else type(error)
        with pytest.raises(seen):
            await plane.sessions.create(TESTER, NewSession(id="failed", permission_level="high"))
        state = plane.settings.state_dir
        assert left_behind(state) == NOTHING
        assert plane.sessions.registry.all == []
        assert len(plane.sessions.registry) == 0
        # A session that was never created has no workspace.
        slots = state / "slots"
        assert not slots.exists() or list(slots.iterdir()) == []
        assert not any(plane.settings.workspaces_dir.glob("*"))
        with pytest.raises(NotFoundError):
            await plane.sessions.purge(TESTER, "failed")
        # The id is free, also for other keys.
        session, *_ = await plane.sessions.create(STRANGER, NewSession(id="failed"))
        await plane.sessions.close(TESTER, session, purge=True)


async def test_an_agent_does_nothing_until_it_is_configured_and_ends_when_it_can_not_be(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def misuse(_part: AgentPart, plan: Plan) -> None:
        for method in ("exec", "file.open", "pty.open", "secrets", "stats", "shutdown"):
            with pytest.raises(ConflictError, match="not configured yet"):
                await plan.link.request(method, {"variables": {}, "given": []})
            asked.append(method)
        await plan.link.request("configure", {**configuration_of(plan), "uid": 0})

    monkeypatch.setattr(AgentPart, "_configure", misuse)
    async with opened(image=sandbox_image) as plane:
        with pytest.raises(SandboxUnavailableError, match=r"the agent said: .*uid must be"):
            await plane.sessions.create(TESTER, NewSession())
        assert len(asked) == 6
        assert left_behind(plane.settings.state_dir) == NOTHING


async def test_an_agent_is_configured_once(new_box: BoxFactory) -> None:
    box = await new_box("low")
    assert box.session.sandbox is not None
    sandbox = box.session.sandbox
    assert list(sandbox.directory.run.iterdir()) == [sandbox.directory.socket]
    plan = cast(Assembly, sandbox.parts).plan
    laxer = {**configuration_of(plan), "commands": None, "level": "high"}
    with pytest.raises(ConflictError, match="already configured"):
        await sandbox.link.request("configure", laxer)
    with pytest.raises(ConflictError, match="already configured"):
        await sandbox.link.request("configure", {})
    assert (await box.run("ls")).exit_code == 0
    with pytest.raises(PermissionDeniedError):
        await box.run(argv=["python3", "-c", "1"])


async def test_a_creation_that_fails_keeps_an_older_workspace(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("low", id="older")
    await box.write("kept", b"x")
    await box.plane.sessions.close(TESTER, box.session, purge=False)

    def fail(_spec: object) -> None:
        monkeypatch.undo()
        raise EngineUnavailableError("no room")

    monkeypatch.setattr(box.plane.engine, "create", fail)
    with pytest.raises(EngineUnavailableError):
        await new_box("low", id="older")
    again = await new_box("low", id="older")
    assert await again.read("kept") == b"x"
    await again.close()


async def test_a_mount_that_fails_leaves_nothing(
    sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(image=sandbox_image) as plane:

        def fail(*_args: object, **_members: object) -> None:
            monkeypatch.undo()
            raise MountError("not allowed here")

        monkeypatch.setattr("orchestrator.host.workspace.mounts.bind", fail)
        with pytest.raises(PaddockError, match="not allowed here"):
            await plane.sessions.create(TESTER, NewSession())
        assert left_behind(plane.settings.state_dir) == NOTHING


# Pausing


async def test_a_paused_session_stands_still_and_goes_on(new_box: BoxFactory) -> None:
    box = await new_box("low")
    plane = box.plane
    command = await box.start("cat", background=True, stdin_open=True)
    await box.feed(command, b"before ")
    await box.printed(command, "before ")
    await plane.sessions.pause(TESTER, box.session)
    assert box.session.status == "paused"
    assert (await box.container()).state is ContainerState.PAUSED
    for work in (
        box.run("ls"),
        box.read("x"),
        box.feed(command, b"no"),
        plane.sessions.interrupt(box.session),
        plane.sessions.pause(TESTER, box.session),
    ):
        with pytest.raises(InvalidTransitionError):
            await work
    assert not command.ended
    assert box.shown().model_dump()["sandbox"]["state"] == "paused"
    await plane.sessions.resume(TESTER, box.session)
    assert box.session.status == "active"
    await box.feed(command, b"after", close=True)
    assert (await box.finish(command)).stdout == "before after"
    with pytest.raises(InvalidTransitionError):
        await plane.sessions.resume(TESTER, box.session)
    operations = [event["operation"] for event in await box.events()]
    assert operations.count("session.pause") == operations.count("session.resume") == 1
    await box.close()


async def test_what_an_engine_cannot_pause_is_killed(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("high")
    command = await box.start(argv=WAITING, background=True)
    assert box.session.sandbox is not None
    left = box.plane.settings.state_dir / "sandboxes" / box.session.sandbox.name

    async def fail(_container: str) -> None:
        raise EngineUnavailableError("asleep")

    with monkeypatch.context() as patch:
        patch.setattr(box.plane.engine, "pause", fail)
        with pytest.raises(SandboxUnavailableError, match="killed"):
            await box.plane.sessions.pause(TESTER, box.session)
    await box.session.over
    assert box.session.status == "aborted"
    # The agent may have told the end of the command before it was killed, too.
    told = (await box.event("audit.gap", "command.exit"))["args"]
    assert told.get("commands", [told.get("command_id")]) == [command.id]
    await until(lambda: not left.exists())


async def test_a_paused_session_can_be_closed_with_its_commands_on_record(
    new_box: BoxFactory,
) -> None:
    box = await new_box("high")
    command = await box.start(argv=WAITING, background=True)
    await box.plane.sessions.pause(TESTER, box.session)
    await box.close()
    assert box.session.status == "completed"
    assert command.result is not None
    assert command.result.reason == "session_ended"
    assert await box.events("audit.gap") == []


# Ending


async def test_closing_ends_what_runs_and_has_it_on_record(new_box: BoxFactory) -> None:
    box = await new_box("high")
    commands = [await box.start(argv=WAITING, background=bool(n % 2)) for n in range(4)]
    waiting = asyncio.create_task(box.finish(commands[0]))
    await box.close()
    assert (await waiting).exit["reason"] == "session_ended"
    events = await box.events()
    ended_ids = {e["args"]["command_id"] for e in events if e["operation"] == "command.exit"}
    assert ended_ids == {command.id for command in commands}
    assert box.session.termination is not None
    assert box.session.termination.rationale_code == "normal"
    assert box.session.termination.exit_classification == "SUCCESS"


async def test_an_ended_session_takes_no_work_but_is_still_known(new_box: BoxFactory) -> None:
    box = await new_box("low")
    done = await box.run("ls")
    await box.close()
    for work in (box.run("ls"), box.read("x"), box.mkdir("x")):
        with pytest.raises(SessionTerminatedError):
            await work
    for change in (box.plane.sessions.pause, box.plane.sessions.abort, box.plane.sessions.complete):
        with pytest.raises(InvalidTransitionError):
            await change(TESTER, box.session)
    assert box.plane.sessions.finder.find(TESTER, box.session.id) is box.session
    assert running_command.find(box.session, done.command.id).result is done.command.result
    # Only closing can be repeated, with or without a purge.
    await box.plane.sessions.close(TESTER, box.session, purge=False)
    assert len(await box.events("session.terminated")) == 1


async def test_completing_and_aborting(new_box: BoxFactory) -> None:
    completed, aborted = await new_box("low"), await new_box("low")
    await completed.plane.sessions.complete(TESTER, completed.session)
    await aborted.plane.sessions.abort(TESTER, aborted.session)
    ends = [box.session.termination for box in (completed, aborted)]
    assert [end.exit_classification for end in ends if end] == ["SUCCESS", "FAILURE"]
    assert [box.session.status for box in (completed, aborted)] == ["completed", "aborted"]


async def test_closing_at_once_from_many_sides_ends_it_once(new_box: BoxFactory) -> None:
    box = await new_box("low")
    sessions = box.plane.sessions
    results = await asyncio.gather(
        *(sessions.close(TESTER, box.session, purge=False) for _ in range(3)),
        sessions.abort(TESTER, box.session),
        sessions.complete(TESTER, box.session),
        return_exceptions=True,
    )
    assert all(r is None or isinstance(r, PaddockError) for r in results), results
    assert len(await box.events("session.terminated")) == 1


async def test_work_that_races_with_the_end_is_refused_or_on_record(new_box: BoxFactory) -> None:
    box = await new_box("low")
    results = await asyncio.gather(
        *(box.run("ls") for _ in range(10)),
        *(box.write(f"f{n}", b"x" * 100_000) for n in range(4)),
        box.plane.sessions.close(TESTER, box.session, purge=False),
        return_exceptions=True,
    )
    for result in results:
        assert not isinstance(result, BaseException) or isinstance(result, PaddockError), result
    events = await box.events()
    started = {e["args"]["command_id"] for e in events if e["operation"] == "command.start"}
    ended_ids = {e["args"]["command_id"] for e in events if e["operation"] == "command.exit"}
    assert started == ended_ids
    assert await box.events("audit.gap") == []


async def test_a_killed_container_is_a_crash_and_names_what_was_lost(
    new_box: BoxFactory, client: docker.APIClient
) -> None:
    box = await new_box("high")
    await box.write("kept", b"x")
    done = await box.run(argv=["true"])
    running = await box.start(argv=WAITING)
    waiting = asyncio.create_task(box.plane.executions.wait(box.session, running))
    client.kill(box.container_id)
    gap = await box.event("audit.gap")
    assert gap["args"]["commands"] == [running.id]
    assert (await waiting).exit_code is None
    (end,) = await box.events("session.terminated")
    assert end["result"] == {"status": "aborted", "rationale_code": "crash"}
    assert box.session.termination is not None
    assert box.session.termination.exit_code == 137
    assert box.session.sandbox is None
    assert done.command.result is not None
    assert done.command.result.exit_code == 0
    with pytest.raises(SessionTerminatedError):
        await box.run("ls")
    assert (box.workspace / "kept").read_bytes() == b"x"
    await box.close()
    assert not box.workspace.exists()


async def test_a_container_that_is_removed_from_outside_is_a_crash(
    new_box: BoxFactory, client: docker.APIClient
) -> None:
    box = await new_box("low")
    client.remove_container(box.container_id, v=True, force=True)
    await box.event("session.terminated")
    assert box.session.status == "aborted"
    await box.close()


async def test_an_agent_that_dies_is_a_crash_that_says_why(new_box: BoxFactory) -> None:
    box = await new_box("low")
    agent: psutil.Process = box.agent()
    agent.kill()
    await ended(agent)
    event = await box.event("session.terminated")
    assert "ended by itself" in event["error"]
    await box.close()


async def test_an_idle_session_ends_by_itself(new_box: BoxFactory) -> None:
    box = await new_box("low", idle_timeout=1)
    await box.event("session.terminated")
    assert box.session.status == "aborted"
    assert box.session.termination is not None
    assert box.session.termination.rationale_code == "timeout"


async def test_a_busy_session_is_not_idle(new_box: BoxFactory) -> None:
    box = await new_box("high", idle_timeout=1)
    done = await box.run(argv=["sleep", "1.5"])
    assert done.exit_code == 0
    assert box.session.live
    await box.event("session.terminated")


# Handles


async def test_a_handle_is_replaced_and_dies_with_its_session(new_box: BoxFactory) -> None:
    plane = (await new_box("low")).plane
    session, handle, _ = await plane.sessions.create(TESTER, NewSession())
    assert plane.sessions.finder.by_handle(digest(handle)) is session
    other = await plane.sessions.changes.rotate_handle(TESTER, session)
    assert plane.sessions.finder.by_handle(digest(handle)) is None
    assert plane.sessions.finder.by_handle(digest(other)) is session
    await plane.sessions.close(TESTER, session, purge=True)
    assert plane.sessions.finder.by_handle(digest(other)) is None
    with pytest.raises(SessionTerminatedError):
        await plane.sessions.changes.rotate_handle(TESTER, session)
    secrets = (handle, other)
    stored = b"".join(path.read_bytes() for path in _database_files(plane.settings.state_dir))
    assert not any(secret.encode() in stored for secret in secrets)


def _database_files(state_dir: Path) -> list[Path]:
    return list(state_dir.glob("paddock.db*"))
