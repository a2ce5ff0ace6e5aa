"""The benchmark's arithmetic, tables and picture, without measuring."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from scripts.docs import MEASURED, PICTURE
from tests.bench import comparison, recovery
from tests.bench.comparison import Comparison, Figure, Row
from tests.bench.peers import environment, installed
from tests.bench.picture import draw
from tests.bench.report import Result, compare, print_comparison, print_table
from tests.bench.rounds import alternating, percentile


@pytest.mark.parametrize(
    ("share", "wanted"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)]
)
def test_percentiles_are_figures_that_were_measured(share: float, wanted: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == wanted


def test_of_few_figures_the_99th_percentile_is_the_largest() -> None:
    assert percentile([3.0, 9.0, 1.0], 0.99) == 9.0
    assert percentile([7.0], 0.5) == 7.0


async def test_sides_alternate_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def side(name: str) -> list[float]:
        order.append(name)
        return [float(len(order))]

    async def first() -> list[float]:
        return side("a")

    async def second() -> list[float]:
        return side("b")

    assert await alternating(2, first, second) == [[3.0, 5.0], [4.0, 6.0]]
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


COMPARISON = Comparison(
    machine="2 cores",
    contenders=["Paddock", "Docker", "Other"],
    rows=[
        Row("exec `true`", "ms", {"Paddock": Figure(8.0, 12.0), "Docker": Figure(72.0, 150.0)}),
        Row("per second", "/s", {"Paddock": Figure(300.0, 300.0), "Other": Figure(150.0, 1)}, True),
    ],
    absent={"Peer": "it can't be installed"},
)


def test_a_ratio_says_how_many_times_better_paddock_is() -> None:
    command, rate = COMPARISON.rows
    assert command.ratio("Docker") == 9
    assert rate.ratio("Other") == 2
    assert command.ratio("Other") is None


def test_figures_keep_three_digits_and_the_bad_end() -> None:
    times = [0.0012345, 0.0023456, 0.5]
    assert comparison.figure(times, scale=1000) == Figure(2.35, 500)
    assert comparison.figure([100.0, 300.0, 200.0], rate=True) == Figure(200, 100)


def test_a_stored_comparison_is_read_back(tmp_path: Path) -> None:
    COMPARISON.save(tmp_path / "stored.json")
    assert comparison.load(tmp_path / "stored.json") == COMPARISON


def test_the_comparison_shows_what_is_absent_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(COMPARISON)
    _, header, command, rate, absent = capsys.readouterr().out.splitlines()
    assert header.split() == ["p50", "(p99)", "Paddock", "Docker", "Other"]
    assert command.split()[3:] == ["8", "(12)", "72", "(150)", "·", "9x", "-"]
    assert rate.split()[2:] == ["/s", "300", "-", "150", "(1)", "·", "2x"]
    assert absent == "Peer: it can't be installed"


def test_the_picture_has_a_bar_for_each_figure() -> None:
    drawn = ET.fromstring(draw(COMPARISON))
    bars = [each for each in drawn.iter() if each.tag.endswith("}rect")]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert len(widths) == 4
    assert widths[1] == pytest.approx(9 * widths[0], rel=0.02)
    assert widths[2] == pytest.approx(2 * widths[3], rel=0.02)


def test_the_picture_in_the_documents_is_of_the_stored_figures() -> None:
    assert PICTURE.read_text() == draw(comparison.load(MEASURED))


def test_without_pypi_paddock_and_the_engine_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> Path:
        raise environment.PeersError("no answer")

    monkeypatch.setattr(environment, "python", unreachable)
    found, absent = installed.install("image")
    assert [*found] == ["Paddock", "Docker"]
    assert absent == {"SWE-ReX": "no answer", "llm-sandbox": "no answer"}


def test_recoveries_are_a_table() -> None:
    found = [recovery.Recovered(100, 1163.0, 1702.0, 7061.0, 5000.0)]
    assert list(recovery.lines(found)) == [
        "| sessions | recovery | slowest | start | target |",
        "|---------:|---------:|--------:|------:|-------:|",
        "|      100 |     1163 |    1702 |  7061 |   5000 |",
    ]
