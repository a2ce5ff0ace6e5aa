"""Images on this machine's engine, and the list of those that sessions may have."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli import image_files
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import (
    age,
    note,
    print_fields,
    print_json,
    print_table,
    size,
    working,
)

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
app.add_typer(image_files.app)

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
    programs: tuple[str, ...] = ()
    try:
        if other in listed(settings) and not _is_recipe(other, settings):
            found = look_up_other(other)
        else:
            recipe = _recipe(name, settings)
            found, packages = look_up(recipe), recipe.more_packages
            programs = (*recipe.programs.npm, *recipe.programs.pip)
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if as_json:
        print_json({**found._asdict(), "packages": packages, "programs": programs})
        return
    print_fields(
        (
            ("name", found.recipe),
            ("image", found.image),
            ("description", found.description or None),
            ("packages", " ".join(packages) or None),
            ("programs", " ".join(programs) or None),
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
def add(
    image: _Image,
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            help="What the image is on the engine or in a registry, if IMAGE is to be a new name.",
        ),
    ] = None,
) -> None:
    """Let sessions have an image; any image is pulled if the engine does not have it.

    One that was not built on Paddock's is checked: what each level needs of it. It is used as it
    was checked, until it is added again. A running control plane permits it at once, to the keys
    and levels that permit it.
    """
    from images.errors import BuildError
    from images.foreign import bring, is_ours
    from images.inventory import why_not_usable
    from orchestrator.settings.image_list import add_image, check_name, listed

    settings = _settings()
    name = check_name(_full_name(image, settings))
    if reference is None and _is_recipe(name, settings) and name in listed(settings):
        note(f"{name} is on the list already")
        return
    try:
        with working(f"bringing {name}"):
            bring(name, None if reference is None else check_name(reference), note)
        ours = is_ours(name)
        problem = why_not_usable(name) if ours else None
    except BuildError as error:
        raise Failure(str(error), _ENGINE) from None
    if problem is not None:
        raise Failure(problem)
    if not ours:
        if name == settings.image:
            raise Failure(f"{name} is the default image, which must be one of Paddock's")
        _check(name, settings)
    if name in listed(settings):
        note(f"{name} is on the list already")
        return
    add_image(settings.images_path, name)
    note(f"{name} is in {settings.images_path}")


def _check(name: str, settings: "Settings") -> None:
    """Checks an image that is not ours, and keeps what was found."""
    import asyncio

    from images.foreign import check
    from orchestrator.ground.errors import PaddockError
    from orchestrator.rules.policy.levels import load_levels
    from orchestrator.sandbox.images.image_report import level_reports, notes

    levels = list(load_levels(settings.levels_dir, cluster=settings.cluster is not None).values())
    try:
        with working(f"checking {name}"):
            facts = asyncio.run(check(name, settings, levels))
    except PaddockError as error:
        raise Failure(error.detail) from None
    print_fields((("image", name), ("id", facts.id), ("size", size(facts.size))))
    reports = list(level_reports(facts, levels))
    print_table(("level", "sessions"), reports, nothing="there are no levels")
    for each in notes(facts):
        note(each)


@app.command(epilog=example("paddock images remove dev"))
def remove(image: _Image) -> None:
    """Take an image off the list: no new session gets it. It stays on the engine."""
    from orchestrator.sandbox.images.checked_images import CheckedImages
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
    CheckedImages(settings.state_dir).forget(name)
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
