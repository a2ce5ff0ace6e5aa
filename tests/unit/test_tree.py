"""Whatever a guard reports, in any order, only its own command ends."""

import os
import signal
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import Loop
from sandbox_agent.enforce import guard_messages, processes, standstill, strays, tree
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.guard_messages import Denied, Ended, Failed, Gone, Outrun, Step
from sandbox_agent.enforce.tree import Tree

PLAN = Plan("ls", ["ls", "a", "b"], {}, ".", [("a", True), ("b", True)], "/workspace")
WELL = Ended(0, 1000, 4096, left=False, full=False)
LEFT = WELL._replace(left=True)


class Sayings:
    """A guard that sends the given messages, then closes its connection."""

    def __init__(self, *messages: bytes) -> None:
        self.socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid, self.uid, self.processes = 12345, 54321, 64
        self.meter = Meter()
        self.searches = self.closed = False
        self.killed = False
        self.told_stopping = 0
        self.orders: list[bytes] = []
        self._messages = [*messages, b""]

    def prepare(self, _work_id: str, _plan: Plan, _pipes: Pipes) -> None:
        pass

    def go(self) -> None:
        pass

    def receive(self) -> bytes:
        return self._messages.pop(0)

    def refused(self, _path: str, *, changed: bool) -> None:
        pass

    def stopping(self) -> None:
        self.told_stopping += 1

    def order(self, kind: bytes) -> bool:
        self.orders.append(kind)
        return True

    def kill(self, on_end: Callable[[], None]) -> None:
        self.killed = True
        self.close()
        on_end()

    def close(self) -> None:
        self.socket.close()
        self._theirs.close()


@pytest.fixture(autouse=True)
def swept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The users whose stray processes were ended."""
    users: list[int] = []

    def end(_loop: Loop, uid: int, on_gone: Callable[[], None]) -> None:
        users.append(uid)
        on_gone()

    monkeypatch.setattr(strays, "end", end)
    return users


def played(*messages: bytes) -> tuple[Tree, Sayings, list[str]]:
    """Runs the tree of a guard that sends the messages; also returns what its owner received."""
    guard, told = Sayings(*messages), list[str]()
    made = Tree(
        Loop(),
        cast(Guard, guard),
        "c1",
        PLAN,
        Pipes(0, 1, 2),
        lambda: told.append("left"),
        lambda: told.append("gone"),
    )
    made.go()
    made._on_guard()
    guard.close()
    return made, guard, told


def said(*reports: Any) -> list[bytes]:
    return [guard_messages.report(each) for each in reports]


@pytest.mark.parametrize(
    ("reports", "told", "exit_code", "reason"),
    [
        ([WELL], ["gone"], 0, None),
        ([LEFT, Gone(3)], ["left", "gone"], 0, None),
        ([Failed(Step.PROGRAM, 2), WELL._replace(status=127 << 8)], ["gone"], 127, None),
        ([Failed(Step.START, 11), WELL], ["gone"], 126, "pids"),
        ([Failed(Step.START, 12), WELL], ["gone"], 126, "oom"),
        ([Denied(1), WELL._replace(status=127 << 8)], ["gone"], 127, None),
    ],
)
def test_what_guards_say(
    reports: list[Any], told: list[str], exit_code: int, reason: str | None
) -> None:
    made, guard, heard = played(*said(*reports))
    assert heard == told
    assert not guard.killed
    result = made.result()
    assert (result["exit_code"], result["reason"]) == (exit_code, reason)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [b"nonsense"],
        [b"E1 2 3"],
        said(Gone(0)),
        said(Denied(2)),
        said(Failed(Step.START, 11), Gone(1)),
    ],
)
def test_a_guard_that_fails_costs_its_command(messages: list[bytes], swept: list[int]) -> None:
    made, guard, told = played(*messages)
    assert told == ["gone"]
    assert guard.killed
    assert swept == [guard.uid]
    assert made.lost
    assert made.result()["reason"] == tree.LOST
    if not messages or made.failure is None:
        assert made.result()["signal"] == "SIGKILL"
    # The command is over, so further orders have no effect.
    made.kill("late")
    assert made.cancel("late") is False or guard.orders


@pytest.mark.parametrize("second", [[LEFT], [Failed(Step.START, 2)], [Denied(0)], [WELL]])
def test_after_the_first_process_only_the_end_can_come(second: list[Any]) -> None:
    made, guard, told = played(*said(LEFT, *second))
    assert told == ["left", "gone"]
    assert guard.killed
    assert made.result()["reason"] == tree.LOST
    assert made.result()["exit_code"] == 0


def test_why_it_was_cancelled_stays_the_reason() -> None:
    guard = Sayings()
    made = Tree(Loop(), cast(Guard, guard), "c1", PLAN, Pipes(0, 1, 2), lambda: None, lambda: None)
    made.cancel("timeout")
    made._on_guard()
    assert made.result()["reason"] == "timeout"
    assert made.lost


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda made: made.cancel("timeout"), 1),
        (lambda made: made.kill("budget"), 1),
        (lambda made: made.kill(), 0),
    ],
)
def test_what_is_ended_is_told_before_its_signal(end: Callable[[Tree], object], told: int) -> None:
    """Not what outlives its first process: that is no stop."""
    guard = Sayings()
    made = Tree(Loop(), cast(Guard, guard), "c1", PLAN, Pipes(0, 1, 2), lambda: None, lambda: None)
    end(made)
    assert (guard.told_stopping, len(guard.orders)) == (told, 1)
    made.drop()


NUMBERS = st.integers(0, 2**64)
MESSAGES = st.one_of(
    st.binary(max_size=40),
    st.from_regex(rb"[XDEOGL][0-9 ]{0,30}", fullmatch=True),
    st.builds(Failed, st.sampled_from(Step), st.integers(1, 4095)).map(guard_messages.report),
    st.builds(Denied, st.integers(0, 3)).map(guard_messages.report),
    st.builds(Ended, st.integers(0, 0xFFFF), NUMBERS, NUMBERS, st.booleans(), st.booleans()).map(
        guard_messages.report
    ),
    st.builds(Outrun, NUMBERS).map(guard_messages.report),
    st.builds(Gone, NUMBERS).map(guard_messages.report),
)


@given(st.lists(MESSAGES, max_size=6))
def test_any_messages_in_any_order_end_it_once(messages: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strays, "end", lambda _loop, _uid, on_gone: on_gone())
        patch.setattr(standstill, "end", lambda _uid, _root: True)
        made, guard, told = played(*messages)
    assert told in (["gone"], ["left", "gone"])
    assert made.gone
    assert guard.killed == made.lost
    assert isinstance(made.result()["exit_code"], int)


def test_what_a_guard_cannot_end_is_ended_while_all_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Again and again until nothing is left."""
    asked: list[tuple[int, int]] = []
    loop = Loop()

    def end(uid: int, root: int) -> bool:
        asked.append((uid, root))
        if len(asked) == 2:
            loop.stop()
        return len(asked) == 2

    monkeypatch.setattr(standstill, "end", end)
    guard = Sayings()
    made = Tree(
        *(loop, cast("Guard", guard), "c1", PLAN, Pipes(0, 1, 2)), lambda: None, lambda: None
    )
    for message in (LEFT, Outrun(250)):
        made._on_report(guard_messages.report(message))
    loop.run()
    assert asked == [(54321, 12345)] * 2
    assert not made.gone
    guard.close()


