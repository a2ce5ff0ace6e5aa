"""Output that the agent keeps for readers: bounded for any number of commands."""

from typing import Any

import pytest

from sandbox_agent.core import outputs as outputs_module
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.output import STDOUT, Output
from sandbox_agent.core.outputs import Outputs
from sandbox_agent.decide.errors import AgentError


def printed(text: bytes = b"said") -> Output:
    output = Output(1000, keep_tail=False)
    output.add(STDOUT, text)
    return output


def params(command_id: str, after: int = 0, wait_ms: int = 0) -> dict[str, Any]:
    return {"command_id": command_id, "after": after, "limit": 100, "wait_ms": wait_ms}


def pending(loop: Loop) -> int:
    return sum(timer.pending for timer in loop._timers)


def test_output_that_was_read_holds_no_timer() -> None:
    loop = Loop()
    outputs = Outputs(loop, 10_000)
    for number in range(300):
        command_id = f"c{number}"
        outputs.add(command_id, printed())
        outputs.end(command_id, unread=True)
        assert pending(loop) == 1
        outputs.read(params(command_id), lambda _: None)
        assert pending(loop) == 0


def test_output_that_nobody_reads_holds_timers_of_as_many_as_are_kept() -> None:
    loop = Loop()
    outputs = Outputs(loop, 10_000_000)
    for number in range(1000):
        outputs.add(f"c{number}", printed())
        outputs.end(f"c{number}", unread=True)
    assert pending(loop) <= 256
    outputs.forget_callers()
    assert pending(loop) == 0


def test_so_many_callers_wait_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs_module, "_MOST_WAITING", 5)
    outputs = Outputs(Loop(), 10_000)
    outputs.add("a", printed())
    outputs.add("b", printed())
    answers: list[Any] = []
    for command_id in "ababa":
        outputs.read(params(command_id, 4, 60_000), answers.append)
    with pytest.raises(AgentError) as refused:
        outputs.read(params("b", 4, 60_000), answers.append)
    assert refused.value.code == "busy"
    assert answers == []
    outputs.read(params("b", 0, 60_000), answers.append)  # does not have to wait
    assert len(answers) == 1
    outputs.end("a", unread=False)
    assert [answer["ended"] for answer in answers] == [False, True, True, True]
    outputs.read(params("b", 4, 60_000), answers.append)
    assert len(answers) == 4
