"""Values of cells as texts by their MIME types, as notebooks have them."""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sandbox_agent.code import figures
from sandbox_agent.code.channel import Parts, shortened
from sandbox_agent.decide.code_frames import TABLE_TYPE

PLAIN = "text/plain"
# The methods by which values show themselves, and the types of what these return.
_METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}
# The rows of a table that are sent as data.
MOST_ROWS = 1000


def parts_of(value: object) -> Parts:
    """The value's texts; binary ones in base64."""
    figure = figures.of_value(value)
    if figure is not None:
        return figure
    return {name: text for name, text in _parts(value) if text is not None}


def _parts(value: object) -> Iterator[tuple[str, str | None]]:
    yield PLAIN, shortened(_plain(value))
    if isinstance(value, type):
        return
    bundle = _shown(value, "_repr_mimebundle_")
    bundle = bundle[0] if isinstance(bundle, tuple) and bundle else bundle
    if isinstance(bundle, dict):
        for name, found in bundle.items():
            yield str(name), text_of(found)
    for method, name in _METHODS.items():
        found = _shown(value, method)
        found = found[0] if isinstance(found, tuple) and found else found
        if found is not None:
            yield name, as_json(found) if name == "application/json" else text_of(found)
    yield TABLE_TYPE, table_of(value)


def _shown(value: object, method: str) -> Any:
    """What the value's method returns; None if it has none, or the method fails."""
    show: Callable[[], Any] | None = getattr(type(value), method, None)
    if not callable(show):
        return None
    try:
        return show(value)  # type: ignore[call-arg]
    except Exception:  # noqa: BLE001 - the value's own code; its plain text is left
        return None


def _plain(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - the value's own code can do anything
        return f"<the value can't be shown: {type(error).__name__}>"


def text_of(found: Any) -> str | None:
    """A part as text: bytes in base64, and anything else but text as JSON."""
    if isinstance(found, bytes | bytearray):
        return base64.b64encode(found).decode()
    return found if isinstance(found, str) else as_json(found)


def as_json(found: Any) -> str | None:
    """The JSON of a value; None if it has none."""
    try:
        return json.dumps(found, allow_nan=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return None


def table_of(value: object) -> str | None:
    """A data frame or a series as data: its names, and its first rows; None for other values."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, (pandas.DataFrame, pandas.Series)):
        return None
    frame: Any = value.to_frame() if isinstance(value, pandas.Series) else value
    try:
        first = json.loads(frame.head(MOST_ROWS).to_json(orient="split", date_format="iso"))
    except (TypeError, ValueError, OverflowError):  # such as names that appear twice
        return None
    table = {
        "columns": [str(name) for name in first["columns"]],
        "types": [str(kind) for kind in frame.dtypes],
        "index": first["index"],
        "rows": first["data"],
        "total": len(frame),
    }
    return as_json(table)
