"""The results as tables."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.comparison import Comparison, table
from tests.bench.rounds import percentile

_GREEN, _RED, _DIM = "32", "31", "2"
_HEADER = ("ours", "p50", "p99", "floor", "p50", "p99", "ratio", "target", "")


@dataclass(frozen=True, slots=True)
class Result:
    """One row: one of our figures, usually with a floor.

    `ratio` and `target` refer to p50; a target of None means that there is none.
    """

    what: str
    figures: Sequence[float]
    unit: str
    floor: str = ""
    floor_figures: Sequence[float] = ()
    ratio: float | None = None
    target: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        value = percentile(self.figures, 0.5) if self.ratio is None else self.ratio
        return value >= self.target if self.at_least else value <= self.target

    def cells(self) -> list[str]:
        """The row's texts."""
        sign = "" if self.ratio is None else "x"
        bound = "≥" if self.at_least else "≤"
        unit = "" if self.ratio is not None else f" {self.unit}"
        return [
            self.what,
            *self._spread(self.figures),
            self.floor,
            *self._spread(self.floor_figures),
            "" if self.ratio is None else f"{self.ratio:.3g}x",
            "" if self.target is None else f"{bound} {self.target:g}{sign}{unit}",
            {True: "ok", False: "missed", None: ""}[self.met],
        ]

    def _spread(self, figures: Sequence[float]) -> tuple[str, str]:
        if not figures:
            return "", ""
        # For a rate, the bad end is the low one.
        bad = 0.01 if self.at_least and self.unit.endswith("/s") else 0.99
        most = "" if len(figures) == 1 else f"{percentile(figures, bad):.3g} {self.unit}"
        return f"{percentile(figures, 0.5):.3g} {self.unit}", most


def compare(
    what: str,
    seconds: Sequence[float],
    floor: str,
    floor_seconds: Sequence[float],
    *,
    at_most: float | None = None,
    faster: float | None = None,
) -> Result:
    """Compares times with a floor's: at most `at_most` times as long, or `faster` times as fast."""
    ours, theirs = percentile(seconds, 0.5), percentile(floor_seconds, 0.5)
    return Result(
        what,
        [1000 * value for value in seconds],
        "ms",
        floor,
        [1000 * value for value in floor_seconds],
        ratio=theirs / ours if faster is not None else ours / theirs,
        target=at_most if faster is None else faster,
        at_least=faster is not None,
    )


def print_table(results: Sequence[Result]) -> None:
    """All rows, with columns as wide as needed."""
    rows = [list(_HEADER), *(result.cells() for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for number, row in enumerate(rows):
        texts = [
            text.ljust(width) if column in (0, 3) else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(texts[:-1])
        verdict = _paint(row[-1], _GREEN if row[-1] == "ok" else _RED)
        print(_paint(line, _DIM) if number == 0 else f"{line}  {verdict}".rstrip())


def print_comparison(comparison: Comparison) -> None:
    """The contenders beside each other; `2x` says that Paddock is twice as good."""
    rows = table(comparison)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for number, row in enumerate(rows):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        print(_paint(line.rstrip(), _DIM) if number == 0 else line.rstrip())
    for name, reason in comparison.absent.items():
        print(_paint(f"{name}: {reason}", _RED))


def _paint(text: str, colour: str) -> str:
    if not text or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{colour}m{text}\033[0m"
