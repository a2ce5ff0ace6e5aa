"""Terminals in real sandboxes: behaviour of tools, and the results of lines."""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import (
    AuditUnavailableError,
    BusyError,
    ConflictError,
    InvalidTransitionError,
    NotFoundError,
    PermissionDeniedError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.effect import Effect
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.rules.tools.gates import Verdict
from orchestrator.work.terminals import evidence
from orchestrator.work.terminals.line_record import Results
from orchestrator.work.terminals.spec import Needs, Situation
from paddock.contract.words import Kind
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box
from tests.support.tool import Pattern, Person, Tool, judged, results
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_line_and_its_answer(high: Box) -> None:
    tool = await Tool.open(high)
    assert tool.opened.status == "ready"
    assert tool.opened.prompt == "tool=>"
    envelope = await tool.do("say hello")
    assert envelope.status == "success"
    assert envelope.exit_code == 0
    assert envelope.results == Results("tool=>", "hello", "ready", 1)
    raw = b"say hello\r\nhello\r\ntool=> "
    assert envelope.output_hash == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert envelope.output_bytes == len(raw)
    assert re.fullmatch(r"\d+-[0-9a-f]{8}", envelope.scan_id)
    assert envelope.session_id == high.session.id
    assert envelope.terminal_id == tool.id
    closed = await tool.close()
    assert (closed.status, closed.reason) == ("terminated", "closed")


async def test_the_program_has_a_terminal_of_its_own(high: Box) -> None:
    tool = await Tool.open(high)
    expected = {
        "tty": "True",
        "leader": "True",
        "size": "24x32767",
        "TERM": "dumb",
        "PAGER": "cat",
        "HISTFILE": "/dev/null",
        "INPUTRC": "/dev/null",
        "HOME": "/nonexistent",
    }
    assert {name: await tool.output(f"environment {name}") for name in expected} == expected
    await tool.close()


@pytest.mark.parametrize("level", ["low", "medium"])
async def test_a_tool_is_confined_but_for_what_it_needs(new_box: BoxFactory, level: str) -> None:
    box = await new_box(level)
    needs = Needs(read=("/usr/lib/python3.11",))
    tool = await Tool.open(box, needs=needs)
    denied = "Permission denied"
    assert await tool.output("read /usr/lib/python3.11/os.py") == "yes"
    assert await tool.output("read /workspace/fake_tool.py") == "yes"
    assert await tool.output("read /etc/debian_version") == denied
    assert (await tool.output("execute /usr/bin/mkdir")).endswith("\nyes")
    assert await tool.output("execute /usr/bin/git") == denied
    await tool.close()
    # Without its required permissions, the same program does not start.
    with pytest.raises(ConflictError):
        await Tool.open(box)


async def test_nothing_of_it_is_left(new_box: BoxFactory) -> None:
    box = await new_box("high")
    tool = await Tool.open(box, "--deaf", "--daemon")
    assert len(box.processes()) == 2
    await tool.close()
    assert box.processes() == []
    exit_event = await box.event("pty.exit")
    assert exit_event["result"]["reason"] == "closed"
    assert exit_event["result"]["signal"] == "SIGKILL"
    assert exit_event["result"]["leftover_killed"] == 1
    assert (await box.event("pty.close"))["args"]["reason"] == "closed"


async def test_a_tool_that_never_prompts_fails_with_what_it_said(new_box: BoxFactory) -> None:
    box = await new_box("high")
    with pytest.raises(ConflictError, match="starting, for ever") as failure:
        await Tool.open(box, "--never", startup_timeout_seconds=1)
    assert failure.value.fields["reason"] == "startup_timeout"
    assert box.processes() == []


async def test_a_tool_that_ends_at_its_start_fails_at_once(high: Box) -> None:
    with pytest.raises(ConflictError, match="said: 'no such database'"):
        await Tool.open(high, "--die", startup_timeout_seconds=1000)


async def test_a_program_that_is_not_there_fails(high: Box) -> None:
    with pytest.raises(ConflictError, match="cannot run 'no-such-tool': No such file"):
        await Tool.open(high, argv=("no-such-tool",))


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("nothing", ""),
        ("say tool=> ", "tool=> "),
        ("inside", "tool=> \ntool=> \ntool=> \nreal"),
        ("busy 0.05", "tool=> was not the prompt"),
        ("hex c3 a90a 746f6f6c3d3e 20", "é"),
        # Bracketed paste, a title and colours, each cut in the middle.
        (
            "hex 1b 5b3f323030 346c 1b5d303b74 6974 6c65071b5b33 316d7265641b5b306d0d0a"
            " 1b5b3f3230303468746f6f6c3d3e20",
            "red",
        ),
        ("hex 61ff620a 746f6f6c3d3e20", "a\ufffdb"),
        ("hex 35300d313030250a 746f6f6c3d3e20", "100%"),
    ],
)
async def test_output_and_prompt_are_told_apart(high: Box, line: str, output: str) -> None:
    tool = await Tool.open(high)
    assert await tool.output(line) == output
    assert await tool.output("say next") == "next"
    await tool.close()


