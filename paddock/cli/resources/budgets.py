"""Session budgets: set at creation, and shown at any time."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.options import AsJson, SessionId, example, pairs
from paddock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from paddock.client import Budget, Paddock

Amounts = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="KIND=AMOUNT",
        help="What it may use up in all: time, cpu_seconds, commands, output_bytes, …",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock budget web-1"))(budget)


@remote
async def budget(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """Show a session's budget: limits, what is used, what is left."""
    show_budget(await (await paddock.sessions.get(session)).budget(), as_json)


def show_budget(found: "Budget", as_json: bool) -> None:
    """Prints a budget as a table, or as JSON."""
    if as_json:
        print_json(found.raw)
        return
    consumed, remaining = dict(found.consumed), dict(found.remaining)
    rows = [
        (kind, _amount(limit), _amount(consumed.get(kind)), _amount(remaining.get(kind)))
        for kind, limit in found.limits
    ]
    print_table(("kind", ">limit", ">used", ">left"), rows, nothing="")


def amounts(texts: list[str] | None) -> dict[str, int | float] | None:
    """`KIND=AMOUNT` texts as a mapping. Raises: typer.BadParameter."""
    if not texts:
        return None
    return {kind: _number(kind, text) for kind, text in pairs(texts, "--budget").items()}


def _number(kind: str, text: str) -> int | float:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    raise typer.BadParameter(f"{kind}={text}: {text!r} is not a number", param_hint="--budget")


def _amount(value: float | None) -> str:
    """A number without meaningless last digits; a dash if there is no limit."""
    return "-" if value is None else f"{round(value, 3):.15g}"
