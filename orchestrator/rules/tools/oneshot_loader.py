"""Reads oneshot manifests: a command with typed arguments that runs once.

It is as strict as the reader of session manifests: every error names the field.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.manifest import CRITICAL
from orchestrator.rules.tools.manifest_reader import (
    FieldError,
    cedar_names,
    evidence_name,
    typed_argument,
)
from orchestrator.rules.tools.oneshot import (
    CONDITIONAL_FLAGS,
    OUTPUT_FILE,
    SCAN_ID,
    Comparison,
    Condition,
    Oneshot,
    flags_holes,
    holes,
    is_no_port,
)
from orchestrator.rules.tools.scope import NO_SCOPE
from orchestrator.rules.tools.tables import ArgumentTable, Name, Table, ToolTable

_Template = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
_Flags = Annotated[str, StringConstraints(max_length=4096)]
_Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Default = str | int | float | bool
_EVIDENCE_DIR = "_evidence_dir"
_COMPARISON = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(==|!=)\s*"
    r"(?:'([^']*)'|\"([^\"]*)\"|(-?[0-9]{1,18}(?:\.[0-9]{1,18})?|true|false))\s*"
)
_JOINT = re.compile(r"(and|or)\b")


class OneshotArgumentTable(ArgumentTable):
    """An argument of the command."""

    position: int | None = Field(default=None, ge=1, description="For people.")
    default: Default | None = Field(default=None, description="The value if none is given.")
    sanitize: list[Literal["injection"]] = Field(
        default=["injection"], description="It is always applied."
    )
    block_internal: bool = Field(
        default=False, description="Only the scope file's targets are in scope."
    )


class ConditionalTable(Table):
    """Words that are added on a condition."""

    when: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="`<argument> == <value>`, or with `!=`; more of them with `and`, `or`. A value "
        "is `'<text>'`, a number, `true` or `false`."
    )
    template: _Template


class TemplateTable(Table):
    """The command's words. No shell reads them: `{name}` stands for an argument inside a word."""

    template: _Template | None = None
    exec: list[_Template] | None = Field(default=None, min_length=1, max_length=256)
    defaults: dict[_Key, Default] = {}
    mappings: dict[_Key, dict[Annotated[str, Field(max_length=256)], _Flags]] = Field(
        default={}, description="The words of `{_<argument>_flags}`, by argument and value."
    )
    conditionals: dict[_Key, ConditionalTable] = Field(
        default={}, description="The words of `{_<name>}`."
    )


