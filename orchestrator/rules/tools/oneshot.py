"""Oneshot tools: one command with typed arguments, as its manifest defines it.

The command is split into words before values are inserted, so a value can't add a word. A value
that is a whole word may not look like an option.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import NamedTuple

from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.cedar import CedarFacts
from orchestrator.rules.tools.gates import Setting, tier_refusal
from orchestrator.rules.tools.manifest import CedarNames
from orchestrator.rules.tools.scope import Scope

MAX_VALUE = 8192
# Placeholders of the run itself: neither callers nor manifests choose their values.
SCAN_ID, OUTPUT_FILE = "_scan_id", "_output_file"
# The placeholder for the words of all conditions that hold, in order.
CONDITIONAL_FLAGS = "_conditional_flags"
_HOLE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NUMBERS = ("integer", "number", "port", "duration")


class Comparison(NamedTuple):
    """Compares an argument with a value, which is a number or `true` if `bare`."""

    argument: str
    value: str
    equal: bool
    bare: bool = False

    def holds(self, given: str) -> bool:
        """Whether it holds for a text. A missing value is compared with texts only."""
        if self.bare and not given:
            return False
        same = given == self.value or (self.bare and _number(given) == _number(self.value))
        return same == self.equal


def _number(text: str) -> Decimal | str:
    """The text as a number if it is one, else the text."""
    try:
        return Decimal(text) if text.isascii() else text
    except ArithmeticError:
        return text


@dataclass(frozen=True, slots=True)
class Condition:
    """Alternatives (`or`) of comparisons (`and`), and the words to add if one of them holds."""

    alternatives: tuple[tuple[Comparison, ...], ...]
    words: tuple[str, ...]

    def met(self, values: Mapping[str, str]) -> bool:
        """Whether it holds for these values of the arguments."""
        return any(
            all(each.holds(values[each.argument]) for each in together)
            for together in self.alternatives
        )


@dataclass(frozen=True, slots=True)
class Oneshot:
    """A tool that runs once with its arguments."""

    name: str
    description: str
    risk_tier: str
    human_approval: bool
    cedar: CedarNames | None
    timeout_seconds: int
    args: tuple[Argument, ...]
    defaults: Mapping[str, str]  # of arguments and other placeholders
    words: tuple[str, ...]
    mappings: Mapping[str, Mapping[str, tuple[str, ...]]]  # by argument and value
    conditions: Mapping[str, Condition]
    format: str  # of the command's output
    # Whether evidence is kept, and an additional name for it; None: its output is not kept.
    capture: bool | None
    evidence_name: str | None
    sha256: str
    source: str = field(repr=False)


class Run(NamedTuple):
    """The parts of a tool's command that are specific to one run: its id, and its output file."""

    id: str
    file: str


# A run that has not begun, in texts for a person.
ANY_RUN = Run("{_scan_id}", "{_output_file}")


class Refused(NamedTuple):
    """The gate that refuses, and why."""

    rule: str
    message: str


def refusal(tool: Oneshot, given: Mapping[str, str], setting: Setting) -> Refused | None:
    """Why a command with these arguments may not run; None if it may."""
    for check in (_unknown, _values):
        if (found := check(tool, given, setting)) is not None:
            return found
    return always_refused(tool, setting)


def always_refused(tool: Oneshot, setting: Setting) -> Refused | None:
    """The gate that no arguments could pass; None if there is none."""
    for check in (_tier, _policies):
        if (found := check(tool, setting)) is not None:
            return found
    return None


def argv(tool: Oneshot, given: Mapping[str, str], run: Run = ANY_RUN) -> list[str]:
    """The words of the command for accepted arguments."""
    own = {SCAN_ID: run.id, OUTPUT_FILE: run.file}
    values = own | {arg.name: "" for arg in tool.args} | dict(tool.defaults) | _meant(given)
    groups = {
        hole: words.get(values[name], ())
        for name, words in tool.mappings.items()
        for hole in flags_holes(name)
    }
    met = {
        f"_{name}": condition.words if condition.met(values) else ()
        for name, condition in tool.conditions.items()
    }
    groups |= {CONDITIONAL_FLAGS: tuple(chain.from_iterable(met.values()))} | met
    return list(_filled(tool.words, values, groups))


