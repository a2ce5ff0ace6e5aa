"""Turns in real sandboxes: what their operations reach, and how they end."""

from dataclasses import replace

import pytest
import pytest_asyncio

from orchestrator.programs.turns.turn import LispCode, OperationCall, Script, TurnRecord
from orchestrator.programs.turns.turn_runner import RunningTurn
from orchestrator.rules.policy.session_policy import EXECUTIONS, SAFE_EDIT, SessionPolicy
from sandbox_agent.decide.globs import Globs
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "canary-of-the-turns"
EDITS: SessionPolicy = replace(
    SAFE_EDIT,
    name=None,
    allowed_operations=SAFE_EDIT.allowed_operations | EXECUTIONS | {"world.delete"},
    denied_operations=frozenset(),
    world_rules=replace(
        SAFE_EDIT.world_rules, write_patterns=Globs(["src/**/*"]), proposal_mode=False
    ),
    execution_rules=replace(
        SAFE_EDIT.execution_rules, allow_shell_commands=True, allow_network_calls=True
    ),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(new_box: BoxFactory) -> Box:
    return await new_box("high", policy=EDITS)


async def started(box: Box, script: Script) -> RunningTurn:
    running = await box.plane.turns.start(TESTER, box.session, script)
    assert isinstance(running, RunningTurn)
    return running


async def ended(box: Box, script: Script) -> TurnRecord:
    return await box.plane.turns.wait(await started(box, script))


async def run(box: Box, *calls: tuple[str, dict[str, str | int]]) -> TurnRecord:
    return await ended(box, tuple(OperationCall(name, args) for name, args in calls))


async def test_files_are_read_written_and_found(box: Box) -> None:
    turn = await run(
        box,
        ("world.write", {"ref": "src/deep/a.py", "text": "x = 1\n# here\n"}),
        ("world.list", {"ref": "src", "depth": 3}),
        ("world.search", {"text": "here"}),
        ("world.delete", {"ref": "src/deep/a.py"}),
    )
    assert turn.outcome is not None
    assert turn.outcome["tag"] == "ok", turn.outcome
    size, listed, found, _ = turn.outcome["value"]
    assert (size, listed) == (13, ["src/deep/", "src/deep/a.py"])
    assert found == [["src/deep/a.py", 2, "# here"]]
    assert (box.workspace / "src" / "deep").stat().st_uid == box.uid
    assert not (box.workspace / "src" / "deep" / "a.py").exists()


async def test_no_link_leads_to_what_the_patterns_exclude(box: Box) -> None:
    await box.write(".env", CANARY.encode())
    await box.bash("mkdir -p src; ln -sf ../.env src/link; ln -sf .. src/up; ln -sf /etc/passwd pw")
    for operation, ref in (
        ("world.read", ".env"),
        ("world.read", "src/link"),
        ("world.read", "src/up/.env"),
        ("world.fingerprint", "src/link"),
        ("world.read", "pw"),
        ("world.read", "../../etc/passwd"),
    ):
        turn = await run(box, (operation, {"ref": ref}))
        assert turn.outcome is not None
        assert turn.outcome["tag"] == "error", (operation, ref)
        assert CANARY not in str(turn.outcome)
    turn = await run(box, ("world.search", {"text": "canary"}), ("world.list", {"depth": 8}))
    assert turn.outcome is not None
    assert turn.outcome["tag"] == "ok", turn.outcome
    assert CANARY not in str(turn.outcome)
    assert ".env" not in str(turn.outcome)


async def test_commands_keep_to_the_level_and_say_what_they_printed(box: Box) -> None:
    turn = await run(
        box,
        ("world.run", {"command": "seq 20000"}),
        ("shell", {"script": "echo out; echo err >&2; exit 3"}),
    )
    assert turn.outcome is not None
    assert turn.outcome["tag"] == "ok", turn.outcome
    counted, scripted = (dict(each) for each in turn.outcome["value"])
    assert counted["stdout"] == "".join(f"{n}\n" for n in range(1, 20_001))
    wanted = {"exit-code": 3, "stdout": "out\n", "stderr": "err\n", "truncated": False}
    assert scripted.items() >= wanted.items()


async def test_a_turn_ends_with_its_session(new_box: BoxFactory) -> None:
    box = await new_box("high", policy=EDITS)
    running = await started(box, (OperationCall("world.run", {"command": "sleep 600"}),))
    await until(lambda: bool(box.session.running))
    await box.close()
    turn = await box.plane.turns.wait(running)
    assert turn.outcome is not None
    assert turn.outcome["error_type"] == "interrupted", turn.outcome
    events = await box.events("turn.end")
    assert [event["turn"] for event in events] == [1]


async def test_what_a_turn_writes_is_a_proposal(new_box: BoxFactory) -> None:
    box = await new_box("low", policy=SAFE_EDIT)
    code = '(world.write "src/a.py" "x = 1\\n") (list (world.read "src/a.py") (session/proposals))'
    turn = await ended(box, LispCode(code))
    outcome = turn.outcome
    assert outcome is not None
    assert outcome["tag"] == "proposed", outcome
    read, staged = outcome["value"]
    assert read == "x = 1\n"
    assert ["write", "src/a.py"] in staged
    assert [(each["type"], each["ref"]) for each in turn.proposals] == [("write", "src/a.py")]
    assert list(box.workspace.iterdir()) == []
    outside = (await ended(box, LispCode('(world.write "lib/a.py" "x")'))).outcome
    assert outside is not None
    assert outside["message"] == "Write not allowed: lib/a.py"
    asked = (await ended(box, LispCode("(session/commit-proposals!)"))).outcome
    assert asked is not None
    assert (asked["tag"], asked["need_type"]) == ("needs", "needs-approval")
    code = (
        '(world.write "src/b.py" "x") (define n (session/rollback-proposals!))'
        ' (list n (world.list ".") (session/proposals) (world.write "src/a.py" "x = 1\\n"))'
    )
    again = (await ended(box, LispCode(code))).outcome
    assert again is not None
    assert (again["tag"], again["value"]) == ("proposed", [3, [], [], 6]), again
    assert list(box.workspace.iterdir()) == []
    await box.plane.proposals.commit(TESTER, box.session, None, None)
    assert (box.workspace / "src" / "a.py").read_text() == "x = 1\n"
