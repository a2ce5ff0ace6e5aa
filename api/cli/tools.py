"""Checks and lists tool manifests on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import example
from paddock.cli.output import complain, note

app = typer.Typer()

_Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="A folder to use instead of PADDOCK_TOOLS_DIR."),
]


@app.command(epilog=example("paddock tools check"))
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Manifests; by default those of the tools folder."),
    ] = None,
) -> None:
    """Check manifests; for each invalid one, report which field is wrong, and why.

    Valid patterns that will hardly ever match as intended are named. The exit status is 1 if a
    manifest is invalid.
    """
    from orchestrator.rules.tools.advice import advice
    from orchestrator.rules.tools.catalog import PACKAGED, load_tool, manifest_files
    from orchestrator.rules.tools.manifest_reader import ManifestError

    wrong = 0
    paths = files or [*manifest_files(PACKAGED), *_folder_files()]
    for path in paths:
        try:
            manifest = load_tool(path)
        except ManifestError as error:
            complain(str(error))
            wrong += 1
            continue
        for sentence in advice(manifest):
            note(f"{path}: {sentence}")
    if wrong:
        raise typer.Exit(Status.FAILED)
    note(f"{len(paths)} can be used")


@app.command("list", epilog=example("paddock tools list"))
@lists
def list_all(directory: _Directory = None, listing: Listing = TABLE) -> None:
    """List the tools of the tools folder and the packaged ones."""
    from orchestrator.rules.tools.catalog import read_catalog
    from orchestrator.settings.settings import load_settings

    catalog, problems = read_catalog(directory or load_settings().tools_dir)
    commands = [
        {
            "name": manifest.tool_name(command.name),
            "description": command.description,
            "risk_tier": command.risk_tier,
            "human_approval": command.human_approval,
            "sha256": manifest.sha256,
        }
        for manifest in catalog.values()
        for command in manifest.commands.values()
    ]
    commands += [
        {
            "name": tool.name,
            "description": tool.description,
            "risk_tier": tool.risk_tier,
            "human_approval": tool.human_approval,
            "sha256": tool.sha256,
        }
        for tool in catalog.oneshots.values()
    ]
    print_items(
        commands,
        listing,
        ("tool", "risk", "approval", "what it does"),
        lambda each: (
            str(each["name"]),
            str(each["risk_tier"]),
            "yes" if each["human_approval"] else "no",
            str(each["description"]),
        ),
        nothing="no tools",
    )
    for problem in problems.values():
        complain(problem)
    if problems:
        raise typer.Exit(Status.FAILED)


def _folder_files() -> list[Path]:
    from orchestrator.rules.tools.catalog import manifest_files
    from orchestrator.settings.settings import load_settings

    directory = load_settings().tools_dir
    if directory is None:
        return []
    if not directory.is_dir():
        raise Failure(f"{directory}: is not a directory", status=Status.USAGE)
    return manifest_files(directory)


def oneshot_names() -> list[str]:
    """Names of this machine's oneshot tools; none if its settings can't be read."""
    from orchestrator.ground.config_error import ConfigError
    from orchestrator.rules.tools.catalog import read_catalog
    from orchestrator.settings.settings import load_settings

    try:
        return list(read_catalog(load_settings().tools_dir).catalog.oneshots)
    except ConfigError:
        return []
