"""The long-term memory: listed, searched, written and removed."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, SessionId, example, group
from paddock.cli.output import age, note, print_done, print_foreign, print_json

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


@app.command(epilog=example('paddock memory search web-1 "run tests"'))
@remote
@lists
async def search(
    paddock: "Paddock",
    session: SessionId,
    query: Annotated[
        str, typer.Argument(metavar="[WORDS]", help="Entries have one of them; else the newest.")
    ] = "",
    namespace: _Namespace = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=50, metavar="N", help="The most; by default 10.")
    ] = None,
    listing: Listing = TABLE,
) -> None:
    """Find what a session may remember, the best first."""
    of_session = (await paddock.sessions.get(session)).memory
    _print(await of_session.search(query, namespace=namespace, limit=limit), listing=listing)


@app.command(epilog=example("paddock memory write web-1 'The tests need PYTHONPATH=src.'"))
@remote
async def write(
    paddock: "Paddock",
    session: SessionId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="At most 8 KiB.")],
    namespace: _Namespace = None,
    tag: _Tags = None,
    as_json: AsJson = False,
) -> None:
    """Add a note as a session at high does, for later sessions of its key."""
    of_session = (await paddock.sessions.get(session)).memory
    _print([await of_session.write(text, namespace=namespace, tags=tag)], listing=as_json)


@app.command(epilog=example("paddock memory bootstrap web-1"))
@remote
async def bootstrap(
    paddock: "Paddock", session: SessionId, namespace: _Namespace = None, as_json: AsJson = False
) -> None:
    """Show the text with which a session begins."""
    found = await (await paddock.sessions.get(session)).memory.bootstrap(namespace=namespace)
    if as_json:
        print_json(found.raw)
    elif found.text:
        print_foreign(found.text.rstrip("\n") + "\n", sys.stdout)
    else:
        note(f"{session} begins with nothing: `paddock memory add --kind sop TEXT`")


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
