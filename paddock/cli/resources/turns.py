"""Turns: run programs of governed operations in a session, and look at earlier ones."""

import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, SessionId, TurnTimeLimit, example
from paddock.cli.output import (
    STYLES,
    complain,
    note,
    print_foreign,
    print_json,
    print_json_line,
    print_line,
)

if TYPE_CHECKING:
    from paddock.client import Outcome, Paddock, Session, Turn, TurnOperation

_SUBJECTS = ("ref", "command", "text", "prompt", "request", "script", "words")
_LONGEST = 60


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(epilog=example("paddock turn web-1 -e '(world.list \".\")'"))(turn)
    app.command(epilog=example("paddock turns web-1"))(turns)


@remote
async def turn(
    paddock: "Paddock",
    session: SessionId,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="A program in Lisp; - is the input."),
    ] = None,
    expression: Annotated[
        str | None, typer.Option("--expression", "-e", metavar="CODE", help="A program in Lisp.")
    ] = None,
    operations: Annotated[
        Path | None,
        typer.Option("--operations", metavar="FILE", help="A JSON list of operations."),
    ] = None,
    timeout: TurnTimeLimit = None,
    as_json: AsJson = False,
) -> int:
    """Run a turn: a program whose operations the session's policy permits or refuses.

    Shows each operation as it happens, and then the value. The exit status is 0 if the outcome is
    `ok` or `proposed`, and 1 otherwise.
    """
    script = _script(file, expression, operations) | {"timeout": timeout}
    return await follow(await paddock.sessions.get(session), script, as_json)


async def follow(session: "Session", script: dict[str, Any], as_json: bool) -> int:
    """Runs a turn and shows its operations and its end; returns the exit status."""
    from paddock.client import Turn, TurnOperation

    ended: Turn | None = None
    async with aclosing(session.turns.stream(**script)) as events:
        async for event in events:
            if as_json:
                print_json_line(event.raw)
            elif isinstance(event, TurnOperation):
                _show_operation(event)
            if isinstance(event, Turn):
                ended = event
    outcome = None if ended is None else ended.outcome
    if ended is None or outcome is None:
        return Status.FAILED
    if not as_json:
        _show_end(ended, outcome)
    return Status.OK if outcome.tag in ("ok", "proposed") else Status.FAILED


@remote
@lists
async def turns(
    paddock: "Paddock",
    session: SessionId,
    number: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", min=1, help="One turn, with its operations.")
    ] = None,
    listing: Listing = TABLE,
) -> None:
    """List a session's turns, or show one."""
    found = await paddock.sessions.get(session)
    if number is not None:
        shown = await found.turns.get(number)
        if listing.json:
            print_json(shown.raw)
            return
        for operation in shown.operations:
            _show_operation(operation)
        if shown.outcome is not None:
            _show_end(shown, shown.outcome)
        return
    items, after = [], 0
    while True:
        page = await found.turns.list(after=after)
        items += page.items
        if page.next is None:
            break
        after = page.next
    print_items(
        items,
        listing,
        (">turn", "outcome", ">operations", ">tokens", "by", "began"),
        lambda each: (
            each.turn_number,
            each.status if each.outcome is None else each.outcome.tag,
            each.operations_count,
            each.tokens_used,
            each.actor,
            str(each.started_at),
        ),
        nothing="no turns",
    )


def _script(file: Path | None, expression: str | None, operations: Path | None) -> dict[str, Any]:
    """The arguments of the client's method. Raises: Failure."""
    if sum(each is not None for each in (file, expression, operations)) != 1:
        raise Failure("give one of --file, --expression and --operations", status=Status.USAGE)
    if expression is not None:
        return {"code": expression}
    place = file or operations
    try:
        text = sys.stdin.read() if str(place) == "-" else Path(str(place)).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{place}: {error}", status=Status.USAGE) from None
    if operations is None:
        return {"code": text}
    try:
        calls = [(str(each["operation"]), each.get("args", {})) for each in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        what = f"{place} must be a JSON list of {{operation, args}}"
        raise Failure(what, status=Status.USAGE) from None
    return {"operations": calls}


def _show_operation(operation: "TurnOperation") -> None:
    args = operation.args
    subject = next((args[name] for name in _SUBJECTS if name in args), "")
    text = subject if isinstance(subject, str) else json.dumps(subject)
    decision = operation.decision or ""
    print_line(
        (f"{decision:5} ", STYLES.get(decision, "")),
        (f"{operation.operation:18} ", ""),
        (text[:_LONGEST], "dim"),
        (f"  {operation.error}" if operation.error else "", "red"),
    )


def _show_end(turn: "Turn", outcome: "Outcome") -> None:
    if turn.printed:
        print_foreign(turn.printed, sys.stdout)
    value = outcome.raw.get("value")
    if value is not None:
        shown = value if isinstance(value, str) else json.dumps(value, indent=2)
        print_foreign(shown if shown.endswith("\n") else f"{shown}\n", sys.stdout)
    if outcome.tag == "error":
        complain(f"{outcome.error_type}: {outcome.message}")
        for line in outcome.stacktrace or ():
            note(f"  in {line}")
        if remedy := outcome.metadata.get("remedy"):
            note(str(remedy))
    elif outcome.tag == "needs":
        complain(f"{outcome.need_type}: {outcome.description}")
    number = "" if turn.turn_number is None else f"turn {turn.turn_number}: "
    note(f"{number}{outcome.tag}, {turn.operations_count} operations, {turn.tokens_used} tokens")
