"""Regenerates the generated parts of the documents: `python -m scripts.docs`."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from orchestrator.programs.turns.lisp import reference
from orchestrator.programs.turns.operations.registry import OPERATIONS
from orchestrator.programs.turns.operations.turn_operation import TurnOperation
from orchestrator.rules.tools.schemas import manifest_schema
from orchestrator.settings.settings import Settings
from paddock.cli.exits import MEANINGS
from paddock.cli.program import build
from paddock.contract.remedies import REMEDIES
from sandbox_agent.decide.facilities import FACILITIES
from scripts.attempts import Attempt, attempts_of, modules
from scripts.floors import Floor, contents, floors, lines, title
from scripts.hosts import results
from tests.bench import comparison, picture

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
AGENT = ROOT / "sandbox_agent"
# The documents with generated parts that are not in `docs/`.
OTHERS = (ROOT / "CONTRIBUTING.md", AGENT / "README.md")
MEASURED = DOCS / "performance.json"
PICTURE = DOCS / "images" / "performance.svg"
EXAMINED = DOCS / "hosts.json"
MANIFEST_SCHEMA = DOCS / "tool-manifest.schema.json"
LISP_NAMES = ROOT / "paddock" / "cli" / "prompt" / "lisp_names.py"
# The agent's enforcement core in the order in which an auditor reads it, the first ones first.
_FIRST_READ = (
    *("guard", "guard_process", "spawn", "command_process"),
    *("profile", "landlock", "filters/seccomp"),
)
_THEN_READ = (
    *("enforce/tree", "enforce/strays", "enforce/privileges", "enforce/syscalls"),
    *("enforce/beneath", "enforce/exec_record", "enforce/notify", "enforce/caller"),
    *("enforce/second_look", "decide/commands", "decide/options", "files/files"),
    *("enforce/reads/broker", "enforce/reads/opener"),
    *("decide/facilities", "enforce/kernel", "enforce/filters/substitutes"),
)
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LEVEL = ROOT / "orchestrator" / "rules" / "policy" / "levels" / "low.toml"
_EXAMPLE_LEVEL = ROOT / "examples" / "levels" / "build.toml"
_EXAMPLE = re.compile(r"Example: `(.+)`")
_TYPES = {str: "text", Path: "path", SecretStr: "text", int: "integer", float: "number"}
# Documented once for all commands.
_SHARED = {"--url", "--key", "--key-file", "--help"}
# How the tests treat a command's example.
_NOTES = {
    "paddock serve": "<!-- not run: the examples use a control plane that is already running -->\n",
    # It knows the session whose snapshot it is.
    "paddock sessions restore": "<!-- exit: 1 -->\n",
    "paddock restore": "<!-- not run: no control plane may be running -->\n",
    "paddock keys rotate-admin": "<!-- not run: the other examples use the key it replaces -->\n",
    "paddock events": "<!-- runs on -->\n",
    "paddock approvals watch": "<!-- runs on -->\n",
    "paddock shell": "<!-- not run: it needs a terminal -->\n",
    "paddock attach": "<!-- exit: 5 -->\n",
    "paddock output": "<!-- exit: 5 -->\n",
    "paddock tools run": "<!-- exit: 5 -->\n",
    "paddock tools arguments": "<!-- exit: 5 -->\n",
    "paddock approvals approve": "<!-- exit: 5 -->\n",
    "paddock approvals deny": "<!-- exit: 5 -->\n",
    "paddock policies explain": "<!-- exit: 4 -->\n",
    # The examples' control plane has no model.
    "paddock memory edit": "<!-- exit: 5 -->\n",
    "paddock memory remove": "<!-- exit: 5 -->\n",
    "paddock hooks remove": "<!-- exit: 5 -->\n",
    "paddock hooks deliveries": "<!-- exit: 5 -->\n",
    "paddock hooks retry": "<!-- exit: 5 -->\n",
    "paddock send": "<!-- exit: 1 -->\n",
}


def render(text: str) -> str:
    """The document with its generated parts replaced."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", text)


