"""Named snapshots: taken, listed and removed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, SessionId, example, group, pairs
from paddock.cli.output import age, print_done, size, working

if TYPE_CHECKING:
    from paddock.client import NamedSnapshot, Paddock

app = group("Copies of workspaces under names, from which sessions begin.")

_Name = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name or id.")]
_Of = Annotated[str | None, typer.Option("--of", metavar="KEY", help="Of this key; for admins.")]


@app.command(epilog=example("paddock snapshots create web-1 base"))
@remote
async def create(
    paddock: "Paddock",
    session: SessionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A new name.")],
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="A text to keep with the snapshot."),
    ] = None,
    layer: Annotated[
        bool, typer.Option("--layer", help="With what root inside has written over the image.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a copy of a session's workspace. The session may be in use."""
    texts = pairs(metadata, "--metadata")
    found = await paddock.sessions.get(session)
    with working(f"copying the workspace of {session}"):
        taken = await found.snapshots.create(name, metadata=texts or None, layer=layer)
    frozen = f"{taken.frozen_ms:.1f}"
    print_done(taken, as_json, f"the snapshot {name} is taken; writes waited for {frozen} ms")


@app.command("list", epilog=example("paddock snapshots list"))
@remote
@lists
async def list_all(
    paddock: "Paddock",
    session: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Of the workspace of this session.")
    ] = None,
    of: _Of = None,
    listing: Listing = TABLE,
) -> None:
    """List named snapshots."""
    found: list[NamedSnapshot] = []
    cursor = None
    while True:
        page = await paddock.snapshots.list(session=session, key=of, cursor=cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    _print(found, listing=listing)


@app.command(epilog=example("paddock snapshots show base"))
@remote
async def show(
    paddock: "Paddock", snapshot: _Name, of: _Of = None, as_json: AsJson = False
) -> None:
    """Show a named snapshot; while it is taken, how far that is."""
    _print([await paddock.snapshots.get(snapshot, key=of)], listing=as_json)


@app.command("set", epilog=example("paddock snapshots set base --metadata tested=yes"))
@remote
async def change(
    paddock: "Paddock",
    snapshot: _Name,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="A text to keep with it.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="The name of a text to remove.")
    ] = None,
    of: _Of = None,
    as_json: AsJson = False,
) -> None:
    """Change the texts that are kept with a named snapshot. Its files stay as they are."""
    texts: dict[str, str | None] = {**dict.fromkeys(remove or [])}
    texts |= pairs(metadata, "--metadata")
    changed = await paddock.snapshots.change(snapshot, texts, key=of)
    print_done(changed, as_json, f"the snapshot {snapshot} is changed")


@app.command("rm", epilog=example("paddock snapshots rm base"))
@remote
async def remove(
    paddock: "Paddock", snapshot: _Name, of: _Of = None, as_json: AsJson = False
) -> None:
    """Remove a named snapshot. Sessions that began as it keep their files."""
    removed = await paddock.snapshots.remove(snapshot, key=of)
    print_done(removed, as_json, f"the snapshot {snapshot} is removed")


def _print(found: "Sequence[NamedSnapshot]", *, listing: "bool | Listing") -> None:
    print_items(
        found,
        listing,
        ("name", "id", "key", "session", "status", ">used", ">stored", ">age"),
        lambda each: (
            each.name,
            each.id,
            each.key,
            each.session_id,
            each.status if each.copied_bytes is None else f"{size(each.copied_bytes)} copied",
            size(each.used_bytes),
            size(each.stored_bytes),
            age(each.created_at),
        ),
        nothing="there are no named snapshots: `paddock snapshots create` takes one",
    )