@pytest.mark.parametrize(
    ("searches", "running", "ways"),
    [(True, 500, ["TERM", "end"]), (True, 5, []), (False, 500, [])],
)
def test_among_many_processes_no_guard_searches_for_its_own(
    monkeypatch: pytest.MonkeyPatch, searches: bool, running: int, ways: list[str]
) -> None:
    """The agent signals the tree while all stand still: among so many, a search takes seconds."""
    done: list[str] = []
    monkeypatch.setattr(standstill, "send", lambda *to: done.append(signal.Signals(to[2]).name[3:]))
    monkeypatch.setattr(standstill, "end", lambda *_to: done.append("end"))
    guard = Sayings()
    guard.searches = searches
    monkeypatch.setattr(guard.meter, "running", lambda: running)
    made = Tree(
        *(Loop(), cast("Guard", guard), "c1", PLAN, Pipes(0, 1, 2)), lambda: None, lambda: None
    )
    assert made.cancel("over")
    made.kill()
    assert done == ways
    terminated = [] if ways else [guard_messages.TERM]
    assert guard.orders == [*terminated, guard_messages.KILL]  # which reports when all is gone
    guard.close()


# What a guard leaves


class Processes:
    """Processes below the agent, some of which can't be killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rounds: list[set[int]]) -> None:
        self.rounds = rounds
        self.ended: list[tuple[int, int, set[int]]] = []
        self.known: Any = None
        monkeypatch.setattr(processes, "below", self._below)
        monkeypatch.setattr(standstill, "end", self._end)

    def _below(self, root: int, but: Any) -> list[int]:
        assert root == os.getpid()
        self.known = set(but)
        return sorted(self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0])

    def _end(self, uid: int, root: int, but: Any) -> bool:
        self.ended.append((uid, root, set(but)))
        return True


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, swept: list[int]) -> pytest.MonkeyPatch:
    monkeypatch.undo()
    return monkeypatch


def test_strays_are_killed_as_long_as_there_are_further_ones(real: pytest.MonkeyPatch) -> None:
    there = Processes(real, [{5, 6}, {6, 7}, {7}, {8}, set()])
    loop, gone = Loop(), list[bool]()
    loop.on_exit(99, lambda: None)

    def on_gone() -> None:
        gone.append(True)
        loop.stop()

    strays.end(loop, 54321, on_gone)
    assert not gone
    loop.run()
    assert gone == [True]
    assert there.known == {99}
    assert there.ended == [(54321, os.getpid(), {99})] * 2


def test_a_stray_that_can_not_be_ended_ends_the_sandbox(real: pytest.MonkeyPatch) -> None:
    Processes(real, [{5}])
    real.setattr(strays, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(SystemExit, match="can't be ended"):
        strays.end(Loop(), 54321, lambda: None)


def test_one_clean_look_is_not_enough(real: pytest.MonkeyPatch) -> None:
    """A process that one look misses is found by the next look."""
    there = Processes(real, [set(), set(), {5}, {5}, set()])
    loop = Loop()
    strays.end(loop, 54321, loop.stop)
    loop.run()
    assert len(there.ended) == 1