async def test_a_long_line_is_sent_whole_and_its_echo_removed(high: Box) -> None:
    tool = await Tool.open(high)
    text = "x" * 4000
    assert await tool.output(f"say {text}") == text
    await tool.close()


async def test_a_line_that_the_kernel_would_cut_is_refused(high: Box) -> None:
    tool = await Tool.open(high)
    long = "say " + "x" * 4091
    with pytest.raises(PermissionDeniedError, match="lines may have 4094") as refusal:
        await tool.do(long)
    assert refusal.value.fields["rule"] == "too-long"
    # The refused line uses up no approval, and is recorded as refused.
    person = Person()
    pending = judged("pending", "human-approval", "a person must approve", "do", ("do",))
    with pytest.raises(PermissionDeniedError):
        await tool.do(long, pending, ask=person.ask)
    assert person.steps == ["use", "False"]
    events = [
        (event["decision"], event["rule"])
        for event in await high.events("pty.interaction")
        if event["args"]["terminal_id"] == tool.id and event["decision"] == "deny"
    ]
    assert events == [("deny", "too-long")] * 2
    assert await tool.output("say " + "x" * 4090) == "x" * 4090
    await tool.close()


async def test_without_echo_nothing_is_taken_away(high: Box) -> None:
    tool = await Tool.open(high)
    await tool.do("echo off")
    assert await tool.output("say one") == "one"
    # This can't be distinguished from data that looks like two prompts.
    assert (await tool.do("nothing")).status == "success"
    await tool.close()


async def test_output_that_joins_the_prompt_times_out(high: Box) -> None:
    tool = await Tool.open(high, output_wait_ms=200)
    envelope = await tool.do("join 42")
    assert envelope.status == "timeout"
    assert envelope.exit_code == -1
    assert results(envelope).output == "42tool=> "
    await tool.close()


async def test_what_comes_after_a_timeout_is_nobodys_answer(high: Box) -> None:
    tool = await Tool.open(high, output_wait_ms=300)
    envelope = await tool.do("pause 1")
    assert (envelope.status, results(envelope).output) == ("timeout", "first")
    assert (await tool.view()).status == "timed_out"
    with pytest.raises(BusyError, match="not come back to its prompt"):
        await tool.do("say early")
    await tool.more()
    assert await tool.output("say next") == "next"
    assert "LATE" in await tool.transcript()
    assert "early" not in await tool.transcript()
    await tool.close()


async def test_a_prompt_in_front_of_a_sleep_is_none(high: Box) -> None:
    tool = await Tool.open(high)
    assert await tool.output("spoof 0.4") == "tool=> was not the prompt"
    assert await tool.output("say next") == "next"
    await tool.close()


async def test_what_a_spoofer_says_later_is_nobodys_answer(high: Box) -> None:
    tool = await Tool.open(high, output_wait_ms=300)
    envelope = await tool.do("spoof")
    assert (envelope.status, results(envelope).output) == ("timeout", "")
    with pytest.raises(BusyError, match="not come back to its prompt"):
        await tool.do("say early")
    await tool.wake()
    assert await tool.output("say next") == "next"
    await tool.close()


@pytest.mark.parametrize("how", ["select", "poll", "epoll", "thread", "child", "terminal"])
async def test_there_are_many_ways_to_wait_for_input(high: Box, how: str) -> None:
    tool = await Tool.open(high)
    assert await tool.output(f"wait_for {how}") == ""
    assert await tool.output("anything") == f"after {how}: anything"
    assert await tool.output("say next") == "next"
    await tool.close()


async def test_who_reads_in_the_tools_place_is_not_the_tool(high: Box) -> None:
    tool = await Tool.open(high, output_wait_ms=300)
    assert (await tool.do("nested")).status == "timeout"
    with pytest.raises(BusyError, match="not come back to its prompt"):
        await tool.do("say early")
    await tool.close()


