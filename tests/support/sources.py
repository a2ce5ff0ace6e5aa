"""What the project's modules import, name and say: each is parsed once per process."""

import ast
import functools
from collections.abc import Iterator, Mapping, Set
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


def graph(package: str) -> dict[str, set[str]]:
    """The modules of the package that each of its modules imports, by their dotted names."""
    known = {_dotted(path): path for path in modules(package)}
    return {name: _imported(path, known) - {name} for name, path in known.items()}


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """A member of a package that is a module of its own counts as that module only."""
    found = {name for name in source(path).imports if name in known}
    packages = {name.rpartition(".")[0] for name in found} & found
    return found - {name for name in packages if known[name].name == "__init__.py"}


def circles(imports: Mapping[str, Set[str]]) -> list[set[str]]:
    """The largest sets of modules of which each imports, at last, all the others."""
    sorter = {name: set(others) for name, others in imports.items()}
    # What imports nothing that is left, or is imported by nothing that is left, is in no circle.
    while True:
        used = set().union(*sorter.values())
        left = {name: others & sorter.keys() for name, others in sorter.items() if name in used}
        left = {name: others for name, others in left.items() if others}
        if left == sorter:
            break
        sorter = left
    return _joined(sorter)


def _joined(imports: Mapping[str, Set[str]]) -> list[set[str]]:
    reached = {name: _reach(name, imports) for name in imports}
    found: list[set[str]] = []
    for name in imports:
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def _reach(name: str, imports: Mapping[str, Set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        new = imports.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


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
