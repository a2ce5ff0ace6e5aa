"""What was denied most, over all sessions."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.description import summary
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import example
from paddock.cli.output import age

if TYPE_CHECKING:
    from paddock.client import Paddock


def add_to(app: typer.Typer) -> None:
    """Adds the command to the group `audit`."""
    app.command(epilog=example("paddock audit denials --since 2026-03-04"))(denials)


@remote
@lists
async def denials(
    paddock: "Paddock",
    since: Annotated[
        datetime | None, typer.Option(metavar="TIME", help="Only since then, as ISO 8601.")
    ] = None,
    listing: Listing = TABLE,
) -> None:
    """List what was denied most, by session, operation and rule, of the latest 1,000 denials."""
    moment = None if since is None else since.astimezone()
    print_items(
        await paddock.denials(since=moment),
        listing,
        ("session", ">times", "operation", "rule", ">latest", "for example"),
        lambda each: (
            each.session_id,
            each.times,
            each.operation,
            each.rule,
            age(each.latest.time),
            summary(each.latest.raw),
        ),
        nothing="nothing was denied",
    )
