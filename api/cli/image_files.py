"""Images as files, for machines that reach no registry and no mirror."""

from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.exits import Failure
from paddock.cli.options import AsJson, example
from paddock.cli.output import note, print_json, size, working

app = typer.Typer()


@app.command("export", epilog=example("paddock images export sandbox.tar sandbox"))
def export_images(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A new file; compressed if it ends with .gz.")
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Which images; by default all that the engine has of those that sessions may "
            "have. `dev` is paddock/dev:latest.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write images of this machine's engine to a file, for machines without networks.

    The same images make the same file. Its SHA-256, which the command prints, proves at the import
    that nobody has changed it. `docker load` reads the file, too, but verifies less.
    """
    from images.errors import BuildError
    from images.exporting import export
    from images.inventory import look_up_other
    from images.recipes import recipes
    from orchestrator.host.engine.image_names import familiar
    from orchestrator.settings.image_list import check_name, listed
    from orchestrator.settings.settings import load_settings

    settings = load_settings()
    known = {name: each.image for name, each in recipes(default_image=settings.image).items()}
    try:
        wanted = [familiar(check_name(known.get(name, name))) for name in names or ()] or [
            name for name in listed(settings) if look_up_other(name).state != "missing"
        ]
        if not wanted:
            raise Failure("the engine has none of the images", "`paddock images build` makes one")
        with working(f"exporting to {file}") as report:
            made = export(file, wanted, report)
    except BuildError as error:
        raise Failure(str(error)) from None
    if as_json:
        images = [
            {"name": each.name, "config": each.config.sha256, "bytes": each.size}
            for each in made.images
        ]
        print_json({"bytes": made.bytes, "sha256": made.sha256, "images": images})
        return
    print(f"{file}: {size(made.bytes)}, {', '.join(each.name for each in made.images)}")
    note(f"SHA-256 {made.sha256}")


@app.command("import", epilog=example("paddock images import sandbox.tar"))
def import_images(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What an export wrote.")],
    sha256: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="What the export printed: no other file is loaded."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load images from a file into this machine's engine.

    All of it is verified before the engine gets anything: each configuration and layer has the
    SHA-256 under which the file lists it, and nothing else is in it. `--sha256` also proves that it
    is the file that was exported, with the same names.
    """
    from images.errors import BuildError
    from images.importing import load

    try:
        with working(f"importing {file}") as report:
            loaded = load(file, sha256, report)
    except BuildError as error:
        raise Failure(str(error)) from None
    if as_json:
        print_json({"images": [each._asdict() for each in loaded]})
        return
    for each in loaded:
        print(f"{each.name} {each.id}")
        if each.replaced is not None:
            note(f"{each.name} was {each.replaced} before; new sessions get the new one")