def settings() -> str:
    """A table of all settings: variable, type, default and meaning."""
    rows = [
        (f"`PADDOCK_{name.upper()}`", _type(field), _default(field), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    return _table(("variable", "type", "default", "meaning"), rows)


def operations() -> str:
    """A table of the operations of turns, as the Lisp calls them."""
    rows = [(f"`{_call(each)}`", each.summary) for each in OPERATIONS.values()]
    return _table(("operation", "what it does"), rows)


def _call(operation: TurnOperation) -> str:
    """The operation in the form of a call; optional arguments are in brackets."""
    named = [f"[{each.name}]" if each.optional else each.name for each in operation.parameters]
    return f"({' '.join((operation.name, *named))})"


def lisp_names() -> str:
    """The module of the client with the names that its prompt completes."""
    described = (*reference.forms(), *reference.builtins())
    names = sorted({*OPERATIONS, *(each.name for each in described)})
    rows = "".join(f"    {json.dumps(name)},\n" for name in names)
    return (
        f'"""The names of the Lisp of turns. Generated by `make docs`."""\n\nNAMES = (\n{rows})\n'
    )


def level() -> str:
    """The packaged level file of level low."""
    return f"```toml\n{_LEVEL.read_text().rstrip()}\n```"


def example_level() -> str:
    """An example of an operator's own level."""
    return f"```toml\n{_EXAMPLE_LEVEL.read_text().rstrip()}\n```"


def rules() -> str:
    """A table of all rules that refuse, and what to do instead."""
    rows = [(f"`{rule}`", remedy) for rule, remedy in REMEDIES.items()]
    return _table(("rule", "what to do"), rows)


def exits() -> str:
    """The exit statuses of the command line."""
    rows = [(str(status.value), meaning) for status, meaning in MEANINGS.items()]
    rows.append(
        (
            "128 + n",
            "ended by signal n: 130 after Ctrl-C, 141 when the reader of the output has gone",
        )
    )
    return _table(("status", "meaning"), rows)


def commands() -> str:
    """All commands with help, arguments, options and an example."""
    found = _commands(build(), "paddock")
    return "\n\n".join(_command(name, command) for name, command in found)


def attempts() -> str:
    """All attacks that the tests make: levels, what stops them, and the test."""
    columns = ("attempt", "levels", "stopped by", "test")
    parts = []
    for path in modules(ROOT / "tests"):
        title, found = attempts_of(path)
        link = path.relative_to(ROOT).as_posix()
        rows = [_attempt(attempt, link) for attempt in found]
        parts.append(f"### {title}\n\n{_table(columns, rows)}")
    return "\n\n".join(parts)


def peers() -> str:
    """The stored figures of Paddock and its peers, and the machine that they are from."""
    measured = comparison.load(MEASURED)
    columns, *rows = map(tuple, comparison.table(measured))
    return f"{_table(columns, rows)}\n\nMeasured on: {measured.machine}."


def hosts() -> str:
    """What the last whole examination of stock systems found."""
    columns, *rows = map(tuple, results.table(list(results.load(EXAMINED).values())))
    return _table(columns, rows)


def lisp() -> str:
    """The forms and the built-in functions of the Lisp of turns."""
    columns = ("form", "meaning"), ("function", "meaning")
    described = reference.forms(), reference.builtins()
    return "\n\n".join(
        _table(names, [(f"`{each.signature}`", each.doc) for each in all_of])
        for names, all_of in zip(columns, described, strict=True)
    )


def facilities() -> str:
    """What confines commands, and what takes its place on older kernels."""
    columns = ("what is decided", "by what", "since kernel", "before that")
    rows = [
        (
            each.decides,
            each.means,
            each.since,
            each.substitute or f"{each.needed_by} are refused",
        )
        for each in FACILITIES
    ]
    return _table(columns, rows)


def floors_of_the_domain() -> str:
    """The picture of the domain: its floors from the top, by their imports."""
    top = ("`control_plane.py`", "opens the floors in their order, and closes them", "", "all")
    found = floors("orchestrator")
    rows = [_floor(each, found[:number]) for number, each in enumerate(found)]
    return _table(("floor", "contents", "rooms", "imports"), [top, *reversed(rows)])


def _floor(floor: Floor, lower: Sequence[Floor]) -> tuple[str, ...]:
    named = ", ".join(f"`{name}/`" for name in floor.rooms)
    imports = ", ".join(f"`{name}`" for name in floor.below) or "nothing"
    if floor.below and floor.below == [each.name for each in lower]:
        imports = "all below"
    link = f"[`{floor.name}/`](architecture/{floor.name}.md)"
    return link, contents(f"orchestrator/{floor.name}"), named, imports


def rooms_of_all() -> str:
    """The rooms of the packages, the highest first, with what each holds."""
    rows = []
    for package in ("api", "orchestrator", "sandbox_agent", "paddock"):
        for each in reversed(floors(package)):
            folders = (each.name, *(f"{each.name}/{room}" for room in each.rooms))
            paths = [f"{package}/{folder}" for folder in folders]
            rows += [(f"`{path}/`", contents(path)) for path in paths]
    return _table(("room", "contents"), rows)


def agent_folders() -> str:
    """The folders of the sandbox agent, the lowest first."""
    rows = [
        (
            f"`{each.name}/`",
            contents(f"sandbox_agent/{each.name}"),
            ", ".join(f"`{name}`" for name in each.below) or "nothing",
            _rounded(sum(map(lines, (AGENT / each.name).rglob("*.py")))),
        )
        for each in floors("sandbox_agent")
    ]
    return _table(("folder", "contents", "imports", "lines"), rows)


def agent_reading() -> str:
    """The modules of the agent's enforcement core, in the order of reading."""
    first = [AGENT / "enforce" / f"{name}.py" for name in _FIRST_READ]
    then = [AGENT / f"{name}.py" for name in _THEN_READ]
    rows = [_read(number, path) for number, path in enumerate((*first, *then), 1)]
    together = f"these {len(first)} together"
    rows.insert(len(first), ("", together, "", _rounded(sum(map(lines, first)))))
    return _table(("", "module", "contents", "lines"), rows)


def _read(number: int, path: Path) -> tuple[str, ...]:
    name = path.relative_to(AGENT).as_posix()
    return str(number), f"[{name}]({name})", title(path), _rounded(lines(path))


def _rounded(number: int) -> str:
    return f"{round(number, -1):,}"


def _attempt(attempt: Attempt, link: str) -> tuple[str, ...]:
    levels = ", ".join(attempt.levels)
    return attempt.text, levels, attempt.layer, f"[{attempt.test}](../{link})"


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "level": level,
    "example_level": example_level,
    "rules": rules,
    "operations": operations,
    "exits": exits,
    "commands": commands,
    "attempts": attempts,
    "peers": peers,
    "hosts": hosts,
    "lisp": lisp,
    "facilities": facilities,
    "floors": floors_of_the_domain,
    "rooms": rooms_of_all,
    "agent_folders": agent_folders,
    "agent_reading": agent_reading,
}


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for part, below in getattr(command, "commands", {"": None}).items():
        if below is None:
            yield name, command
        else:
            yield from _commands(below, f"{name} {part}")


def _command(name: str, command: Any) -> str:
    parts = [f"### {name}", command.help.strip()]
    shown = [each for each in command.params if _SHARED.isdisjoint(each.opts)]
    if shown:
        rows = [(f"`{_spelling(each)}`", each.help) for each in shown]
        parts.append(_table(("argument or option", "meaning"), rows))
    example = _EXAMPLE.fullmatch(command.epilog)
    if example is None:
        raise ValueError(f"{name} has no example")
    parts.append(f"{_NOTES.get(name, '')}```sh\n{example[1]}\n```")
    return "\n\n".join(parts)


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return parameter.metavar if parameter.required else f"[{parameter.metavar}]"
    names = ", ".join(sorted(parameter.opts, key=len, reverse=True))
    if parameter.is_flag:
        return names
    return f"{names} {parameter.metavar or 'NUMBER'}"


def _type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in kinds)
    if get_origin(annotation) is tuple:
        return "list"
    if get_origin(annotation) is dict:
        return "table"
    kind = kinds[0] if kinds else annotation
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "table"
    return _TYPES[kind] + _bounds(field)


