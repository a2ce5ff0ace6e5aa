"""The benchmark beside peers: order, intervals, CPU accounts and the check, without measuring."""

import argparse
import asyncio
import io
import json
import threading
from pathlib import Path
from random import Random

import pytest

from tests.bench import __main__ as command
from tests.bench import comparison
from tests.bench.comparison import Comparison, Figure, Row
from tests.bench.peers import check, creation, driver, measuring, worker
from tests.bench.peers.accounting import Process, parse_stat, used_ticks
from tests.bench.peers.creation import Life
from tests.bench.peers.interval import ratio_interval
from tests.bench.peers.turns import Turn, cpu_of, row
from tests.bench.rounds import by_turns

LIMIT = 30


async def orders(seed: int | None) -> list[str]:
    said: list[str] = []

    async def turn(name: str) -> str:
        said.append(name)
        return name

    sides = [lambda name=name: turn(name) for name in "abcd"]
    kept = await by_turns(20, sides, None if seed is None else Random(seed))
    # Whatever the order, each side's turns are its own.
    assert kept == [[name] * 20 for name in "abcd"]
    return ["".join(said[first : first + 4]) for first in range(0, len(said), 4)]


async def test_each_round_has_another_order_which_its_seed_gives_again() -> None:
    rounds = await orders(7)
    assert len(rounds) == 21
    assert {"".join(sorted(each)) for each in rounds} == {"abcd"}
    assert len(set(rounds)) > 10
    assert rounds == await orders(7)
    assert rounds != await orders(8)
    assert set(await orders(None)) == {"abcd"}


def test_an_interval_holds_the_ratio_and_is_wider_with_more_noise() -> None:
    noise = Random(1)
    steady = [[noise.gauss(10, 0.1) for _ in range(5)] for _ in range(20)]
    rough = [[noise.gauss(10, 4) for _ in range(5)] for _ in range(20)]
    twice = [[2 * value for value in turn] for turn in steady]
    low, high = ratio_interval(twice, steady, Random(0)) or (0, 0)
    assert low == pytest.approx(2, rel=0.02)
    assert high == pytest.approx(2, rel=0.02)
    low, high = ratio_interval(rough, steady, Random(0)) or (0, 0)
    assert low < 1 < high
    assert high - low > 0.1


def test_a_slow_round_of_both_sides_does_not_widen_the_interval() -> None:
    speeds = [Random(3).choice((1.0, 5.0)) for _ in range(30)]
    ours = [[speed] for speed in speeds]
    theirs = [[3 * speed] for speed in speeds]
    assert ratio_interval(theirs, ours, Random(0)) == (3, 3)


def test_too_few_turns_have_no_interval() -> None:
    assert ratio_interval([[1.0]] * 2, [[1.0]] * 9, Random(0)) is None
    few = row("a", {"Paddock": [[1.0]], "Docker": [[2.0]]})
    assert few.ratio("Docker") == 2
    assert few.intervals == {}


def test_a_row_has_medians_and_the_intervals_of_its_ratios() -> None:
    turns: dict[str, list[list[float]]] = {
        "Paddock": [[0.001, 0.003], [0.002]],
        "Docker": [[0.01], [0.02]],
        "SWE-ReX": [[], []],
    }
    made = row("exec", {name: each * 3 for name, each in turns.items()})
    # Who answered nothing is not there.
    assert made.figures == {"Paddock": Figure(2, 3), "Docker": Figure(10, 20)}
    low, high = made.intervals["Docker"]
    assert low <= 5 <= high
    rates = {"Paddock": [[300.0]] * 3, "Docker": [[100.0]] * 3}
    assert row("rate", rates, unit="/s", scale=1, rate=True).intervals == {"Docker": (3, 3)}


def life(created: float, result: float, removed: float, cpu: float | None = 0.2) -> Life:
    return Life(Turn([created, result], cpu), Turn([removed]))


