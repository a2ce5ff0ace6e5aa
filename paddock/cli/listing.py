"""How a command that lists prints what it has found: as a table, as JSON, or some of its fields."""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson
from paddock.cli.output import Cell, plain, print_json, print_table

if TYPE_CHECKING:
    from paddock.contract.base import Model

M = TypeVar("M", bound="Model | Mapping[str, Any]")
R = TypeVar("R")

_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only ids, one per line.")]
_Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="table, json, or fields of the JSON in a table, such as id,status.",
    ),
]
_TABLE = "table"
_OPTIONS = (("as_json", AsJson, False), ("quiet", _Quiet, False), ("form", _Format, _TABLE))


@dataclass(frozen=True, slots=True)
class Listing:
    """What is printed of each item; without any of these, a table for people."""

    json: bool = False
    ids: bool = False
    fields: tuple[str, ...] = ()


TABLE = Listing()


def lists(action: Callable[..., R]) -> Callable[..., R]:
    """Gives a command --json, --quiet and --format in place of its parameter `listing`."""

    @wraps(action)
    def command(*arguments: Any, as_json: bool, quiet: bool, form: str, **named: Any) -> R:
        return action(*arguments, listing=chosen(form, as_json=as_json, ids=quiet), **named)

    signature = inspect.signature(action)
    own = [each for name, each in signature.parameters.items() if name != "listing"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, annotation, default in _OPTIONS
    ]
    command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return command


def chosen(form: str, *, as_json: bool, ids: bool) -> Listing:
    """The listing that the options ask for. Raises: typer.BadParameter."""
    if as_json and form == _TABLE:
        form = "json"
    if (as_json and form != "json") or (ids and form != _TABLE):
        raise typer.BadParameter("give one of --json, --quiet and --format")
    if form in (_TABLE, "json"):
        return Listing(json=form == "json", ids=ids)
    fields = tuple(name.strip() for name in form.split(","))
    if not all(fields):
        message = f"{form!r} is neither table nor json nor fields, such as id,status"
        raise typer.BadParameter(message, param_hint="--format")
    return Listing(fields=fields)


def print_items(
    items: Iterable[M],
    listing: bool | Listing,
    columns: Sequence[str],
    row: Callable[[M], Sequence[Cell]],
    *,
    nothing: str,
    name: Callable[[M], Cell] | None = None,
) -> None:
    """Prints answers of the API, or other mappings; a bool is whether they are a JSON list.

    `name` is an item's id, by default the first cell of its row. Raises: Failure for a field that
    no item can have.
    """
    found = list(items)
    if listing is True or (listing and listing.json):
        print_json([_members(each) for each in found])
    elif listing and listing.ids:
        for each in found:
            print(plain(str(row(each)[0] if name is None else name(each))))
    elif listing and listing.fields:
        print_table(listing.fields, _fields(found, listing.fields), nothing=nothing)
    else:
        print_table(columns, map(row, found), nothing=nothing)


def _members(item: "Model | Mapping[str, Any]") -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else item.raw


def _possible(item: "Model | Mapping[str, Any]") -> Iterable[str]:
    """The fields that the item may have."""
    return item if isinstance(item, Mapping) else (*item.raw, *type(item).model_fields)


def _fields(items: Sequence["Model | Mapping[str, Any]"], names: Sequence[str]) -> list[list[Cell]]:
    """These fields of each item; objects and lists are JSON. Raises: Failure."""
    known = {name for each in items for name in _possible(each)}
    unknown = [name for name in names if name not in known]
    if items and unknown:
        fields = ", ".join(sorted(known))
        raise Failure(f"no field {unknown[0]!r}", f"there are {fields}", Status.USAGE)
    return [[_text(_members(each).get(name)) for name in names] for each in items]


def _text(value: Any) -> Cell:
    return value if value is None or isinstance(value, str) else json.dumps(value)
