"""Reads the attacks that the tests make from the marks in their source, without imports."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LEVELS = ("low", "medium", "high")
_MARKS = ("attempt", "attempts", "spellings")


class Attempt(NamedTuple):
    """One row: what is attempted, at which levels, what stops it, and the test's name."""

    text: str
    levels: tuple[str, ...]
    layer: str
    test: str


def modules(tests: Path) -> list[Path]:
    """The test modules below `tests` that have marks."""
    paths = (path for path in sorted(tests.rglob("test_*.py")) if _may_have_marks(path))
    return [path for path in paths if attempts_of(path)[1]]


def _may_have_marks(path: Path) -> bool:
    """Reading is much faster than parsing, and most modules have none."""
    text = path.read_text(encoding="utf-8")
    return any(f"@{mark}(" in text for mark in _MARKS)


def attempts_of(path: Path) -> tuple[str, list[Attempt]]:
    """A module's title and its attempts, in order. Raises: ValueError for an invalid mark."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    title = (ast.get_docstring(tree) or "").split("\n", 1)[0].rstrip(".")
    return title, [row for node in tree.body for row in _marked(node)]


def _marked(node: ast.stmt) -> Iterator[Attempt]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for mark in node.decorator_list:
        if not isinstance(mark, ast.Call) or not isinstance(mark.func, ast.Name):
            continue
        if mark.func.id in _MARKS:
            given = {k.arg: ast.literal_eval(k.value) for k in mark.keywords}
            yield from _rows(mark.func.id, ast.literal_eval(mark.args[0]), given, node.name)


def _rows(kind: str, what: Any, given: dict[Any, Any], test: str) -> Iterator[Attempt]:
    levels = tuple(given.get("levels", " ".join(LEVELS)).split())
    if not levels or not set(levels) <= set(LEVELS):
        raise ValueError(f"{test}: levels are {', '.join(LEVELS)}")
    if kind == "attempt":
        yield Attempt(what, levels, given["layer"], test)
    elif kind == "attempts":
        for name, text in what.items():
            yield Attempt(text, levels, given["layer"], f"{test}[{name}]")
    else:
        text = f"{given['text']}: {', '.join(map(_code, what))}"
        yield Attempt(text, levels, given["layer"], test)


def _code(text: str) -> str:
    """The text as inline code on one line; it may contain backquotes."""
    if not text:
        return "nothing"
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"
