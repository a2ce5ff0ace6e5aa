"""Outcomes of turns, and the values that programs work with."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

Tag = Literal["ok", "proposed", "nonconverged", "cycle", "needs", "error"]
Exhausted = Literal["budget", "max-iterations", "max-tokens"]
NeedType = Literal[
    "needs-evidence",
    "needs-reframing",
    "needs-primitive",
    "needs-clarification",
    "needs-approval",
]
NEED_TYPES: tuple[NeedType, ...] = get_args(NeedType)
# The members that an outcome of each tag has, in this order.
MEMBERS: dict[Tag, tuple[str, ...]] = {
    "ok": ("value",),
    "proposed": ("value", "proposals"),
    "nonconverged": ("value", "iterations", "reason"),
    "cycle": ("value", "cycle_length", "signatures"),
    "needs": ("need_type", "description", "context"),
    "error": ("message", "error_type", "stacktrace"),
}


class Symbol(str):
    """A name as a value. It equals the same text; its class tells them apart."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """What an outcome has cost, as far as that is known."""

    iterations: int | None = None
    tokens: int | None = None
    cost_microdollars: int | None = None
    time_ms: int | None = None
    signature: str | None = None

    def json(self) -> dict[str, Any]:
        """The members that are known."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


_UNKNOWN = Metadata()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended, or a part of its program; itself a value.

    `members` are those of its tag in `MEMBERS`, in that order.
    """

    tag: Tag
    members: tuple["Value", ...]
    metadata: Metadata = _UNKNOWN

    def __post_init__(self) -> None:
        names = MEMBERS[self.tag]
        if len(self.members) != len(names):
            raise ValueError(f"an outcome {self.tag} has the members {', '.join(names)}")

    @property
    def value(self) -> "Value":
        """The result so far; None for `needs` and `error`, which have none."""
        return self.members[0] if MEMBERS[self.tag][0] == "value" else None

    def member(self, name: str) -> "Value":
        """Raises: KeyError if outcomes of this tag have no such member."""
        try:
            return self.members[MEMBERS[self.tag].index(name)]
        except ValueError:
            raise KeyError(name) from None

    def json(self) -> dict[str, Any]:
        """Tag, members and metadata in JSON's types; an empty stack trace is left out."""
        shown: dict[str, Any] = plain(self)
        return shown


Value: TypeAlias = bool | int | float | Symbol | str | tuple["Value", ...] | Outcome | None


def ok(value: Value) -> Outcome:
    """The program ended with a value."""
    return Outcome("ok", (value,))


def proposed(value: Value, proposals: Sequence[Value] = ()) -> Outcome:
    """The program ended with a value, and with changes that the host may commit."""
    return Outcome("proposed", (value, tuple(proposals)))


def nonconverged(value: Value, iterations: int, reason: Exhausted) -> Outcome:
    """A limit was reached before the result was final."""
    return Outcome("nonconverged", (value, iterations, reason))


def needs(need_type: NeedType, description: str, context: Value = None) -> Outcome:
    """The program can't go on without something that the host may give."""
    return Outcome("needs", (need_type, description, context))


def error(message: str, error_type: str, stacktrace: Sequence[str] = ()) -> Outcome:
    """The program failed; `error_type` is `policy-violation` or `runtime-error`."""
    return Outcome("error", (message, error_type, tuple(stacktrace)))


# Values that are the same in JSON.
_PLAIN = frozenset({type(None), bool, int, float, str})


def plain(value: Value) -> Any:
    """A value in JSON's types; a symbol becomes its text. It may be nested to any depth."""
    result: list[Any] = [value]
    # What is still to be converted: a value, and its place in the result.
    waiting: list[tuple[Value, Any, int | str]] = [(value, result, 0)]
    while waiting:
        each, around, at = waiting.pop()
        if isinstance(each, tuple):
            items: list[Any] = list(each)
            around[at] = items
            waiting += [
                (item, items, number)
                for number, item in enumerate(items)
                if type(item) not in _PLAIN
            ]
        elif isinstance(each, Outcome):
            members: dict[str, Any] = {"tag": each.tag}
            around[at] = members
            for name, member in zip(MEMBERS[each.tag], each.members, strict=True):
                if name != "stacktrace" or member:
                    members[name] = member
                    waiting.append((member, members, name))
            members["metadata"] = each.metadata.json()
        else:
            around[at] = str(each) if isinstance(each, Symbol) else each
    return result[0]
