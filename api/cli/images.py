"""Images on this machine's engine, and the list of those that sessions may have."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import age, note, print_fields, print_json, size, working

if TYPE_CHECKING:
    from images.recipes import Recipe
    from orchestrator.settings.settings import Settings

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Which image, or the path of a list of packages.")
]
_Image = Annotated[
    str, typer.Argument(metavar="IMAGE", help="An image's name; `dev` is paddock/dev:latest.")
]

app = group("Images on this machine's container engine, and which of them sessions may have.")

_ENGINE = "`paddock doctor` reports what the engine lacks"


@app.command("list", epilog=example("paddock images list"))
@lists
def list_all(listing: Listing = TABLE) -> None:
    """List the images that can be built or that sessions may have, and whether they are current."""
    from images.errors import BuildError
    from images.inventory import inventory
    from orchestrator.settings.image_list import listed

    settings = _settings()
    allowed = listed(settings)
    try:
        found = inventory(allowed, settings.image)
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    items = [{**image._asdict(), "listed": image.image in allowed} for image in found]
    print_items(
        items,
        listing,
        ("name", "image", "state", "sessions", ">size", ">age"),
        lambda image: (
            image["recipe"],
            image["image"],
            image["state"],
            _for_sessions(image["image"], allowed, settings),
            None if image["size"] is None else size(image["size"]),
            None if image["created"] is None else age(datetime.fromisoformat(image["created"])),
        ),
        nothing="no images",
        name=lambda image: image["image"],
    )


def _for_sessions(image: str, listed: tuple[str, ...], settings: "Settings") -> str | None:
    if image not in listed:
        return None
    levels = [level for level, own in settings.default_images.items() if own == image]
    if levels:
        return f"default of {', '.join(levels)}"
    return "default" if image == settings.image else "on request"


@app.command(epilog=example("paddock images show dev"))
def show(name: _Name, as_json: AsJson = False) -> None:
    """Show one image: its packages, and whether it is on the engine and current."""
    from images.errors import BuildError
    from images.inventory import look_up, look_up_other
    from orchestrator.settings.image_list import listed

    settings = _settings()
    other = _full_name(name, settings)
    packages: tuple[str, ...] = ()
    try:
        if other in listed(settings) and not _is_recipe(other, settings):
            found = look_up_other(other)
        else:
            recipe = _recipe(name, settings)
            found, packages = look_up(recipe), recipe.more_packages
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json({**found._asdict(), "packages": packages})
        return
    print_fields(
        (
            ("name", found.recipe),
            ("image", found.image),
            ("description", found.description or None),
            ("packages", " ".join(packages) or None),
            ("state", found.state),
            ("id", found.id),
            ("size", None if found.size is None else size(found.size)),
            ("age", None if found.created is None else age(datetime.fromisoformat(found.created))),
        )
    )
    if found.state != "current" and found.recipe is not None:
        note(f"`paddock images build {name}` builds it")


@app.command(epilog=example("paddock images build sandbox"))
def build(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Which image, or the path of a list of packages; by default that of "
            "PADDOCK_IMAGE.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    tag: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Another name for the image.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build an image if its inputs changed; works without a registry, too."""
    from images import builder
    from images.errors import BuildError
    from orchestrator.settings.image_list import listed

    settings = _settings()
    try:
        recipe = _recipe(name, settings)
        with working(f"building {recipe.name}"):
            made = builder.build(tag, recipe=recipe, force=force, report=note)
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json(made._asdict())
        return
    print(f"{made.name} {'built' if made.built else 'is current'}")
    if recipe.more_packages and made.name not in listed(settings):
        note(f"sessions may have it after `paddock images add {made.name}`")


@app.command(epilog=example("paddock images add dev"))
def add(image: _Image) -> None:
    """Let sessions have an image, which must be on the engine.

    A running control plane permits it at once, to the keys and levels that permit it.
    """
    from images.errors import BuildError
    from images.inventory import why_not_usable
    from orchestrator.settings.image_list import add_image, check_name, listed

    settings = _settings()
    name = check_name(_full_name(image, settings))
    if name in listed(settings):
        note(f"{name} is on the list already")
        return
    try:
        problem = why_not_usable(name)
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if problem is not None:
        raise Failure(problem)
    add_image(settings.images_path, name)
    note(f"{name} is in {settings.images_path}")


@app.command(epilog=example("paddock images remove dev"))
def remove(image: _Image) -> None:
    """Take an image off the list: no new session gets it. It stays on the engine."""
    from orchestrator.settings.image_list import remove_image

    settings = _settings()
    name = _full_name(image, settings)
    if not remove_image(settings.images_path, name):
        variable = _variable(name, settings)
        if variable is not None:
            raise Failure(f"{name} is on the list by {variable}", "change it there", Status.USAGE)
        raise Failure(
            f"{name} is not on the list", "`paddock images list` shows it", Status.NOT_FOUND
        )
    note(f"{name} is no longer in {settings.images_path}")


def _variable(image: str, settings: "Settings") -> str | None:
    """The setting that has the image on the list."""
    if image == settings.image:
        return "PADDOCK_IMAGE"
    if image in settings.default_images.values():
        return "PADDOCK_LEVEL_IMAGES"
    return "PADDOCK_IMAGES" if image in settings.images else None


def _settings() -> "Settings":
    from orchestrator.settings.settings import load_settings

    return load_settings()


def _full_name(image: str, settings: "Settings") -> str:
    """The image of the recipe of that name, or the listed image of that short name, or itself."""
    from images.recipes import recipes
    from orchestrator.host.engine.image_names import short_name
    from orchestrator.settings.image_list import listed

    known = recipes(default_image=settings.image)
    if image in known:
        return known[image].image
    found = {name for name in listed(settings) if short_name(name) == image}
    return found.pop() if len(found) == 1 else image


def _is_recipe(image: str, settings: "Settings") -> bool:
    from images.recipes import recipes

    known = recipes(default_image=settings.image).values()
    return any(recipe.image == image for recipe in known)


def _recipe(name: str | None, settings: "Settings") -> "Recipe":
    from images.recipes import ROOT, default_recipe, find_recipe, recipes

    if name is None:
        return default_recipe(settings.image)
    try:
        return find_recipe(name, ROOT, settings.image)
    except LookupError:
        names = ", ".join(recipes())
        hint = f"it is one of {names}, or the path of a list of packages, such as ./my.toml"
        raise Failure(f"no image {name}", hint, Status.USAGE) from None
