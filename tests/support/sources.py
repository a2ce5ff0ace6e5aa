"""What the project's modules import, name and say: each is parsed once per process."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Source(NamedTuple):
    """A module, or a part of one."""

    imports: frozenset[str]  # modules, and their members as `module.member`
    names: frozenset[str]  # used, imported, or looked up as attributes
    texts: frozenset[str]
    classes: frozenset[str]  # defined at its top
    loops_executor: bool  # whether it calls `run_in_executor` without an executor


def modules(package: str) -> list[Path]:
    """The modules below a folder of the project."""
    return sorted((ROOT / package).rglob("*.py"))


@functools.cache
def source(path: Path) -> Source:
    """A module of the project. Trees are not kept: collecting garbage would walk them each time."""
    return examined(ast.parse(path.read_text(encoding="utf-8")))


def examined(tree: ast.AST) -> Source:
    """Raises: AssertionError for a relative import."""
    imports: set[str] = set()
    names: set[str] = set()
    texts: set[str] = set()
    loops_executor = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                texts.add(node.value)
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import: {ast.unparse(node)}"
            names |= {alias.name for alias in node.names}
            imports |= {node.module or "", *_members(node)}
        elif isinstance(node, ast.Call):
            loops_executor = loops_executor or _uses_loops_executor(node)
    top = tree.body if isinstance(tree, ast.Module) else []
    classes = frozenset(node.name for node in top if isinstance(node, ast.ClassDef))
    return Source(frozenset(imports), frozenset(names), frozenset(texts), classes, loops_executor)


def _members(node: ast.ImportFrom) -> Iterator[str]:
    return (f"{node.module}.{alias.name}" for alias in node.names)


def _uses_loops_executor(call: ast.Call) -> bool:
    first = call.args[0] if call.args else ast.Constant(None)
    none = isinstance(first, ast.Constant) and first.value is None
    return none and any(
        (isinstance(part, ast.Attribute) and part.attr == "run_in_executor")
        or (isinstance(part, ast.Name) and part.id == "run_in_executor")
        for part in ast.walk(call.func)
    )
