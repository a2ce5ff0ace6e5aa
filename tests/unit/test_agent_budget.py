"""The agent's part of a budget: what its sandbox uses, and when the budget is exceeded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.host.link.messages import parse_event, parse_hello
from sandbox_agent.core.budget import Budget, BudgetError, CpuClock
from sandbox_agent.core.loop import Loop, Timer
from sandbox_agent.core.output import STDOUT, Output
from sandbox_agent.decide.protocol import CPU_BUDGET, OUTPUT_BUDGET, Configuration, Confinement


class Later(Loop):
    """A loop whose timers are fired by the test."""

    def __init__(self) -> None:
        self.waits: list[tuple[float, Timer]] = []

    def after(self, seconds: float, callback: Callable[[], None], *, always: bool = False) -> Timer:
        timer = Timer(seconds, callback, lambda: None, always)
        self.waits.append((seconds, timer))
        return timer

    @property
    def pending(self) -> list[float]:
        return [seconds for seconds, timer in self.waits if timer.pending]

    def fire(self) -> None:
        waits, self.waits = self.waits, []
        for _, timer in waits:
            timer.expire()


class Sandbox:
    """The readings of a fake kernel, and what the budget did with them."""

    def __init__(self, directory: Path, **boot: Any) -> None:
        self.file = directory / "cpuacct.usage"
        self.burn_to(5_000)
        self.loop = Later()
        self.exceeded: list[tuple[str, int, int]] = []
        clock = CpuClock((str(directory / "missing"), str(self.file)))
        self.budget = Budget(self.loop, _boot(**boot), clock, self._on_exceeded)

    def burn_to(self, microseconds: int) -> None:
        self.file.write_text(f"{microseconds * 1000}\n")

    def _on_exceeded(self, *told: Any) -> None:
        self.exceeded.append(told)


def _boot(**members: Any) -> Configuration:
    confinement = Confinement(False, [], [], True, True, False)
    return Configuration(
        **{
            "level": "high",
            "uid": 1000,
            "commands": None,
            "environment": None,
            "confinement": confinement,
            "home": "/workspace",
            "cpus": 2.0,
            "memory_bytes": 2**30,
            "processes": 64,
            "output_bytes": 4096,
            "max_running": 16,
            **members,
        }
    )


def printed(count: int) -> Output:
    output = Output(10, keep_tail=False)
    output.add(STDOUT, b"x" * count)
    return output


def test_cpu_time_counts_from_the_agents_start_on_top_of_what_was_used(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, cpu_used_us=700)
    sandbox.burn_to(5_300)
    assert sandbox.budget.totals() == {"session_cpu_us": 1_000, "session_output_bytes": 0}


def test_cpu_time_of_version_2(tmp_path: Path) -> None:
    file = tmp_path / "cpu.stat"
    file.write_text("usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n")
    assert CpuClock((str(file),)).read() == 1234


def test_it_looks_again_when_nothing_can_be_left(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, cpu_budget_us=4_000_000)
    assert sandbox.loop.pending == []
    sandbox.budget.begin(printed(0))
    assert sandbox.loop.pending == [2.0]  # 4 s on two cores
    sandbox.burn_to(5_000 + 3_000_000)
    sandbox.loop.fire()
    assert sandbox.loop.pending == [0.5]
    sandbox.burn_to(5_000 + 4_000_001)
    sandbox.loop.fire()
    assert sandbox.exceeded == [(CPU_BUDGET, 4_000_000, 4_000_001)]
    assert sandbox.loop.pending == []
    assert not sandbox.budget.admit()
    assert len(sandbox.exceeded) == 1


def test_nothing_is_looked_at_while_nothing_runs(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, cpu_budget_us=4_000_000)
    first, second = printed(0), printed(0)
    sandbox.budget.begin(first)
    sandbox.budget.begin(second)
    sandbox.budget.end(first)
    assert len(sandbox.loop.pending) == 1
    sandbox.budget.end(second)
    assert sandbox.loop.pending == []


def test_without_a_limit_there_is_no_timer(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    sandbox.budget.begin(printed(10**6))
    sandbox.budget.printed()
    assert sandbox.budget.admit()
    assert (sandbox.loop.pending, sandbox.exceeded) == ([], [])


def test_a_sliver_of_cpu_is_not_looked_at_without_end(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, cpu_budget_us=1)
    sandbox.budget.begin(printed(0))
    assert sandbox.loop.pending == [0.05]


def test_what_is_used_up_between_commands_is_found_by_the_next(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, cpu_used_us=400, cpu_budget_us=1_000)
    sandbox.burn_to(5_600)
    assert not sandbox.budget.admit()
    assert sandbox.exceeded == [(CPU_BUDGET, 1_000, 1_000)]


def test_all_of_the_output_may_be_printed_and_no_more(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, output_used_bytes=40, output_budget_bytes=100)
    ended, running = printed(20), printed(40)
    sandbox.budget.begin(ended)
    sandbox.budget.end(ended)
    assert sandbox.budget.admit()
    sandbox.budget.begin(running)
    sandbox.budget.printed()
    assert sandbox.exceeded == []
    running.add(STDOUT, b"y")
    sandbox.budget.printed()
    sandbox.budget.printed()
    assert sandbox.exceeded == [(OUTPUT_BUDGET, 100, 101)]


def test_output_that_is_just_used_up_is_found_by_the_next_command(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, output_budget_bytes=100)
    output = printed(100)
    sandbox.budget.begin(output)
    sandbox.budget.printed()
    sandbox.budget.end(output)
    assert sandbox.exceeded == []
    assert not sandbox.budget.admit()
    assert sandbox.exceeded == [(OUTPUT_BUDGET, 100, 100)]


def test_what_can_not_be_measured_is_not_promised(tmp_path: Path) -> None:
    clock = CpuClock((str(tmp_path / "missing"),))
    with pytest.raises(BudgetError, match="can't be measured"):
        Budget(Later(), _boot(cpu_budget_us=1), clock, lambda *_: None)
    unlimited = Budget(Later(), _boot(), clock, lambda *_: None)
    assert unlimited.totals()["session_cpu_us"] == 0


# What the host believes of the agent's reports


def _event(**members: Any) -> dict[str, Any]:
    return {
        "boot_id": "0" * 16,
        "seq": 1,
        "operation": "budget.exceeded",
        "decision": "deny",
        "rule": None,
        "command_id": None,
        "args": {"kind": "output_bytes", "limit": 1, "consumed": 2},
        "result": None,
        "error": None,
        "duration_ms": 0,
        **members,
    }


@pytest.mark.parametrize(
    "args",
    [
        {"kind": "commands", "consumed": 1},
        {"kind": "time", "consumed": 1},
        {"kind": "cpu_seconds", "consumed": -1},
        {"kind": "cpu_seconds", "consumed": 2**60},
        {"kind": "cpu_seconds", "consumed": "1"},
        {"kind": "cpu_seconds", "consumed": True},
        {"kind": "cpu_seconds"},
        {"kind": ["cpu_seconds"], "consumed": 1},
        {},
    ],
)
def test_reports_without_form_are_refused(args: dict[str, Any]) -> None:
    parse_event(_event())
    with pytest.raises(ValueError, match="must be"):
        parse_event(_event(args=args))


@pytest.mark.parametrize("total", [-1, 1.5, "1", True, None, 2**60])
@pytest.mark.parametrize("name", ["session_cpu_us", "session_output_bytes"])
def test_totals_without_form_are_refused(name: str, total: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an integer|must be short"):
        parse_event(_event(operation="command.exit", args={}, result={name: total}))
    hello = {"boot_id": "0" * 16, "running": [], "finished": [], "terminals": [], "landlock_abi": 7}
    hello["configured"] = True
    assert parse_hello(hello).totals == {}
    with pytest.raises(ValueError, match=f"{name} must be an integer"):
        parse_hello({**hello, name: total})
    assert len(parse_hello({**hello, name: 5}).totals) == 1