async def test_who_waits_for_something_else_waits_for_no_input(high: Box) -> None:
    tool = await Tool.open(high, output_wait_ms=200)
    assert (await tool.do("wait_for other")).status == "timeout"
    await tool.close()


async def test_who_hides_from_the_agent_is_not_at_its_prompt(high: Box) -> None:
    tool = await Tool.open(high, needs=Needs(read=("/usr/lib/python3.11",)), output_wait_ms=300)
    assert (await tool.do("hide")).status == "timeout"
    with pytest.raises(BusyError):
        await tool.do("say next")
    await tool.close()


async def test_a_notice_does_not_end_a_terminals_use(high: Box) -> None:
    tool = await Tool.open(high)
    for cycle in range(2):
        assert await tool.output(f"notice background {cycle}") == ""
        await tool.wake()
        assert await tool.output(f"say {cycle}") == str(cycle)
    said = [
        event["result"]
        for event in await high.events("pty.output")
        if event["args"]["terminal_id"] == tool.id
    ]
    assert said == [{"output": f"background {cycle}", "output_bytes": 14} for cycle in range(2)]
    assert re.search(r'LATE +14 bytes +"background 1"', await tool.transcript())
    await tool.close()


async def test_what_a_tool_says_between_lines_is_nobodys_answer(high: Box) -> None:
    tool = await Tool.open(high)
    assert await tool.output("late surprise") == ""
    await tool.wake()
    assert await tool.output("say next") == "next"
    assert re.search(r"LATE +\d+ bytes", await tool.transcript())
    await tool.close()


async def test_much_output_is_cut_and_the_terminal_goes_on(high: Box) -> None:
    tool = await Tool.open(high, output_wait_ms=20_000)
    envelope = await tool.do("big 4000000")
    assert envelope.status == "success"
    assert envelope.truncated
    assert len(results(envelope).output.encode()) == 64 * 1024
    lines = 4_000_000 // 65 + 1  # each line got a carriage return
    assert envelope.output_bytes >= 4_000_000 + lines
    assert await tool.output("say next") == "next"
    await tool.close()


async def test_a_flood_waits_and_ends(high: Box) -> None:
    tool = await Tool.open(high, output_wait_ms=300)
    envelope = await tool.do("flood")
    assert (envelope.status, envelope.truncated) == ("timeout", True)
    assert await high.run("echo fine")
    assert (await tool.close()).reason == "closed"


async def test_a_tool_that_exits_has_said_its_last(high: Box) -> None:
    tool = await Tool.open(high)
    envelope = await tool.do("exit 7")
    assert (envelope.status, envelope.exit_code) == ("error", 7)
    assert results(envelope).output == "bye"
    view = await tool.view()
    assert (view.status, view.reason, view.exit_code) == ("terminated", "exited", 7)
    with pytest.raises(ConflictError, match="has ended"):
        await tool.do("say more")


async def test_a_tool_that_is_killed_between_lines_has_ended(high: Box) -> None:
    tool = await Tool.open(high)
    envelope = await tool.do("kill 9")
    assert (envelope.status, envelope.exit_code) == ("error", 137)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"idle_timeout_seconds": 1}, "idle_timeout"),
        ({"session_timeout_seconds": 1}, "session_timeout"),
    ],
)
async def test_limits_end_it_by_themselves(high: Box, limits: dict[str, int], reason: str) -> None:
    tool = await Tool.open(high, **limits)
    view = await tool.ended()
    assert (view.status, view.reason) == ("terminated", reason)
    assert f"CLOSED   reason={reason}" in await tool.transcript()


async def test_the_lifetime_ends_in_the_middle_of_a_line_too(high: Box) -> None:
    tool = await Tool.open(high, session_timeout_seconds=1, output_wait_ms=20_000)
    envelope = await tool.do("hang")
    assert envelope.status == "error"
    assert (await tool.view()).reason == "session_timeout"


async def test_one_interaction_too_many_ends_it(high: Box) -> None:
    tool = await Tool.open(high, max_interactions=2)
    await tool.do("say 1")
    with pytest.raises(PermissionDeniedError):
        await tool.do("say no", judged("deny", "risk-tier", "too risky"))
    await tool.do("say 2")
    with pytest.raises(PermissionDeniedError) as refusal:
        await tool.do("say 3")
    assert refusal.value.fields["rule"] == "max-interactions"
    view = await tool.view()
    assert (view.reason, view.interaction_count) == ("max_interactions", 2)