def test_warm_turns_are_apart_from_cold_ones_and_high_is_beside_a_network() -> None:
    cold = {
        "Paddock, low": [life(0.3, 0.31, 0.1)] * 4,
        "Paddock, medium": [life(0.32, 0.33, 0.11)] * 4,
        "Paddock, high": [life(0.4, 0.41, 0.15)] * 4,
        "Docker": [life(0.2, 0.25, 0.05, 0.1)] * 4,
        "Docker on a bridge": [life(0.3, 0.35, 0.1)] * 4,
        "SWE-ReX": [life(0.7, 0.71, 0.2)] * 4,
        "llm-sandbox": [life(0.25, 0.3, 0.06, None)] * 4,
    }
    warm = {
        "Paddock, low": [life(0.01, 0.02, 0.1)] * 4,
        "Paddock, medium": [life(0.011, 0.021, 0.1)] * 4,
        "Docker": [life(0.21, 0.26, 0.05)] * 4,
    }
    rows = {each.what: each for each in creation.rows(cold, warm)}
    shown = {
        what: {name: figure.p50 for name, figure in each.figures.items()}
        for what, each in rows.items()
    }
    assert shown["create, low"] == {
        **{"Paddock": 300, "Docker": 200, "SWE-ReX": 700, "llm-sandbox": 250}
    }
    assert shown["create, high"] == {"Paddock": 400, "Docker": 300, "SWE-ReX": 700}
    assert shown["create, medium, warm"] == {
        **{"Paddock": 11, "Docker": 210, "SWE-ReX": 700, "llm-sandbox": 250}
    }
    assert shown["create → first result, low, warm"]["Paddock"] == 20
    assert shown["create → first result"]["Docker"] == 250
    assert shown["remove, medium"]["Paddock"] == 110
    assert shown["remove, high"] == {"Paddock": 150, "Docker": 100, "SWE-ReX": 200}
    # One whose processes are elsewhere has no figure.
    assert shown["CPU: create → first result"] == {"Paddock": 200, "Docker": 100, "SWE-ReX": 200}


def test_cpu_is_that_of_several_turns_for_each_operation() -> None:
    turns = [Turn([1.0] * 10, 0.02), Turn([1.0] * 10, 0.04), Turn([], 0.5)] * 2

    def operations(turn: Turn) -> float:
        return len(turn.said)

    ((figure,),) = cpu_of(turns, operations)
    assert figure == pytest.approx(0.003)
    assert cpu_of([*turns, Turn([1.0], None)], operations) == []
    # Less than a tick says nothing.
    assert cpu_of([Turn([1.0], 0.0)] * 4, operations) == []


def test_a_process_is_read_whatever_its_name() -> None:
    fields = "S 7 1 1 0 -1 4194304 1 2 3 4 10 20 300 4000 20 0 1 0 99"
    assert parse_stat(f"42 (a) b (c) {fields}") == Process(7, "a) b (c", 4330)


def test_each_process_of_a_contender_counts_once() -> None:
    table = {
        1: Process(0, "init", 1),
        10: Process(1, "dockerd", 20),
        11: Process(10, "containerd", 300),
        12: Process(1, "containerd-shim", 4_000),
        13: Process(12, "sleep", 50_000),
        14: Process(13, "true", 600_000),
        15: Process(1, "other", 7_000_000),
    }
    assert used_ticks(table, [10, 11], []) == 320
    assert used_ticks(table, [10, 11, 12], [12, 13, 99]) == 654_320


def stored(ratio: float, spread: float, *, rate: bool = False, what: str = "exec") -> Comparison:
    """One in which Docker's figure makes Paddock that many times better."""
    docker = Figure(10 / ratio, 1) if rate else Figure(10 * ratio, 1)
    interval = (ratio - spread, ratio + spread)
    made = Row(what, "ms", {"Paddock": Figure(10, 1), "Docker": docker}, rate, {"Docker": interval})
    return Comparison("here", ["Paddock", "Docker"], [made], {})


@pytest.mark.parametrize("rate", [False, True])
@pytest.mark.parametrize(
    ("now", "spread", "before", "spread_before", "is_worse"),
    [
        (1.0, 0.0, 1.0, 0.0, False),
        (0.91, 0.0, 1.0, 0.0, False),
        (0.89, 0.0, 1.0, 0.0, True),
        (2.0, 0.0, 1.0, 0.0, False),
        # Within the noise of one of them.
        (0.8, 0.15, 1.0, 0.0, False),
        (0.8, 0.0, 1.0, 0.15, False),
        (0.7, 0.05, 1.0, 0.15, True),
    ],
)
def test_worse_is_more_than_a_tenth_beyond_the_noise(
    rate: bool, now: float, spread: float, before: float, spread_before: float, is_worse: bool
) -> None:
    verdict = check.check(stored(now, spread, rate=rate), stored(before, spread_before, rate=rate))
    assert bool(verdict.worse) is is_worse
    assert verdict.passed is not is_worse