class OneshotOutputTable(Table):
    """The command's output. It is returned unchanged and not parsed."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    format: Literal["text", "json", "xml", "csv", "jsonl"] = "text"
    parser: Annotated[str, Field(max_length=128)] | None = None
    envelope: bool = True
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class OneshotTable(Table):
    """A oneshot manifest, `*.clad.toml`."""

    tool: ToolTable
    args: dict[Name, OneshotArgumentTable] = {}
    command: TemplateTable
    output: OneshotOutputTable


def oneshot_tool(values: Mapping[str, Any], data: bytes) -> Oneshot:
    """The tool of a oneshot manifest's values. Raises: FieldError, and pydantic's errors."""
    table = OneshotTable.model_validate(values)
    tool, command = table.tool, table.command
    for name, arg in table.args.items():
        if arg.bind:
            raise FieldError(f"args.{name}.bind", "is for tools of sessions")
    args = tuple(typed_argument(f"args.{name}", name, arg) for name, arg in table.args.items())
    defaults = {name: _text(value) for name, value in command.defaults.items()}
    for name, arg in table.args.items():
        if arg.default is not None:
            defaults[name] = _text(arg.default)
    _check_defaults(args, defaults)
    conditions = {
        name: _condition(f"command.conditionals.{name}", conditional)
        for name, conditional in command.conditionals.items()
    }
    built = Oneshot(
        name=tool.name,
        description=tool.description,
        risk_tier=tool.risk_tier,
        human_approval=tool.human_approval or tool.risk_tier == CRITICAL,
        cedar=None if tool.cedar is None else cedar_names(tool.cedar),
        timeout_seconds=tool.timeout_seconds,
        args=args,
        defaults=defaults,
        words=_words(command),
        mappings={
            name: {
                value: _split(f"command.mappings.{name}.{value}", flags)
                for value, flags in values.items()
            }
            for name, values in command.mappings.items()
        },
        conditions=conditions,
        format=table.output.format,
        capture=tool.evidence.capture if "evidence" in tool.model_fields_set else None,
        evidence_name=evidence_name(tool.evidence.output_dir),
        sha256=hashlib.sha256(data).hexdigest(),
        source=data.decode(),
    )
    _check_names(built)
    _check_program(built, tool.binary)
    return built


def _text(value: Default) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(command: TemplateTable) -> tuple[str, ...]:
    if (command.template is None) == (command.exec is None):
        raise FieldError("command", "must have one of template and exec")
    if command.exec is not None:
        return tuple(command.exec)
    return _split("command.template", command.template or "")


def _split(field: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise FieldError(field, f"can't be split into words: {error}") from None


def _condition(field: str, table: ConditionalTable) -> Condition:
    words = _split(f"{field}.template", table.template)
    return Condition(_alternatives(f"{field}.when", table.when), words)


def _alternatives(field: str, when: str) -> tuple[tuple[Comparison, ...], ...]:
    """Alternatives separated by `or`, each a list of comparisons separated by `and`."""
    alternatives: list[list[Comparison]] = [[]]
    position = 0
    while found := _COMPARISON.match(when, position):
        value = next(text for text in found.groups()[2:] if text is not None)
        alternatives[-1].append(Comparison(found[1], value, found[2] == "==", found[5] is not None))
        if found.end() == len(when):
            return tuple(map(tuple, alternatives))
        joint = _JOINT.match(when, found.end())
        if joint is None:
            break
        if joint[1] == "or":
            alternatives.append([])
        position = joint.end()
    raise FieldError(
        field,
        "must be <argument> == <value>, or with !=, where a value is '<text>', a number, true or "
        "false; more of them with and, or",
    )


def _check_defaults(args: tuple[Argument, ...], defaults: Mapping[str, str]) -> None:
    """Checks defaults against their types, except targets, which are checked in their session."""
    for arg in args:
        value = defaults.get(arg.name)
        scoped = arg.type == "scope_target" or arg.scope_check
        if value and not scoped and not is_no_port(arg, value):
            reason = arg.refusal(value, NO_SCOPE)
            if reason is not None:
                raise FieldError(f"args.{arg.name}.default", reason)


def _check_names(tool: Oneshot) -> None:
    """Checks that every placeholder can be filled."""
    for name in (SCAN_ID, OUTPUT_FILE):
        is_argument = any(arg.name == name for arg in tool.args)
        if is_argument or name in tool.defaults:
            where = "args" if is_argument else "command.defaults"
            raise FieldError(f"{where}.{name}", "is reserved for the run")
    values = {arg.name for arg in tool.args} | set(tool.defaults) | {SCAN_ID, OUTPUT_FILE}
    groups = {CONDITIONAL_FLAGS, *(f"_{name}" for name in tool.conditions)}
    for name in tool.mappings:
        if name not in values:
            raise FieldError(f"command.mappings.{name}", "there is no such argument")
        groups |= flags_holes(name)
        for words in tool.mappings[name].values():
            for hole, _ in holes(words):
                if hole not in values:
                    reason = f"there is nothing to fill {{{hole}}}"
                    raise FieldError(f"command.mappings.{name}", reason)
    if any("{_secret:" in word for word in tool.words):
        reason = "there is no {_secret:…}: secrets are given with the request, as variables"
        raise FieldError("command.template", reason)
    for name, alone in holes(tool.words):
        if name == _EVIDENCE_DIR and name not in values:
            reason = "there is no {_evidence_dir} in a sandbox: write to {_output_file}"
            raise FieldError("command.template", reason)
        if name not in values and not (name in groups and alone):
            raise FieldError("command.template", f"there is nothing to fill {{{name}}}")
    for name, condition in tool.conditions.items():
        compared = (each.argument for one in condition.alternatives for each in one)
        for used in (*compared, *(hole for hole, _ in holes(condition.words))):
            if used not in values:
                raise FieldError(f"command.conditionals.{name}", f"there is no argument {used}")


def _check_program(tool: Oneshot, binary: str | None) -> None:
    program = tool.words[0] if tool.words else ""
    if not program or "{" in program:
        raise FieldError("command.template", "must begin with the program's name")
    if binary is not None and program.rpartition("/")[2] != binary:
        raise FieldError("tool.binary", f"is {binary}, but the command runs {program}")
