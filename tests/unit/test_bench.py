"""The benchmark's arithmetic: turns, percentiles, ratios and targets."""

import pytest

from tests.bench.report import Result, compare, print_table
from tests.bench.rounds import by_turns, percentile


@pytest.mark.parametrize(
    ("share", "wanted"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)]
)
def test_percentiles_are_figures_that_were_measured(share: float, wanted: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == wanted


def test_of_few_figures_the_99th_percentile_is_the_largest() -> None:
    assert percentile([3.0, 9.0, 1.0], 0.99) == 9.0
    assert percentile([7.0], 0.5) == 7.0


async def test_sides_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def side(name: str) -> list[float]:
        order.append(name)
        return [float(len(order))]

    async def first() -> list[float]:
        return side("a")

    async def second() -> list[float]:
        return side("b")

    assert await by_turns(2, first, second) == [[3.0, 5.0], [4.0, 6.0]]
    assert "".join(order) == "ababab"


def test_times_are_compared_by_their_medians() -> None:
    slower = compare("ours", [0.002, 0.003, 0.1], "floor", [0.001, 0.001, 0.001], at_most=3)
    assert slower.ratio == pytest.approx(3)
    assert slower.met
    faster = compare("ours", [0.002], "floor", [0.03], faster=20)
    assert faster.ratio == pytest.approx(15)
    assert faster.met is False


def test_a_row_without_a_target_is_neither_met_nor_missed() -> None:
    assert Result("size", [8.0], "MiB").met is None
    assert Result("size", [8.0], "MiB", target=12).met
    assert Result("size", [13.0], "MiB", target=12).met is False


def test_the_table_shows_figures_ratio_target_and_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(
        [
            compare("exec", [0.002] * 3, "docker exec", [0.06] * 3, faster=20),
            Result("rate", [5.0, 9.0, 7.0], "/s", at_least=True),
        ]
    )
    _, header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["ours", "p50", "p99", "floor", "p50", "p99", "ratio", "target"]
    assert first.split()[-4:] == ["30x", "≥", "20x", "ok"]
    # For a rate, the low end is the bad one.
    assert second.split() == ["rate", "7", "/s", "5", "/s"]
