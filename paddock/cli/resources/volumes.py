"""Volumes: created, listed and removed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, Near, NodeLabels, byte_count, example, group, placed
from paddock.cli.output import age, print_done, size

if TYPE_CHECKING:
    from paddock.client import Paddock, Volume

app = group("Files that sessions of a key mount, and that outlive all of them.")

_Name = Annotated[str, typer.Argument(metavar="VOLUME", help="The volume's name.")]
_Of = Annotated[str | None, typer.Option("--of", metavar="KEY", help="Of this key; for admins.")]


@app.command(epilog=example("paddock volumes create cache --size 1GiB"))
@remote
async def create(
    paddock: "Paddock",
    volume: _Name,
    size: Annotated[
        str, typer.Option(metavar="BYTES", help="What it can hold, such as 64MiB or 1GiB.")
    ],
    node_label: NodeLabels = None,
    near: Near = None,
    as_json: AsJson = False,
) -> None:
    """Create an empty volume."""
    created = await paddock.volumes.create(
        volume, size_bytes=byte_count(size, "--size"), placement=placed(node_label, near)
    )
    print_done(created, as_json, f"the volume {volume} is created")


@app.command("list", epilog=example("paddock volumes list"))
@remote
@lists
async def list_all(paddock: "Paddock", of: _Of = None, listing: Listing = TABLE) -> None:
    """List volumes, and the sessions that have them."""
    found: list[Volume] = []
    cursor = None
    while True:
        page = await paddock.volumes.list(key=of, cursor=cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    _print(found, listing=listing)


@app.command(epilog=example("paddock volumes show cache"))
@remote
async def show(paddock: "Paddock", volume: _Name, of: _Of = None, as_json: AsJson = False) -> None:
    """Show a volume."""
    _print([await paddock.volumes.get(volume, key=of)], listing=as_json)


@app.command(epilog=example("paddock volumes remove cache"))
@remote
async def remove(
    paddock: "Paddock", volume: _Name, of: _Of = None, as_json: AsJson = False
) -> None:
    """Remove a volume that no session has, with all of its files."""
    removed = await paddock.volumes.remove(volume, key=of)
    print_done(removed, as_json, f"the volume {volume} is removed")


def _print(found: "Sequence[Volume]", *, listing: "bool | Listing") -> None:
    print_items(
        found,
        listing,
        ("name", "key", ">size", ">used", ">age", "sessions"),
        lambda each: (
            each.name,
            each.key,
            size(each.size_bytes),
            "-" if each.used_bytes is None else size(each.used_bytes),
            age(each.created_at),
            ",".join(f"{use.id}{':ro' if use.read_only else ''}" for use in each.sessions) or "-",
        ),
        nothing="there are no volumes: `paddock volumes create` makes one",
    )