def flags_holes(argument: str) -> set[str]:
    """The placeholders that a mapping fills: for scan_type _scan_type_flags and _scan_flags."""
    return {f"_{argument}_flags", f"_{argument.removesuffix('_type')}_flags"}


def holes(words: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """The name of every placeholder in the words, and whether it is a whole word."""
    for word in words:
        for found in _HOLE.finditer(word):
            if found[1] is not None:
                yield found[1], found[0] == word


def is_no_port(arg: Argument, default: str | None) -> bool:
    """Whether a default means that there is no port, which conditions can test."""
    return arg.type == "port" and not arg.required and default == "0"


def writes_file(tool: Oneshot) -> bool:
    """Whether the command uses the file that it may write."""
    groups = [tool.words, *(condition.words for condition in tool.conditions.values())]
    groups += (words for mapping in tool.mappings.values() for words in mapping.values())
    return any(name == OUTPUT_FILE for words in groups for name, _ in holes(words))


def _filled(
    words: tuple[str, ...], values: Mapping[str, str], groups: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    for word in words:
        name = word[1:-1]
        if word == f"{{{name}}}" and name in groups:
            yield from _filled(groups[name], values, {})
        elif word != f"{{{name}}}" or values.get(name) != "":
            yield _HOLE.sub(_fill(values), word)


def _fill(values: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    return lambda found: found[0][0] if found[1] is None else values[found[1]]


def _meant(given: Mapping[str, str]) -> dict[str, str]:
    """An empty value means no value: it must not override a default or shift other words."""
    return {name: value for name, value in given.items() if value}


def _unknown(tool: Oneshot, given: Mapping[str, str], setting: Setting) -> Refused | None:
    known = [arg.name for arg in tool.args]
    for name in given:
        if name not in known:
            reason = f"there is no argument {name[:64]}; there are: {', '.join(known) or 'none'}"
            return Refused("argument", reason)
    return None


def _values(tool: Oneshot, given: Mapping[str, str], setting: Setting) -> Refused | None:
    for arg in tool.args:
        value = _meant(given).get(arg.name)
        if value is None and not is_no_port(arg, default := tool.defaults.get(arg.name)):
            value = default
        if (reason := _value_refusal(arg, value, setting.scope)) is not None:
            scoped = arg.type == "scope_target" or arg.scope_check
            return Refused("scope" if scoped else "argument", reason)
    return None


def _value_refusal(arg: Argument, value: str | None, scope: Scope) -> str | None:
    if value is not None and len(value) > MAX_VALUE:
        return f"{arg.name}: has more than {MAX_VALUE} characters"
    if (reason := arg.refusal(value, scope)) is not None:
        return reason
    negative = arg.type in _NUMBERS and (arg.min or 0) < 0
    if value and value.startswith("-") and not negative:
        return f"{arg.name}: may not begin with -, as an option does"
    if value and not value.isprintable():
        return f"{arg.name}: has an invisible character"
    return None


def _tier(tool: Oneshot, setting: Setting) -> Refused | None:
    reason = tier_refusal(tool.risk_tier, setting)
    return None if reason is None else Refused("risk-tier", reason)


def _policies(tool: Oneshot, setting: Setting) -> Refused | None:
    if setting.policies is None:
        return None
    level, role = setting.permission_level, setting.role
    facts = CedarFacts(tool.name, setting.session_state, 0, tool.risk_tier, level, role)
    reason = setting.policies.refusal(tool.name, tool.cedar, facts)
    return None if reason is None else Refused("cedar", f"{tool.name}: {reason}")
