"""Whether Paddock became worse beside the others than in the stored comparison."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.bench.comparison import OURS, Comparison, Row, number

TOLERATED = 0.1
RULE = (
    "A ratio says how many times better Paddock's median is than another's, with a 95 % interval "
    "(bootstrap over the rounds). It is worse if the interval of this run lies entirely below nine "
    "tenths of the stored interval."
)
# A machine with more to do than this, for each core, disturbs small differences.
QUIET_LOAD = 0.5


class Worse(NamedTuple):
    """A ratio that got worse by more than a tenth, beyond the noise of both runs."""

    row: Row
    stored: Row
    name: str


class Verdict(NamedTuple):
    """What a check found: how many ratios it compared, which are worse, which it lacked.

    A ratio is lacking if it was not measured, or in too few rounds to have an interval.
    """

    compared: int
    worse: Sequence[Worse]
    absent: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether nothing is worse; where nothing could be compared, that is not known."""
        return self.compared > 0 and not self.worse


def check(measured: Comparison, stored: Comparison) -> Verdict:
    """Compares the ratios that both comparisons have."""
    now = {(row.what, row.unit): row for row in measured.rows}
    compared, worse, absent = 0, [], []
    for before in stored.rows:
        after = now.get((before.what, before.unit))
        for name in before.figures:
            if before.ratio(name) is None or name == OURS:
                continue
            if after is None or name not in after.intervals:
                absent.append(f"{before.what}, {name}")
                continue
            compared += 1
            if _is_worse(after, before, name):
                worse.append(Worse(after, before, name))
    return Verdict(compared, worse, absent)


def _is_worse(after: Row, before: Row, name: str) -> bool:
    _, highest = after.interval(name)
    lowest, _ = before.interval(name)
    return highest < (1 - TOLERATED) * lowest


def lines(verdict: Verdict, load: float, cores: int) -> Iterator[str]:
    """What was found, for people: a table of what got worse, and how far it can be trusted."""
    if verdict.worse:
        yield from _table(verdict.worse)
    elif verdict.compared:
        yield f"none of {verdict.compared} ratios got worse by more than a tenth"
    else:
        yield "nothing could be compared with the stored figures"
    if verdict.absent:
        yield f"not measured, or too rarely: {'; '.join(verdict.absent)}"
    if load > QUIET_LOAD * cores:
        yield (
            f"the machine was too busy to say for sure (load before {load:.1f} on {cores} cores): "
            "repeat it on a quiet one"
        )


def _table(worse: Sequence[Worse]) -> Iterator[str]:
    header = ("got worse", "beside", "stored", "now", "ours, stored", "ours, now")
    rows = [header, *map(_cells, worse)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _cells(worse: Worse) -> tuple[str, ...]:
    row, stored, name = worse
    return (
        row.what,
        name,
        _ratio(stored, name),
        _ratio(row, name),
        f"{number(stored.figures[OURS].p50)} {stored.unit}",
        f"{number(row.figures[OURS].p50)} {row.unit}",
    )


def _ratio(row: Row, name: str) -> str:
    ratio = f"{row.ratio(name) or 0:.3g}x"
    if name not in row.intervals:
        return ratio
    low, high = row.interval(name)
    return f"{ratio} ({low:.3g} to {high:.3g})"
