"""Hooks: added, listed and removed; their messages that could not be delivered."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import age, note, print_done, print_json

if TYPE_CHECKING:
    from paddock.client import Hook, HookDelivery, Paddock

app = group("URLs that receive a signed POST for each event of sessions.")


class HookEventName(StrEnum):
    """What a hook may be told of."""

    SESSION_CREATED = "session.created"
    SESSION_CLOSED = "session.closed"
    RUN_COMPLETED = "run.completed"
    APPROVAL_REQUESTED = "approval.requested"
    BUDGET_EXCEEDED = "budget.exceeded"
    CONTEXT_MISS = "context.miss"
    BREAK_GLASS = "access.break_glass"


class DeliveryStatus(StrEnum):
    """The status of a message."""

    WAITING = "waiting"
    UNDELIVERED = "undelivered"


_Hook = Annotated[str, typer.Argument(metavar="HOOK", help="The hook's id.")]


@app.command("list", epilog=example("paddock hooks list"))
@remote
@lists
async def list_all(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List hooks without their secrets, and how many messages are not delivered."""
    _print(list(await paddock.hooks.list()), listing=listing)


@app.command(
    epilog=example("paddock hooks add https://ci.example.com/paddock --event run.completed")
)
@remote
async def add(
    paddock: "Paddock",
    target: Annotated[str, typer.Argument(metavar="URL", help="It gets the POSTs.")],
    event: Annotated[
        list[HookEventName], typer.Option("--event", metavar="EVENT", help="What it is told of.")
    ],
    of: Annotated[
        str | None,
        typer.Option("--of", metavar="KEY", help="Of this API key's sessions; for admins."),
    ] = None,
    secret: Annotated[
        bool,
        typer.Option("--secret", help="Read the secret from standard input, or ask for it."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a hook. Its secret, which verifies its messages, is shown this once."""
    added = await paddock.hooks.add(
        target, [each.value for each in event], key=of, secret=_secret() if secret else None
    )
    if as_json:
        print_json(added.raw)
        return
    note(f"the hook {added.id} is added")
    if not secret:
        print(added.secret)


@app.command("remove", epilog=example("paddock hooks remove hook-0123456789abcdef"))
@remote
async def remove_one(paddock: "Paddock", hook: _Hook, as_json: AsJson = False) -> None:
    """Remove a hook and its messages."""
    removed = await paddock.hooks.remove(hook)
    print_done(removed, as_json, f"the hook {hook} is removed")


@app.command(epilog=example("paddock hooks deliveries hook-0123456789abcdef --status undelivered"))
@remote
@lists
async def deliveries(
    paddock: "Paddock",
    hook: _Hook,
    status: Annotated[
        DeliveryStatus | None,
        typer.Option(metavar="STATUS", help="Only those that are waiting, or undelivered."),
    ] = None,
    listing: Listing = TABLE,
) -> None:
    """List the oldest messages that are not delivered."""
    wanted: Literal["waiting", "undelivered"] | None = None if status is None else status.value
    found = await paddock.hooks.deliveries(hook, status=wanted)
    _print_deliveries(found.items, listing=listing)


@app.command(epilog=example("paddock hooks retry hook-0123456789abcdef dlv-0123456789abcdef"))
@remote
async def retry(
    paddock: "Paddock",
    hook: _Hook,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="The message's id.")],
    as_json: AsJson = False,
) -> None:
    """Send an undelivered message again."""
    _print_deliveries([await paddock.hooks.retry(hook, delivery)], listing=as_json)


def _secret() -> str:
    """From standard input, or from a person."""
    if sys.stdin.isatty():
        return str(typer.prompt("Secret", hide_input=True))
    return sys.stdin.readline().strip()


def _print(found: "list[Hook]", *, listing: "bool | Listing") -> None:
    print_items(
        found,
        listing,
        ("id", "of", "events", ">waiting", ">undelivered", ">age", "url"),
        lambda each: (
            each.id,
            each.key or "all",
            ",".join(each.events),
            "lost" if each.lost else str(each.waiting),
            str(each.undelivered),
            age(each.created_at),
            each.url,
        ),
        nothing="there are no hooks",
    )


def _print_deliveries(found: "list[HookDelivery]", *, listing: "bool | Listing") -> None:
    print_items(
        found,
        listing,
        ("id", "status", "event", "session", ">tries", ">tried", "error"),
        lambda each: (
            each.id,
            each.status,
            each.type,
            each.session,
            str(each.tries),
            "-" if each.tried_at is None else age(each.tried_at),
            each.error or "-",
        ),
        nothing="every message is delivered",
    )
