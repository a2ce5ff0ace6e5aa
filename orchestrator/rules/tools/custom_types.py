"""Argument types that an operator defines: `[types.<name>]` of the folder's `toolclad.toml`.

A custom type is a known type with its own bounds. An argument of a custom type is read as one of
its base type with these bounds.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from orchestrator.rules.tools.manifest_reader import (
    FieldError,
    ManifestError,
    read_as,
    read_bytes,
    typed_argument,
    values_of,
)
from orchestrator.rules.tools.tables import ArgumentTable, ArgumentType, Name, Table, TypeTable

TYPES_FILE = "toolclad.toml"
_BOUNDS = ("min", "max", "allowed", "pattern")
_KNOWN = frozenset(get_args(ArgumentType))


class TypesTable(Table):
    """The tables of the file that are used; other programs use the rest."""

    types: dict[Name, TypeTable] = {}


@dataclass(frozen=True, slots=True)
class CustomTypes:
    """By type name, the members of an argument with that type; `type` is its base.

    `text` is the file, empty if there is none; `problem` is why it can't be used.
    """

    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    text: str = ""
    problem: str | None = None


def types_of(directory: Path) -> CustomTypes:
    """The types in a folder's file; empty if there is no such file."""
    path = directory / TYPES_FILE
    if not os.path.lexists(path):
        return CustomTypes()
    try:
        data = read_bytes(path)
        return parse_types(data, str(path))
    except ManifestError as error:
        return CustomTypes(problem=str(error))


def parse_types(data: bytes, name: str) -> CustomTypes:
    """Parses the types in a file's bytes. Raises: ManifestError."""
    values = {"types": values_of(data, name).get("types", {})}
    members = read_as(name, lambda: _members(TypesTable.model_validate(values)))
    return CustomTypes(members, data.decode())


def _members(table: TypesTable) -> dict[str, dict[str, Any]]:
    found = {}
    for name, each in table.types.items():
        where = f"types.{name}"
        if name in _KNOWN:
            raise FieldError(where, "is the name of an existing type")
        if each.base not in _KNOWN:
            raise FieldError(f"{where}.base", f"there is no type {each.base[:64]}")
        given = each.model_dump(exclude_unset=True, exclude={"base"})
        found[name] = {"type": each.base, **given}
        typed_argument(where, name, ArgumentTable.model_validate(found[name]))
    return found


def with_types(values: Mapping[str, Any], types: CustomTypes) -> dict[str, Any]:
    """A manifest's values with custom types replaced by known ones. Raises: FieldError."""
    found = dict(values)
    if isinstance(arguments := found.get("args"), dict):
        found["args"] = _resolved("args", arguments, types)
    session = found.get("session")
    if isinstance(session, dict) and isinstance(commands := session.get("commands"), dict):
        found["session"] = session | {"commands": _of_commands(commands, types)}
    return found


def _of_commands(commands: Mapping[str, Any], types: CustomTypes) -> dict[str, Any]:
    found = dict(commands)
    for name, command in commands.items():
        if isinstance(command, dict) and isinstance(arguments := command.get("args"), dict):
            where = f"session.commands.{name}.args"
            found[name] = command | {"args": _resolved(where, arguments, types)}
    return found


def _resolved(where: str, arguments: Mapping[str, Any], types: CustomTypes) -> dict[str, Any]:
    return {
        name: _argument(f"{where}.{name}", argument, types)
        if isinstance(argument, dict)
        else argument
        for name, argument in arguments.items()
    }


def _argument(where: str, argument: Mapping[str, Any], types: CustomTypes) -> Mapping[str, Any]:
    kind = argument.get("type")
    if not isinstance(kind, str) or kind in _KNOWN:
        return argument
    if kind not in types.members:
        reason = types.problem or f"{TYPES_FILE} beside the manifest defines no such type"
        raise FieldError(f"{where}.type", f"there is no type {kind[:64]}: {reason}")
    for bound in _BOUNDS:
        if bound in argument:
            raise FieldError(f"{where}.{bound}", f"is for {TYPES_FILE}, which has the type {kind}")
    return {**argument, **types.members[kind]}
