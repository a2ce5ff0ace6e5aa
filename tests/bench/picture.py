"""Draws the comparison as an SVG picture that can be read on light and on dark pages."""

from collections.abc import Iterator
from html import escape

from tests.bench.comparison import OURS, Comparison, Row, number

_WIDTH, _COLUMNS, _GAP = 860, 2, 40
_PANEL = (_WIDTH - _GAP) // _COLUMNS
_NAME, _VALUE = 84, 62  # the widths of a contender's name and of its figure
_BAR, _STEP, _TITLE, _BELOW = 12, 18, 22, 16
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #424a53 }
.title { font-weight: 600 }
.ours { fill: #0969da }
.other { fill: #8c959f }
text.ours { font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #c9d1d9 }
.ours { fill: #58a6ff }
.other { fill: #6e7681 }
}
"""


def draw(comparison: Comparison) -> str:
    """One panel per row; each has its own scale, from 0 to its largest figure."""
    panels: list[str] = []
    whole = 0
    for first in range(0, len(comparison.rows), _COLUMNS):
        line = comparison.rows[first : first + _COLUMNS]
        for column, row in enumerate(line):
            panels += [
                f'<g transform="translate({column * (_PANEL + _GAP)},{whole})">',
                *_panel(row, comparison),
                "</g>",
            ]
        whole += _TITLE + max(len(row.figures) for row in line) * _STEP + _BELOW
    body = "\n".join(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {whole}" '
        f'role="img" aria-label="Paddock beside {escape(_others(comparison))}">\n'
        f"<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _others(comparison: Comparison) -> str:
    return ", ".join(name for name in comparison.contenders if name != OURS)


def _panel(row: Row, comparison: Comparison) -> Iterator[str]:
    better = "more is better" if row.rate else "less is better"
    title = f"{row.what.replace('`', '')} ({row.unit}, {better})"
    yield f'<text class="title" x="0" y="13">{escape(title)}</text>'
    largest = max(figure.p50 for figure in row.figures.values())
    present = [name for name in comparison.contenders if name in row.figures]
    for place, name in enumerate(present):
        top = _TITLE + place * _STEP
        kind = "ours" if name == OURS else "other"
        yield _text(name, 0, top, kind)
        found = row.figures[name]
        width = max(1.0, (_PANEL - _NAME - _VALUE) * found.p50 / largest)
        yield (
            f'<rect class="{kind}" x="{_NAME}" y="{top}" width="{width:.1f}" height="{_BAR}" '
            f'rx="2"/>'
        )
        yield _text(number(found.p50), _NAME + width + 6, top, kind)


def _text(text: str, left: float, top: int, kind: str) -> str:
    # Only ours is coloured; the other texts have the page's colour.
    attribute = ' class="ours"' if kind == "ours" else ""
    return f'<text{attribute} x="{left:.1f}" y="{top + _BAR - 2}">{escape(text)}</text>'
