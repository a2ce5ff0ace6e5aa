"""The long-term memory: listed, searched, written and removed."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import age, print_done

if TYPE_CHECKING:
    from paddock.client import MemoryEntry, Paddock

app = group("What sessions remember for later ones of the same key.")


class Kind(StrEnum):
    """The kinds of entries."""

    NOTE = "note"
    BOOTSTRAP = "bootstrap"
    SOP = "sop"


_Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="The namespace; by default `default`.")
]
_Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag.")]
_Kind = Annotated[Kind, typer.Option(help="What it is: sessions begin with bootstrap and sop.")]
_Entry = Annotated[str, typer.Argument(metavar="ENTRY", help="The id of an entry.")]


@app.command("list", epilog=example("paddock memory list"))
@remote
@lists
async def list_all(
    paddock: "Paddock",
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="The namespace; by default all.")
    ] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="KEY", help="Of this API key; for admins.")
    ] = None,
    listing: Listing = TABLE,
) -> None:
    """List the newest entries."""
    found = await paddock.memory.list(namespace=namespace, key=of)
    _print(found.items, listing=listing)


@app.command(epilog=example("paddock memory add 'Run the tests before you finish.' --kind sop"))
@remote
async def add(
    paddock: "Paddock",
    text: Annotated[str, typer.Argument(metavar="TEXT", help="At most 8 KiB.")],
    namespace: _Namespace = None,
    tag: _Tags = None,
    kind: _Kind = Kind.NOTE,
    of: Annotated[
        str | None, typer.Option("--of", metavar="KEY", help="For this API key; for admins.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an entry for the sessions of the key."""
    added = await paddock.memory.add(text, namespace=namespace, tags=tag, kind=kind.value, key=of)
    _print([added], listing=as_json)


@app.command(epilog=example("paddock memory edit mem-0123456789abcdef 'Run all tests.'"))
@remote
async def edit(
    paddock: "Paddock",
    entry: _Entry,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="At most 8 KiB.")],
    namespace: _Namespace = None,
    tag: _Tags = None,
    kind: _Kind = Kind.NOTE,
    as_json: AsJson = False,
) -> None:
    """Replace all that an entry contains."""
    changed = await paddock.memory.change(
        entry, text, namespace=namespace, tags=tag, kind=kind.value
    )
    _print([changed], listing=as_json)


@app.command("remove", epilog=example("paddock memory remove mem-0123456789abcdef"))
@remote
async def remove_one(paddock: "Paddock", entry: _Entry, as_json: AsJson = False) -> None:
    """Forget an entry."""
    removed = await paddock.memory.remove(entry)
    print_done(removed, as_json, f"the entry {entry} is removed")


def _print(found: "Sequence[MemoryEntry]", *, listing: "bool | Listing") -> None:
    print_items(
        found,
        listing,
        ("id", "kind", "namespace", "from", "tags", ">age", "text"),
        lambda each: (
            each.id,
            each.kind,
            each.namespace,
            each.session or "host",
            ",".join(each.tags) or "-",
            age(each.changed_at),
            " ".join(each.text.split())[:60],
        ),
        nothing="the memory is empty",
    )
