"""Lists and builds images on this machine's engine."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, example, group
from paddock.cli.terminal import age, note, print_json, print_table, size, working

app = group("Images on this machine's container engine.")

_ENGINE = "`paddock doctor` reports what the engine lacks"


@app.command("list", epilog=example("paddock images list"))
def list_all(as_json: AsJson = False) -> None:
    """List the images that can be built, and whether they are on the engine."""
    from images.errors import BuildError
    from images.inventory import inventory

    try:
        found = inventory()
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json([asdict(image) for image in found])
        return
    rows = [
        (
            image.recipe,
            image.image,
            "missing" if image.id is None else image.id.removeprefix("sha256:")[:12],
            None if image.size is None else size(image.size),
            None if image.created is None else age(datetime.fromisoformat(image.created)),
        )
        for image in found
    ]
    print_table(("name", "image", "id", ">size", ">age"), rows, nothing="no images")


@app.command(epilog=example("paddock images build sandbox"))
def build(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which image.")] = "sandbox",
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    tag: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Another name for the image.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build an image if its inputs changed; works without a registry, too."""
    from images import builder
    from images.errors import BuildError
    from images.recipes import RECIPES

    if name not in RECIPES:
        raise Failure(f"no image {name}", f"it is one of {', '.join(RECIPES)}", Status.USAGE)
    try:
        with working(f"building {name}"):
            made = builder.build(tag, recipe=RECIPES[name], force=force, report=note)
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json(made._asdict())
    else:
        print(f"{made.name} {'built' if made.built else 'is current'}")