def _bounds(field: FieldInfo) -> str:
    least = most = ""
    for bound in field.metadata:
        if isinstance(bound, annotated_types.Ge):
            least = f"from {bound.ge}"
        elif isinstance(bound, annotated_types.Gt):
            least = f"over {bound.gt}"
        elif isinstance(bound, annotated_types.Le):
            most = f"to {bound.le}"
    return "".join(f" {part}" for part in (least, most) if part)


def _default(field: FieldInfo) -> str:
    default = field.default
    if field.default_factory is not None or default in (None, (), {}):
        return "unset"
    return f"`{default}`"


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = (columns, ("---",) * len(columns), *rows)
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def manifest_schema_text() -> str:
    """The JSON Schema of tool manifests as its file contains it."""
    return json.dumps(manifest_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Writes the documents that have changed."""
    MANIFEST_SCHEMA.write_text(manifest_schema_text(), encoding="utf-8")
    LISP_NAMES.write_text(lisp_names(), encoding="utf-8")
    _write_parts()
    return 0


def keep(measured: comparison.Comparison) -> None:
    """Replaces the stored figures, their table and their picture."""
    measured.save(MEASURED)
    PICTURE.write_text(picture.draw(measured), encoding="utf-8")
    _write_parts()


def keep_hosts(examined: Mapping[str, results.Result]) -> None:
    """Replaces the stored results of these systems, and their table."""
    results.save(EXAMINED, results.load(EXAMINED) | dict(examined))
    _write_parts()


def _write_parts() -> None:
    for path in (*OTHERS, *sorted(DOCS.rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        if render(text) != text:
            path.write_text(render(text), encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
