"""Reads a package's folders from its source: what each holds, and which others it imports."""

import ast
from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple

from tests.support.sources import ROOT, graph


class Floor(NamedTuple):
    """A folder of a package: its name, its folders, and the other folders that it imports."""

    name: str
    rooms: list[str]
    below: list[str]


def floors(package: str) -> list[Floor]:
    """The package's folders, the lowest first: each imports only folders before it."""
    imports = _imports(package)
    names = sorted(imports, key=lambda name: (len(_all_below(name, imports)), name))
    return [
        Floor(name, rooms(f"{package}/{name}"), [each for each in names if each in imports[name]])
        for name in names
    ]


def rooms(folder: str) -> list[str]:
    """The names of the packages in a folder of the project."""
    return sorted(path.parent.name for path in (ROOT / folder).glob("*/__init__.py"))


def contents(folder: str) -> str:
    """What a package says that it holds."""
    return title(ROOT / folder / "__init__.py")


def title(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def lines(path: Path) -> int:
    """The number of lines of a module."""
    return len(path.read_text(encoding="utf-8").splitlines())


def _imports(package: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in rooms(package)}
    for module, others in graph(package).items():
        floor = _floor(module)
        if floor in found:
            found[floor] |= {_floor(other) for other in others} & found.keys() - {floor}
    return found


def _floor(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def _all_below(name: str, imports: Mapping[str, Set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = {name}
    while waiting:
        new = set(imports[waiting.pop()]) - found
        found |= new
        waiting |= new
    return found