async def test_one_interaction_at_a_time(high: Box) -> None:
    tool = await Tool.open(high)
    first = asyncio.create_task(tool.do("slow 0.5"))
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="one interaction at a time"):
        await tool.do("say second")
    assert results(await first).output == "at last"
    await tool.close()


async def test_a_caller_who_goes_away_leaves_no_half_answer(high: Box) -> None:
    tool = await Tool.open(high)
    first = asyncio.create_task(tool.do("slow 0.3"))
    await tool.recorded("pty.interaction")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await tool.settled()
    assert await tool.output("say next") == "next"
    await tool.close()


async def test_denied_and_pending_lines_reach_no_tool(high: Box) -> None:
    tool = await Tool.open(high)
    denied = judged("deny", "pattern", "no such pattern", "drop", ("drop",))
    with pytest.raises(PermissionDeniedError, match="no such pattern"):
        await tool.do("say denied", denied)
    pending = judged("pending", "human-approval", "a person must approve", "update", ("update",))
    envelope = await tool.do("say pending", pending)
    assert (envelope.status, envelope.results) == ("pending", None)
    person = Person()
    approved = await tool.do("say pending", pending, ask=person.ask)
    assert results(approved).output == "pending"
    assert person.steps == ["use", "True"]
    raw = high.plane.settings.state_dir / "evidence" / high.session.key / tool.id / "raw"
    assert raw.read_bytes().count(b"pending") == 2  # echo and answer of the approved line
    assert b"denied" not in raw.read_bytes()
    events = [
        e for e in await high.events("pty.interaction") if e["args"]["terminal_id"] == tool.id
    ]
    assert [(e["decision"], e["rule"], e["args"]["approval"]) for e in events] == [
        ("deny", "pattern", None),
        ("pending", "human-approval", None),
        ("pending", "human-approval", None),
        ("allow", "human-approval", "apr-1"),
    ]
    await tool.close()


async def test_the_agent_refuses_what_the_host_let_through(high: Box) -> None:
    tool = await Tool.open(high, sanitize=("injection",))
    for text, rule in (
        ("say a\x03", "control-character"),
        ("say a\nsay b", "control-character"),
        ("say \x9b", "control-character"),
        ("say a;b", "input-sanitize"),
    ):
        with pytest.raises(PermissionDeniedError) as refusal:
            await tool.do(text)
        assert refusal.value.fields["rule"] == rule
    with pytest.raises(PermissionDeniedError) as refusal:
        await tool.do("say a", tool="fake.other")
    assert refusal.value.fields["rule"] == "unknown-tool"
    assert await tool.output("say (fine)") == "(fine)"
    assert (await tool.view()).interaction_count == 1
    await tool.close()


async def test_decisions_see_the_state_at_the_prompt(high: Box) -> None:
    tool = await Tool.open(high)
    assert results(await tool.do("prompt root=#")).session_state == "admin"
    seen: list[Situation] = []

    def decide(situation: Situation) -> Verdict:
        seen.append(situation)
        return judged()

    await tool.do("say x", decide=decide)
    assert seen == [Situation("admin", 1, 4094)]
    await tool.close()


async def test_a_result_that_breaks_the_schema_is_withheld(high: Box) -> None:
    tool = await Tool.open(high, result_problem=lambda _: "output does not hold to maxLength")
    envelope = await tool.do("say secret")
    assert (envelope.status, envelope.results) == ("error", None)
    assert envelope.error == "output does not hold to maxLength"
    assert "secret" not in str(replace(envelope, command=""))
    await tool.close()


