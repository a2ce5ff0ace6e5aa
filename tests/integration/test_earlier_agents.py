"""Live sandboxes of earlier versions, whose agents speak an earlier protocol, are taken over."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError, PermissionDeniedError
from orchestrator.host.link.earlier_agents import OLDEST, EarlierAgentError
from orchestrator.state.command import Command
from orchestrator.work.files.file_requests import Conditions
from paddock.contract.words import Status
from sandbox_agent.decide.protocol import PROTOCOL_VERSION
from tests.support.box import TESTER, Box
from tests.support.earlier_agents import KEPT, of_protocol
from tests.support.plane import clear, running, state
from tests.support.tool import Tool

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TakenOver(NamedTuple):
    """What an earlier version left, and the control plane that has taken it over."""

    plane: ControlPlane
    protocol: int
    high: Box
    low: Box
    waiting: Command


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(KEPT))
async def taken(
    request: pytest.FixtureRequest,
    sandbox_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[TakenOver]:
    protocol = request.param
    with state(image=sandbox_image) as settings:
        with of_protocol(protocol, tmp_path_factory.mktemp("agent")):
            async with running(settings) as earlier:
                high, low = await Box.create(earlier, "high"), await Box.create(earlier, "low")
                await high.write("notes.txt", b"kept")
                script = "echo before; read line; echo got $line; exit 7"
                argv = ["bash", "-c", script]
                waiting = await high.start(argv=argv, background=True, stdin_open=True)
                ids = high.session.id, low.session.id
        async with running(settings) as plane:
            found = {each.id: each for each in plane.sessions.registry.live}
            high, low = (Box(plane, found[each]) for each in ids)
            command = high.session.commands[waiting.id]
            yield TakenOver(plane, protocol, high, low, command)
            await clear(plane)


async def test_the_kept_ones_are_those_of_the_first_release_and_of_the_previous_protocol() -> None:
    assert min(KEPT) == OLDEST
    assert max(KEPT) == PROTOCOL_VERSION - 1
    assert max(path.stat().st_size for path in KEPT.values()) < 200 * 1024


async def test_what_runs_goes_on_and_ends(taken: TakenOver) -> None:
    box, command = taken.high, taken.waiting
    assert box.session.status is Status.ACTIVE
    assert box.agent().cmdline()[0] == "/usr/bin/python3"
    assert not command.ended
    await box.feed(command, b"it\n", close=True)
    done = await box.finish(command)
    assert (done.exit_code, done.stdout) == (7, "before\ngot it\n")
    new = await box.start(argv=["sleep", "1000"], background=True)
    assert (await box.cancel(new)).exit["signal"] is not None


async def test_it_works_as_before(taken: TakenOver) -> None:
    high, low = taken.high, taken.low
    done = await high.bash("cat notes.txt; echo to stderr >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "kept", "to stderr\n")
    assert (await low.run("ls")).stdout == ""
    await low.write("made/by.txt", b"hand", parents=True)
    assert await low.read("made/by.txt") == b"hand"
    assert await low.paths("made") == ["made/by.txt"]
    assert (await low.stat("made/by.txt")).size == 4
    archive, _ = await low.pack("made")
    await low.unpack(archive, "again")
    await low.move("again/by.txt", "moved.txt")
    await low.delete("moved.txt")
    assert await low.read("made/by.txt") == b"hand"
    # What it reports is on record.
    written = await low.event("file.write")
    assert written["args"]["path"] == "made/by.txt"


async def test_its_level_holds(taken: TakenOver) -> None:
    low = taken.low
    with pytest.raises(PermissionDeniedError):
        await low.run("cat /etc/passwd")
    (low.workspace / "link").symlink_to("/etc/passwd")
    with pytest.raises(PermissionDeniedError):
        await low.run("cat link")
    with pytest.raises(PermissionDeniedError):
        await low.read("link")


async def test_a_terminal(taken: TakenOver) -> None:
    tool = await Tool.open(taken.high)
    assert await tool.output("say hello") == "hello"
    await tool.close()


async def test_what_it_can_not_do_is_refused_and_nothing_is_done(taken: TakenOver) -> None:
    plane, box = taken.plane, taken.high
    files, session = plane.files, box.session
    await box.write("held.txt", b"first")
    with pytest.raises(EarlierAgentError, match=r"which has no file\.search"):
        await plane.file_trees.search(TESTER, session, ".", "kept")
    with pytest.raises(EarlierAgentError, match=r"file\.delete with recursive"):
        await files.delete(TESTER, session, "held.txt", recursive=True)
    conditions = Conditions(match=("0" * 32,))
    with pytest.raises(EarlierAgentError, match=r"file\.delete with match"):
        await files.delete(TESTER, session, "held.txt", conditions=conditions)
    with pytest.raises(EarlierAgentError, match="not UTF-8"):
        await box.write("\\xff.txt", b"other")
    with pytest.raises(EarlierAgentError, match="exec with merge"):
        await box.run(argv=["rm", "held.txt"], merge=True)
    with pytest.raises(ConflictError, match="set the session's permission level again"):
        await plane.contexts.create(TESTER, session, "c", "python", None)
    assert await box.read("held.txt") == b"first"
    assert not [each for each in session.commands.values() if not each.ended]


async def test_its_level_set_again_gives_it_a_sandbox_of_this_version(taken: TakenOver) -> None:
    """The last test of a module's sandboxes, in each of their versions."""
    box = taken.low
    await box.write("notes.txt", b"kept here")
    await taken.plane.sessions.changes.set_level(TESTER, box.session, "low", {})
    assert box.session.sandbox is not None
    assert not box.session.sandbox.link.earlier
    assert box.session.level.name == "low"
    found = await taken.plane.file_trees.search(TESTER, box.session, ".", "kept here")
    assert [match.path for match in found.matches] == ["notes.txt"]
