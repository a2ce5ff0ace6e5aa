"""What is kept of owners: for how long, exported, erased."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import note, print_done, size
from paddock.cli.several import confirm

if TYPE_CHECKING:
    from paddock.client import Paddock

app = group("What is kept of owners; with an admin's key.")

_Name = Annotated[str, typer.Argument(metavar="OWNER", help="The name of the owner's key.")]
_DAY = 86_400


@app.command(epilog=example("paddock owners export alice"))
@remote
async def export(paddock: "Paddock", owner: _Name, as_json: AsJson = False) -> None:
    """Write everything that is kept of an owner to a file on the server's machine.

    In a cluster, each node writes one on its machine.
    """
    note(f"exporting what is kept of {owner}")
    made = await paddock.owners.export(owner)
    lines = [
        f"{'' if each.node is None else f'{each.node}: '}{each.file} has {each.sessions} sessions,"
        f" {size(each.bytes)}"
        for each in made.files
    ]
    print_done(made, as_json, "\n".join(lines))
    if made.missing:
        note(f"no files of {', '.join(made.missing)}: ask again when they are back")


@app.command(epilog=example('paddock owners erase alice --reason "asked for by letter" --yes'))
@remote
async def erase(
    paddock: "Paddock",
    owner: _Name,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is on record.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase files, outputs, transcripts, memory and secrets of an owner; chains still verify."""
    if not yes:
        confirm(f"erase all content of {owner}, for ever")
    note(f"erasing the content of {owner}")
    done = await paddock.owners.erase(owner, reason=reason)
    print_done(done, as_json, f"erased {done.events} events of {done.sessions} sessions")
    if done.missing:
        note(f"{', '.join(done.missing)} will erase their part later, or when they are back")


def add_to(main: typer.Typer) -> None:
    """Adds `paddock retention`."""

    @main.command("retention", epilog=example("paddock retention"))
    @remote
    @lists
    async def retention(paddock: "Paddock", listing: Listing = TABLE) -> None:
        """Show what the server keeps, where, and for how long; with an admin's key."""
        print_items(
            await paddock.owners.retention(),
            listing,
            ("what", "kept for", "after", "else until", "erased with its owner", "setting"),
            lambda kept: (
                kept.what,
                _time(kept.seconds),
                kept.since,
                kept.ends,
                "yes" if kept.erased else "no",
                kept.setting or "-",
            ),
            nothing="nothing is kept",
        )


def _time(seconds: int | None) -> str:
    if seconds is None:
        return "no limit"
    return f"{seconds // _DAY} days" if seconds >= 2 * _DAY else f"{seconds} s"
