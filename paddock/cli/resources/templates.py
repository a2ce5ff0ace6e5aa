"""Templates: listed, shown and built."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.levels import complete_template
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import age, print_fields, print_json, size, working

if TYPE_CHECKING:
    from paddock.client import Paddock, Template

app = group("Prepared workspaces, from which sessions are created.")

_Name = Annotated[
    str,
    typer.Argument(
        metavar="TEMPLATE", help="The template's name.", autocompletion=complete_template
    ),
]


@app.command("list", epilog=example("paddock templates list"))
@remote
@lists
async def list_all(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List templates, and which are built."""
    print_items(
        await paddock.templates.list(),
        listing,
        ("name", "state", "level", "image", ">size", ">built", ">ready", "description"),
        lambda each: (
            each.name,
            each.state,
            each.permission_level,
            each.image or "-",
            "-" if each.size_bytes is None else size(each.size_bytes),
            "-" if each.built_at is None else age(each.built_at),
            _ready(each),
            each.description,
        ),
        nothing="there are no templates: the operator's PADDOCK_TEMPLATES_DIR has their files",
    )


@app.command(epilog=example("paddock templates show website"))
@remote
async def show(paddock: "Paddock", template: _Name, as_json: AsJson = False) -> None:
    """Show a template; of one that failed, what the failing command printed."""
    _print(await paddock.templates.get(template), as_json=as_json)


@app.command(epilog=example("paddock templates build website"))
@remote
async def build(paddock: "Paddock", template: _Name, as_json: AsJson = False) -> None:
    """Build a template unless it is built, also after a failure, and wait for that."""
    with working(f"building {template}"):
        built = await paddock.templates.build(template)
    _print(built, as_json=as_json)


def _ready(shown: "Template") -> str:
    return f"{shown.ready} of {shown.warm}" if shown.warm else "-"


def _print(shown: "Template", *, as_json: bool) -> None:
    if as_json:
        print_json(shown.raw)
        return
    failure = shown.failure
    print_fields(
        (
            ("name", shown.name),
            ("description", shown.description or None),
            ("state", shown.state),
            ("level", shown.permission_level),
            ("image", shown.image),
            ("files", " ".join(shown.files) or None),
            ("setup", "\n".join(shown.setup) or None),
            ("digest", shown.digest),
            ("built", None if shown.built_at is None else f"{shown.built_at:%Y-%m-%d %H:%M:%S}"),
            ("size", None if shown.size_bytes is None else size(shown.size_bytes)),
            ("ready", _ready(shown) if shown.warm else None),
            ("error", None if failure is None else failure.error),
            ("output", None if failure is None else failure.output or None),
        )
    )