async def test_the_transcript(high: Box) -> None:
    tool = await Tool.open(high)
    await tool.do("say hello", judged(command="select_query", scope="OK"))
    with pytest.raises(PermissionDeniedError):
        await tool.do('drop "x"\n[00:00.0] INPUT', judged("deny", "p", "no", "drop_table"))
    await tool.close()
    text = await tool.transcript()
    lines = [re.sub(r"^\[\d\d:\d\d\.\d\] ", "", line) for line in text.splitlines()]
    assert lines == [
        "STARTUP  fake",
        'READY    prompt="tool=>" state=ready',
        'INPUT    "say hello"  cedar=ALLOW  scope=OK  pattern=select_query',
        'OUTPUT   1 line, 25 bytes  prompt="tool=>" state=ready',
        r'INPUT    "drop \"x\"\n[00:00.0] INPUT"  cedar=DENY  pattern=drop_table',
        "CLOSED   reason=closed  exit_code=143  interactions=1",
    ]
    view = await tool.view()
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert view.evidence is not None
    assert view.evidence.transcript_hash == f"sha256:{digest}"
    directory = high.plane.settings.state_dir / "evidence" / high.session.key / tool.id
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == {
        "raw": 0o600,
        "recording.cast": 0o600,
        "transcript.log": 0o600,
    }
    assert directory.stat().st_mode & 0o777 == 0o700
    raw = (directory / "raw").read_bytes()
    assert view.evidence.raw_hash == f"sha256:{hashlib.sha256(raw).hexdigest()}"


async def test_events_tell_all_of_it(new_box: BoxFactory) -> None:
    box = await new_box("high")
    tool = await Tool.open(box)
    await tool.do("say hello")
    await tool.close()
    events = [event for event in await box.events() if event["operation"].startswith("pty.")]
    assert [event["operation"] for event in events] == [
        "pty.open",
        "pty.interaction",
        "pty.result",
        "pty.exit",
        "pty.close",
    ]
    assert {event["args"]["terminal_id"] for event in events} == {tool.id}
    assert events[1]["args"]["command"] == "say hello"
    assert events[2]["result"]["status"] == "success"


async def test_terminals_of_another_session_are_not_there(new_box: BoxFactory, high: Box) -> None:
    tool = await Tool.open(high)
    other = await new_box("high")
    tool.box = other
    with pytest.raises(NotFoundError):
        await tool.do("say x")
    with pytest.raises(NotFoundError):
        await tool.view()
    with pytest.raises(NotFoundError):
        await tool.close()
    tool.box = high
    await tool.close()


async def test_a_slave_can_not_be_opened_by_its_path(high: Box) -> None:
    tool = await Tool.open(high)
    script = "import os; print(*[n for n in os.listdir('/dev/pts') if n != 'ptmx'])"
    names = (await high.python(script)).stdout.split()
    assert names
    for name in names:
        done = await high.bash(f"echo stolen > /dev/pts/{name}; cat < /dev/pts/{name}")
        assert done.stderr.count("Permission denied") == 2
    await tool.close()


