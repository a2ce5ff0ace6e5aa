"""Objects of the API as frozen dataclasses, by their annotations. No I/O."""

import types
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from paddock.client.errors import OldServerError


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the API told. `raw` is the object as it came, with members that have no attribute."""

    raw: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, value: Any) -> Self:
        """The object of a JSON value; times become `datetime`, arrays tuples.

        A member that the class has a default for may be missing. Raises: OldServerError
        where another one is, or has a type that it can't have.
        """
        parsed: Self = _parse(cls, value, cls.__name__)
        return parsed

    @classmethod
    def adapted(cls, value: dict[str, Any]) -> dict[str, Any]:
        """The members as the class has them, where the API spells them otherwise."""
        return value


@cache
def _members(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type, and whether it must be there."""
    hints = get_type_hints(kind)
    return tuple(
        (
            member.name,
            hints[member.name],
            member.default is MISSING and member.default_factory is MISSING,
        )
        for member in fields(kind)
        if member.name != "raw"
    )


def _parse(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Any:
        return value
    if origin in (Union, types.UnionType):
        present = next(argument for argument in arguments if argument is not types.NoneType)
        return None if value is None else _parse(present, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_parse(arguments[0], item, where) for item in value)
    if origin is dict and isinstance(value, dict):
        return {name: _parse(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    if origin is datetime and isinstance(value, str):
        return _time(value, where)
    if origin is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict) and isinstance(origin, type) and issubclass(origin, Result):
        return _parse_members(origin, value, where)
    if origin in (str, bool) and type(value) is origin:
        return value
    if origin is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise OldServerError(f"the control plane tells {where} in another form than this client knows")


def _parse_members(kind: Any, value: dict[str, Any], where: str) -> Result:
    known: dict[str, Any] = {}
    told = kind.adapted(value)
    for name, hint, needed in _members(kind):
        if name in told:
            known[name] = _parse(hint, told[name], f"{where}.{name}")
        elif needed:
            raise OldServerError(
                f"the control plane does not tell {where}.{name}: it is older than this client"
            )
    made: Result = kind(raw=value, **known)
    return made


def _time(text: str, where: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise OldServerError(f"the control plane tells {where} in another form") from None