def test_what_got_worse_is_a_table_with_both_figures() -> None:
    verdict = check.check(stored(0.5, 0.0), stored(2.0, 0.1))
    header, found = check.lines(verdict, load=0.4, cores=2)
    assert header.split("  ")[0] == "got worse"
    assert " ".join(found.split()) == "exec Docker 2x (1.9 to 2.1) 0.5x (0.5 to 0.5) 10 ms 10 ms"


def test_a_busy_machine_is_named() -> None:
    verdict = check.check(stored(1.0, 0.0), stored(1.0, 0.0))
    assert [*check.lines(verdict, load=1.0, cores=2)] == [
        "none of 1 ratios got worse by more than a tenth"
    ]
    *_, note = check.lines(verdict, load=1.1, cores=2)
    assert "too busy to say for sure (load before 1.1 on 2 cores)" in note


def test_what_was_not_measured_is_named_and_nothing_at_all_does_not_pass() -> None:
    before = stored(1.0, 0.0)
    verdict = check.check(stored(1.0, 0.0, what="other"), before)
    assert not verdict.passed
    assert [*check.lines(verdict, load=0, cores=2)] == [
        "nothing could be compared with the stored figures",
        "not measured, or too rarely: exec, Docker",
    ]
    both = Comparison("", before.contenders, [*before.rows, *stored(1, 0, what="other").rows], {})
    verdict = check.check(before, both)
    assert verdict.passed
    assert verdict.absent == ["other, Docker"]


def test_stored_figures_without_intervals_are_compared_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "stored.json"
    stored(1.0, 0.2).save(path)
    assert comparison.load(path) == stored(1.0, 0.2)
    old = json.loads(path.read_text())
    del old["rows"][0]["intervals"]
    path.write_text(json.dumps(old))
    assert comparison.load(path).rows[0].interval("Docker") == (1, 1)
    # In this run, they are needed.
    assert check.check(comparison.load(path), stored(1.0, 0.2)).compared == 0
    assert check.check(stored(0.8, 0.0), comparison.load(path)).worse


@pytest.mark.parametrize(("ratio", "status"), [(1.0, 0), (0.5, 1)])
def test_the_command_fails_if_a_ratio_got_worse(
    ratio: float,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "performance.json"
    stored(1.0, 0.0).save(path)
    monkeypatch.setattr(command, "MEASURED", path)

    async def compare(*_: object) -> Comparison:
        return stored(ratio, 0.0)

    monkeypatch.setattr(measuring, "compare", compare)

    async def bench(arguments: argparse.Namespace) -> bool:
        assert arguments.check
        return await command._beside_peers(None, None, "here", arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "bench", bench)
    monkeypatch.setattr("sys.argv", ["bench", "peers", "--check", "--seed", "7"])
    assert command.main() == status
    said = capsys.readouterr().out
    assert "seed 7" in said
    assert ("got worse  " in said) is (status == 1)


def test_a_check_needs_the_peers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "floors", "--check"])
    with pytest.raises(SystemExit):
        command.main()
    assert "--check compares the peers" in capsys.readouterr().err


class Together:
    """A sandbox whose commands block a thread until all of them have begun."""

    container = "c"

    def __init__(self) -> None:
        self._all = threading.Barrier(driver.AT_ONCE)

    async def run(self, program: str) -> None:
        if program == "true":
            await asyncio.to_thread(self._all.wait, LIMIT)

    async def close(self) -> None:
        pass


class TogetherDriver:
    def __init__(self, options: driver.Options) -> None:
        pass

    async def create(self) -> Together:
        return Together()

    async def close(self) -> None:
        pass


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "paddock_driver"
    monkeypatch.setitem(worker.DRIVERS, "together", (module, "TogetherDriver"))
    monkeypatch.setattr(f"tests.bench.peers.{module}.TogetherDriver", TogetherDriver, raising=False)


@pytest.mark.usefixtures("together")
async def test_a_peer_has_a_thread_for_each_command_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = [
        {"operation": "create"},
        {"operation": "run_at_once", "in_flight": driver.AT_ONCE, "seconds": 0.0},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in asked)
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    # As on a machine with few cores, where the loop has fewer threads.
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    said = io.StringIO()
    await worker.serve("together", driver.Options("image"), said)
    created, ran = map(json.loads, said.getvalue().splitlines())
    first, result = created["result"]
    assert first <= result
    done, seconds = ran["result"]
    assert done == driver.AT_ONCE
    assert seconds > 0