async def test_nothing_is_left_of_one_that_could_not_be_recorded(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("high")
    tool = await Tool.open(box)

    append = box.plane.ledger.append

    async def failing(draft: EventDraft, effect: Effect | None = None) -> Recorded:
        if draft.source == "control-plane":
            raise AuditUnavailableError("the disk is full")
        return await append(draft, effect)

    with monkeypatch.context() as patch:
        patch.setattr(box.plane.ledger, "append", failing)
        with pytest.raises(AuditUnavailableError):
            await Tool.open(box)
        with pytest.raises(AuditUnavailableError):
            await tool.do("say unrecorded")
    directory = box.plane.settings.state_dir / "evidence" / box.session.key
    assert os.listdir(directory) == [tool.id]
    assert b"unrecorded" not in (directory / tool.id / "raw").read_bytes()
    assert await tool.output("say recorded") == "recorded"
    await tool.close()


async def test_without_evidence_nothing_is_sent(
    new_box: BoxFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await new_box("high")
    tool = await Tool.open(box)
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "MOST_TRANSCRIPT_BYTES", 0)
        with pytest.raises(AuditUnavailableError, match="transcript is full"):
            await tool.do("say x")
    view = await tool.view()
    assert (view.reason, view.interaction_count) == ("evidence_unavailable", 0)


async def test_a_readline_tool(high: Box) -> None:
    tool = await Tool.open(
        high,
        argv=("python3", "-q"),
        ready=Pattern(r"(>>>|\.\.\.) "),
        infer_state=lambda _before, prompt, _command: "more" if prompt[0] == "." else "ready",
    )
    assert await tool.output("1 + 1") == "2"
    assert await tool.output("x = 1") == ""
    # The line is longer than the terminal is wide, so readline shows only its end.
    text = "a" * 500
    assert await tool.output(f"print('{text}')") == text
    assert results(await tool.do("if x:")).session_state == "more"
    assert await tool.output(" print('é⛛')") == ""
    envelope = await tool.do("")
    assert envelope.results == Results(">>>", "é⛛", "ready", 6)
    assert "ZeroDivisionError" in await tool.output("1 / 0")
    await tool.close()


async def test_a_level_change_ends_it(new_box: BoxFactory) -> None:
    box = await new_box("high")
    tool = await Tool.open(box, output_wait_ms=20_000)
    hanging = asyncio.create_task(tool.do("hang"))
    await tool.recorded("pty.interaction")
    await box.plane.sessions.changes.set_level(TESTER, box.session, "low", {})
    assert (await hanging).status == "error"
    view = await tool.view()
    assert (view.status, view.reason) == ("terminated", "level_changed")


async def test_a_pause_freezes_it(new_box: BoxFactory) -> None:
    box = await new_box("high")
    tool = await Tool.open(box)
    await box.plane.sessions.pause(TESTER, box.session)
    with pytest.raises(InvalidTransitionError):
        await tool.do("say x")
    await box.plane.sessions.resume(TESTER, box.session)
    assert await tool.output("say x") == "x"
    await tool.close()


async def test_the_end_of_a_session_is_that_of_its_terminals(new_box: BoxFactory) -> None:
    box = await new_box("high")
    tool = await Tool.open(box)
    key = box.session.key
    await box.plane.sessions.complete(TESTER, box.session)
    view = await box.plane.terminals.records.get(key, tool.id)
    assert (view.status, view.reason) == ("terminated", "session_ended")
    assert "reason=session_ended" in await box.plane.terminals.records.transcript(key, tool.id)


async def test_a_sandbox_that_dies_takes_them_along(new_box: BoxFactory) -> None:
    box = await new_box("high")
    tool = await Tool.open(box)
    os.kill(box.agent().pid, 9)
    view = await tool.ended()
    assert (view.status, view.reason) == ("terminated", "sandbox_ended")


async def test_terminals_count_as_what_runs(new_box: BoxFactory) -> None:
    box = await new_box("high")
    tools = [await Tool.open(box) for _ in range(16)]
    with pytest.raises(BusyError):
        await Tool.open(box)
    with pytest.raises(BusyError):
        await box.run("echo hi")
    await box.plane.terminals.close_all(box.session, "closed")
    assert {(await tool.view()).status for tool in tools} == {"terminated"}
    assert (await box.run("echo hi")).stdout == "hi\n"


@pytest.fixture(params=["quota", "disk"])
def fill(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[], None]:
    """Once called, nothing more may be recorded: for the key, or for any key."""
    room = control_plane.executions._recorder._room
    assert room is not None
    if request.param == "quota":
        return lambda: monkeypatch.setattr(room, "_quota", lambda _owner: 1)
    return lambda: monkeypatch.setattr(room, "_least_free", 2**62)


async def test_a_tool_that_says_more_than_may_be_recorded_is_ended(
    new_box: BoxFactory, fill: Callable[[], None]
) -> None:
    box = await new_box("high")
    tool = await Tool.open(box, "--deaf", "--daemon", output_wait_ms=60_000)
    line = asyncio.create_task(tool.do("flood"))
    before = box.session.budget.used(Kind.AUDIT_BYTES)
    await until(lambda: box.session.budget.used(Kind.AUDIT_BYTES) > before + 100_000)
    fill()
    assert (await tool.ended()).reason == "no_room"
    assert (await box.event("pty.exit"))["result"]["reason"] == "no_room"
    assert (await box.event("pty.close"))["args"]["reason"] == "no_room"
    assert box.processes() == []
    assert (await line).error == "the tool has ended"
    assert box.session.live


async def test_what_a_command_executes_ends_terminals_where_nothing_more_may_be_recorded(
    new_box: BoxFactory, fill: Callable[[], None]
) -> None:
    box = await new_box("high")
    idle = await Tool.open(box)
    loop = await box.start(argv=["bash", "-c", "while :; do /bin/true; done"], background=True)
    fill()
    assert (await idle.ended()).reason == "no_room"
    assert (await box.finish(loop)).exit["reason"] == "no_room"
    assert box.processes() == []
    assert box.session.live


async def test_what_a_tool_executes_ends_it_where_nothing_more_may_be_recorded(
    new_box: BoxFactory, fill: Callable[[], None]
) -> None:
    box = await new_box("high")
    # The tool is at its prompt, and another process of its tree executes programs.
    tool = await Tool.open(box, "--executes")
    assert await tool.output("say hello") == "hello"
    fill()
    assert (await tool.ended()).reason == "no_room"
    assert box.processes() == []
