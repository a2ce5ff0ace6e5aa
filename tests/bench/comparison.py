"""The contenders' figures: one row per operation, as stored, printed and drawn."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.rounds import percentile

OURS = "Paddock"


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of one contender, and its 99th percentile."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, with a figure of each contender that has it.

    `rate` says that more is better; otherwise less is. `intervals` has how sure the ratios are.
    """

    what: str
    unit: str
    figures: Mapping[str, Figure]
    rate: bool = False
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def ratio(self, name: str) -> float | None:
        """How many times better Paddock is than that contender; None if one has no figure."""
        if OURS not in self.figures or name not in self.figures:
            return None
        ours, theirs = self.figures[OURS].p50, self.figures[name].p50
        return ours / theirs if self.rate else theirs / ours

    def interval(self, name: str) -> tuple[float, float]:
        """Where that ratio lies with 95 %; without a stored interval, at the ratio itself.

        Raises: KeyError if there is no such ratio.
        """
        if name in self.intervals:
            return self.intervals[name]
        ratio = self.ratio(name)
        if ratio is None:
            raise KeyError(name)
        return ratio, ratio


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of one run, and why a contender is absent."""

    machine: str
    contenders: Sequence[str]
    rows: Sequence[Row]
    absent: Mapping[str, str]

    def save(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Comparison:
    """Reads what `save` wrote."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        Row(
            row["what"],
            row["unit"],
            {name: Figure(**figure) for name, figure in row["figures"].items()},
            row["rate"],
            {name: (low, high) for name, (low, high) in row.get("intervals", {}).items()},
        )
        for row in stored["rows"]
    ]
    return Comparison(stored["machine"], stored["contenders"], rows, stored["absent"])


def figure(values: Sequence[float], *, scale: float = 1.0, rate: bool = False) -> Figure:
    """Median and 99th percentile, with three significant digits; a rate's bad end is the low."""
    bad = percentile(values, 0.01 if rate else 0.99)
    return Figure(rounded(scale * percentile(values, 0.5)), rounded(scale * bad))


def rounded(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


def table(comparison: Comparison) -> list[list[str]]:
    """A header and the rows as texts: each contender's median, and its ratio to Paddock's."""
    others = [name for name in comparison.contenders if name != OURS]
    header = ["p50 (p99)", OURS, *others]
    lines = [header]
    for row in comparison.rows:
        cells = [f"{row.what}, {row.unit}", _spread(row, OURS)]
        for name in others:
            ratio = row.ratio(name)
            times = "" if ratio is None else f" · {ratio:.2g}x"
            cells.append(_spread(row, name) + times)
        lines.append(cells)
    return lines


def _spread(row: Row, name: str) -> str:
    if name not in row.figures:
        return "-"
    value = row.figures[name]
    if value.p50 == value.p99:
        return number(value.p50)
    return f"{number(value.p50)} ({number(value.p99)})"


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
