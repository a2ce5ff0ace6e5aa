"""Runs oneshot tools in a session."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.levels import complete_session
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import (
    ApprovalWait,
    AsJson,
    OptionalLevel,
    Raw,
    SessionId,
    TimeLimit,
    example,
    pairs,
)
from paddock.cli.output import print_json, print_table, print_written
from paddock.cli.resources.processes import ended
from paddock.cli.server import server

if TYPE_CHECKING:
    from paddock.client import Paddock, Tool

app = typer.Typer()


def complete_tool(incomplete: str) -> list[str]:
    """Names of this machine's oneshot tools, for shell completion."""
    return [name for name in server().tool_names() if name.startswith(incomplete)]


_Tool = Annotated[
    str,
    typer.Argument(metavar="TOOL", help="A oneshot tool.", autocompletion=complete_tool),
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
    timeout: TimeLimit = None,
    wait: ApprovalWait = 0,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int:
    """Run a oneshot tool in a session, and show its output when it has ended.

    The exit status is the command's own, or 6 while it waits for an approval: nothing was run, and
    running the same command again asks again.
    """
    given = pairs(arguments, "an argument")
    found = await paddock.sessions.get(session)
    result = await found.run_tool(tool, given, timeout=timeout, wait=wait)
    if as_json:
        print_json({"session": session, **result.raw})
    else:
        print_written(result.stdout, result.stdout_bytes, sys.stdout, raw=raw)
        print_written(result.stderr, result.stderr_bytes, sys.stderr, raw=raw)
    return ended(result, tool)


@app.command(epilog=example("paddock tools arguments web-1 fetch"))
@remote
async def arguments(
    paddock: "Paddock", session: SessionId, tool: _Tool, as_json: AsJson = False
) -> None:
    """Show the arguments of a session's oneshot tool."""
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


@app.command(epilog=example("paddock tools offered web-1"))
@remote
@lists
async def offered(
    paddock: "Paddock",
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION]",
            help="What this session may use; by default what one at --level may.",
            autocompletion=complete_session,
        ),
    ] = None,
    level: OptionalLevel = None,
    listing: Listing = TABLE,
) -> None:
    """List the control plane's tools, command by command, and what refuses them.

    `paddock tools list` shows those of this machine.
    """
    if session is not None and level is not None:
        raise Failure("give one of SESSION and --level", status=Status.USAGE)
    if session is None:
        found = await paddock.tools.list(level=level)
    else:
        found = await (await paddock.sessions.get(session)).tools()
    print_items(
        found,
        listing,
        ("tool", "risk", "approval", "allowed", "refused by", "what it does"),
        lambda tool: (
            tool.name,
            tool.risk_tier,
            "yes" if tool.human_approval else "no",
            "yes" if tool.allowed else "no",
            tool.rule,
            tool.description,
        ),
        nothing="no tools",
    )


async def _oneshot(paddock: "Paddock", session: str, tool: str) -> "Tool":
    for each in await (await paddock.sessions.get(session)).tools():
        if each.name == tool and not each.command:
            return each
    what = f"there is no oneshot tool {tool} in {session}"
    raise Failure(what, "`paddock tools list` shows those of this machine", Status.NOT_FOUND)


def _values(member: Mapping[str, Any]) -> str:
    values = " | ".join(member.get("enum", ())) or "any"
    return values + (f" (else {member['default']})" if "default" in member else "")
