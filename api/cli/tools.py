"""Tools: oneshot ones are run in a session; manifests are checked and listed on this machine."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.exits import Failure, Status
from api.cli.options import AsJson, Raw, SessionId, example, group, pairs
from api.cli.remote import remote
from api.cli.run import ended
from api.cli.terminal import complain, note, print_foreign, print_json, print_table

if TYPE_CHECKING:
    from api.client import Paddock, Tool

app = group("Tools: run oneshot ones, and look at manifests on this machine.")


def complete_tool(incomplete: str) -> list[str]:
    """Names of this machine's oneshot tools, for a shell that completes them."""
    from orchestrator.config import ConfigError, load_settings
    from orchestrator.tools.catalog import read_catalog

    try:
        names = read_catalog(load_settings().tools_dir).catalog.oneshots
    except ConfigError:
        return []
    return [name for name in names if name.startswith(incomplete)]


_Tool = Annotated[
    str,
    typer.Argument(metavar="TOOL", help="A oneshot tool.", autocompletion=complete_tool),
]

_Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Another folder than PADDOCK_TOOLS_DIR."),
]


@app.command(epilog=example("paddock tools run web-1 fetch url=https://staging.example.com/"))
@remote
async def run(
    paddock: "Paddock",
    session: SessionId,
    tool: _Tool,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="`paddock tools arguments` shows them."),
    ] = None,
    timeout: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="When it is ended.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=0, max=600, metavar="SECONDS", help="How long to wait for an approval."),
    ] = 0,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int:
    """Run a oneshot tool in a session, and show what it prints when it has ended.

    The exit status is the command's own, and 6 while it waits for an approval: then nothing was
    run, and the same command again asks again.
    """
    given = pairs(arguments, "an argument")
    found = await paddock.sessions.get(session)
    result = await found.run_tool(tool, given, timeout=timeout, wait=wait)
    if as_json:
        print_json({"session": session, **result.raw})
    else:
        print_foreign(result.stdout, sys.stdout, raw=raw)
        print_foreign(result.stderr, sys.stderr, raw=raw)
    return ended(result, tool)


@app.command(epilog=example("paddock tools arguments web-1 fetch"))
@remote
async def arguments(
    paddock: "Paddock", session: SessionId, tool: _Tool, as_json: AsJson = False
) -> None:
    """Show what arguments a session's oneshot tool takes."""
    found = await _oneshot(paddock, session, tool)
    if as_json:
        print_json(found.input_schema)
        return
    required = found.input_schema["required"]
    rows = [
        (name, "yes" if name in required else "no", _values(member), member["description"])
        for name, member in found.input_schema["properties"].items()
    ]
    columns = ("argument", "required", "values", "what it is")
    print_table(columns, rows, nothing=f"{tool} takes no arguments")


async def _oneshot(paddock: "Paddock", session: str, tool: str) -> "Tool":
    for each in await (await paddock.sessions.get(session)).tools():
        if each.name == tool and not each.command:
            return each
    what = f"there is no oneshot tool {tool} in {session}"
    raise Failure(what, "`paddock tools list` shows those of this machine", Status.NOT_FOUND)


def _values(member: Mapping[str, Any]) -> str:
    values = " | ".join(member.get("enum", ())) or "any"
    return values + (f" (else {member['default']})" if "default" in member else "")


@app.command(epilog=example("paddock tools check"))
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Manifests; otherwise those of the tools folder."),
    ] = None,
) -> None:
    """Check manifests, and say of each that can't be used which field is wrong, and why.

    Patterns that can be used, and will hardly match what they were written for, are named.
    The exit status is 1 where a manifest can't be used.
    """
    from orchestrator.tools.advice import advice
    from orchestrator.tools.catalog import PACKAGED, manifest_files
    from orchestrator.tools.loader import ManifestError
    from orchestrator.tools.reading import load_tool

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
def list_all(directory: _Directory = None, as_json: AsJson = False) -> None:
    """List what the tools folder and the shipped manifests offer."""
    from orchestrator.config import load_settings
    from orchestrator.tools.catalog import read_catalog

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
    if as_json:
        print_json(commands)
    else:
        rows = [
            (
                str(each["name"]),
                str(each["risk_tier"]),
                "yes" if each["human_approval"] else "no",
                str(each["description"]),
            )
            for each in commands
        ]
        print_table(("tool", "risk", "approval", "what it does"), rows, nothing="no tools")
    for problem in problems.values():
        complain(problem)
    if problems:
        raise typer.Exit(Status.FAILED)


def _folder_files() -> list[Path]:
    from orchestrator.config import load_settings
    from orchestrator.tools.catalog import manifest_files

    directory = load_settings().tools_dir
    if directory is None:
        return []
    if not directory.is_dir():
        raise Failure(f"{directory}: is not a directory", status=Status.USAGE)
    return manifest_files(directory)
