"""Lists and builds images on this machine's engine."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, example, group
from paddock.cli.terminal import age, note, print_fields, print_json, print_table, size, working

if TYPE_CHECKING:
    from images.recipes import Recipe

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Which image, or the path of a list of packages.")
]

app = group("Images on this machine's container engine.")

_ENGINE = "`paddock doctor` reports what the engine lacks"


@app.command("list", epilog=example("paddock images list"))
def list_all(as_json: AsJson = False) -> None:
    """List the images that can be built, and whether they are on the engine and current."""
    from images.errors import BuildError
    from images.inventory import inventory

    try:
        found = inventory()
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json([image._asdict() for image in found])
        return
    rows = [
        (
            image.recipe,
            image.image,
            image.state,
            None if image.size is None else size(image.size),
            None if image.created is None else age(datetime.fromisoformat(image.created)),
        )
        for image in found
    ]
    print_table(("name", "image", "state", ">size", ">age"), rows, nothing="no images")


@app.command(epilog=example("paddock images show dev"))
def show(name: _Name, as_json: AsJson = False) -> None:
    """Show one image: its packages, and whether it is on the engine and current."""
    from images.errors import BuildError
    from images.inventory import look_up

    try:
        recipe = _recipe(name)
        found = look_up(recipe)
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json({**found._asdict(), "packages": recipe.more_packages})
        return
    print_fields(
        (
            ("name", found.recipe),
            ("image", found.image),
            ("description", found.description),
            ("packages", " ".join(recipe.more_packages) or None),
            ("state", found.state),
            ("id", found.id),
            ("size", None if found.size is None else size(found.size)),
            ("age", None if found.created is None else age(datetime.fromisoformat(found.created))),
        )
    )
    if found.state != "current":
        note(f"`paddock images build {name}` builds it")


@app.command(epilog=example("paddock images build sandbox"))
def build(
    name: _Name = "sandbox",
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    tag: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Another name for the image.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build an image if its inputs changed; works without a registry, too."""
    from images import builder
    from images.errors import BuildError

    try:
        recipe = _recipe(name)
        with working(f"building {recipe.name}"):
            made = builder.build(tag, recipe=recipe, force=force, report=note)
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json(made._asdict())
        return
    print(f"{made.name} {'built' if made.built else 'is current'}")
    if recipe.more_packages:
        note(f"add it to PADDOCK_IMAGES, and sessions may name {made.name}")


def _recipe(name: str) -> "Recipe":
    from images.recipes import find_recipe, recipes

    try:
        return find_recipe(name)
    except LookupError:
        names = ", ".join(recipes())
        hint = f"it is one of {names}, or the path of a list of packages, such as ./my.toml"
        raise Failure(f"no image {name}", hint, Status.USAGE) from None
