"""Users who sign in by an issuer of tokens, over the HTTP API."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import example, group
from paddock.cli.output import note

if TYPE_CHECKING:
    from paddock.client import Paddock
    from paddock.contract.sign_in import User

app = group("Users who sign in by an issuer, over the API, with an admin's key.")

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A user, or @ISSUER for all users of an issuer.")
]


@app.command("list", epilog=example("paddock users list"))
@remote
@lists
async def list_all(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List the users who have signed in, and until when."""
    found: list[User] = []
    missing: set[str] = set()
    cursor = None
    while True:
        page = await paddock.users.list(cursor=cursor, limit=1000)
        found += page.items
        missing.update(page.missing)
        cursor = page.next
        if cursor is None:
            break
    if missing:
        note(f"these nodes did not answer: {', '.join(sorted(missing))}")
    print_items(
        found,
        listing,
        ("name", "role", "signed in", "until", "handles until", "node"),
        lambda user: (
            user.name,
            user.role,
            "yes" if user.signed_in else "",
            f"{user.until:%Y-%m-%d %H:%M}",
            f"{user.handles_until:%Y-%m-%d %H:%M}",
            user.node or "",
        ),
        nothing="nobody has signed in: `paddock login URL --sso` does",
    )


@app.command(epilog=example("paddock users revoke alice@corp"))
@remote
async def revoke(paddock: "Paddock", name: _Name) -> None:
    """Refuse what a user has from before now: tokens, streams, terminals, handles.

    The user may sign in again, unless the issuer or the rules refuse it.
    """
    await paddock.users.revoke(name)
    note(f"{name} has nothing from before now")
