"""Processes that execute a program are checked again soon afterwards."""

import pytest

from sandbox_agent.core.loop import Loop
from sandbox_agent.enforce import second_look
from sandbox_agent.enforce.caller import NOT_KNOWN, Process, Program
from sandbox_agent.enforce.second_look import Expected, SecondLooks

BEFORE, AFTER, OTHER = (Program(f"/{n}", frozenset([(0, n)])) for n in (1, 2, 3))


class Sandbox:
    """Processes, the programs that they run, and the reported executions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        self.loop = Loop()
        self.runs: dict[Process, Program] = {}
        self.looked: list[Process] = []
        self.told: list[tuple[str, str]] = []
        self.looks = SecondLooks(
            self.loop, self._look, lambda it, runs: self.told.append((it.path, runs.path))
        )

    def _look(self, process: Process) -> Program | None:
        self.looked.append(process)
        return self.runs.get(process)

    def expect(self, number: int, runs: Program | None) -> None:
        process = Process(number, 0)
        if runs is not None:
            self.runs[process] = runs
        images = BEFORE.images or frozenset(), AFTER.images or frozenset()
        self.looks.expect(process, Expected("c1", f"/path/{number}", *images))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.loop._run_timers()


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    return Sandbox(monkeypatch)


def test_what_runs_something_else_is_told(sandbox: Sandbox) -> None:
    for number, runs in enumerate((OTHER, AFTER, None, NOT_KNOWN, BEFORE)):
        sandbox.expect(number, runs)
    assert sandbox.looked == []
    sandbox.wait(0.005)
    assert sandbox.told == [("/path/0", "/3")]
    for _ in range(10):
        sandbox.wait(100)
    # A process that still runs the earlier program is checked repeatedly, but not forever.
    assert len(sandbox.looked) == 8
    assert sandbox.told == [("/path/0", "/3")]


def test_what_took_its_time_is_told_the_second_time(sandbox: Sandbox) -> None:
    sandbox.expect(1, BEFORE)
    sandbox.wait(0.005)
    assert sandbox.told == []
    sandbox.runs[Process(1, 0)] = OTHER
    sandbox.wait(0.05)
    assert sandbox.told == [("/path/1", "/3")]


def test_a_later_call_of_a_process_counts(sandbox: Sandbox) -> None:
    sandbox.expect(1, OTHER)
    sandbox.expect(1, AFTER)
    sandbox.wait(0.005)
    assert (len(sandbox.looked), sandbox.told) == (1, [])


def test_what_it_was_to_execute_before_counts_no_more(sandbox: Sandbox) -> None:
    """The process was slow with one program, and fast with the next."""
    sandbox.expect(1, BEFORE)
    sandbox.wait(0.005)
    process, images = Process(1, 0), (AFTER.images or frozenset(), OTHER.images or frozenset())
    sandbox.looks.expect(process, Expected("c1", "/next", *images))
    sandbox.runs[process] = OTHER
    for _ in range(10):
        sandbox.wait(100)
    assert (len(sandbox.looked), sandbox.told) == (2, [])


def test_one_timer_is_enough_for_a_process_that_asks_again_and_again(sandbox: Sandbox) -> None:
    for _ in range(100):
        sandbox.expect(1, BEFORE)
    assert len(sandbox.loop._timers) == 1


def test_what_waits_is_bounded(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_look, "_MOST_WAITING", 10)
    for number in range(100):
        sandbox.expect(number, OTHER)
    assert len(sandbox.loop._timers) == 1
    sandbox.wait(1)
    assert len(sandbox.told) == 10
