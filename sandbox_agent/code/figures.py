"""Figures of matplotlib: as a picture, and as data."""

import base64
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

from sandbox_agent.code.channel import Parts
from sandbox_agent.decide.code_frames import CHART_TYPE

# The points of a figure that are sent as data.
MOST_POINTS = 10_000


def of_value(value: object) -> Parts | None:
    """The parts of a value that is a figure."""
    return _parts(value) if _is_figure(value) else None


def chart_of_value(value: object) -> str | None:
    """What a value shows as JSON, if it is a figure."""
    return chart_of(value) if _is_figure(value) else None


def _is_figure(value: object) -> bool:
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


def open_figures() -> Iterator[Parts]:
    """The figures that a cell has left open, which are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        parts = _parts(figure)
        pyplot.close(figure)
        yield parts


def close_all() -> None:
    """Closes the figures of a cell that failed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def _parts(figure: Any) -> Parts:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", bbox_inches="tight")
    parts = {
        "text/plain": repr(figure),
        "image/png": base64.b64encode(drawn.getvalue()).decode(),
    }
    chart = chart_of(figure)
    return parts if chart is None else {**parts, CHART_TYPE: chart}


def chart_of(figure: Any) -> str | None:
    """What the figure shows as JSON: its axes with their lines, bars, points and slices."""
    try:
        axes = [_axes(each) for each in figure.axes]
        text = json.dumps({"axes": axes}, allow_nan=False, default=str)
    except (TypeError, ValueError, AttributeError):  # nothing that has such data
        return None
    points = sum(len(each["x"]) for one in axes for each in one["elements"])
    return text if 0 < points <= MOST_POINTS else None


def _axes(axes: Any) -> dict[str, Any]:
    return {
        "title": axes.get_title(),
        "x_label": axes.get_xlabel(),
        "y_label": axes.get_ylabel(),
        "x_scale": axes.get_xscale(),
        "y_scale": axes.get_yscale(),
        "elements": [*_lines(axes), *_bars(axes), *_points(axes), *_slices(axes)],
    }


def _lines(axes: Any) -> Iterator[dict[str, Any]]:
    for line in axes.get_lines():
        yield _element("line", line.get_label(), line.get_xdata(), line.get_ydata())


def _bars(axes: Any) -> Iterator[dict[str, Any]]:
    if not axes.containers:
        return
    names = [text.get_text() for text in axes.get_xticklabels()]
    ticks = list(axes.get_xticks())
    for container in axes.containers:
        bars = list(getattr(container, "patches", ()))
        middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        named = [names[ticks.index(at)] if at in ticks else at for at in middles]
        yield _element("bar", container.get_label(), named, [bar.get_height() for bar in bars])


def _points(axes: Any) -> Iterator[dict[str, Any]]:
    for collection in axes.collections:
        places = collection.get_offsets()
        if type(collection).__name__ == "PathCollection" and len(places):
            yield _element("scatter", collection.get_label(), places[:, 0], places[:, 1])


def _slices(axes: Any) -> Iterator[dict[str, Any]]:
    slices = [each for each in axes.patches if type(each).__name__ == "Wedge"]
    if slices:
        shares = [(each.theta2 - each.theta1) / 360 for each in slices]
        yield _element("pie", "", [each.get_label() for each in slices], shares)


def _element(kind: str, label: str, x: Any, y: Any) -> dict[str, Any]:
    hidden = str(label).startswith("_")  # matplotlib's own names
    return {"type": kind, "label": "" if hidden else str(label), "x": _plain(x), "y": _plain(y)}


def _plain(values: Any) -> list[Any]:
    """Numbers and texts that JSON has; what it has not becomes text or null."""
    return [_number(each) for each in values]


def _number(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if isinstance(value, int | str) else str(value)
