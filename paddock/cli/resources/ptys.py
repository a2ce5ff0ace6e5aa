"""Terminals: open a session's tools, send them lines, read their output."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import ApprovalWait, AsJson, Incarnation, Raw, SessionId, example, group
from paddock.cli.output import age, note, print_fields, print_foreign, print_json

if TYPE_CHECKING:
    from paddock.client import Interaction, Paddock, Terminal

app = group("Terminals: interactive tools of a session, one declared line at a time.")

_Pty = Annotated[str, typer.Argument(metavar="PTY", help="The terminal's id.")]


@app.command("open", epilog=example("pty=$(paddock ptys open web-1 python3)"))
@remote
async def open_one(
    paddock: "Paddock",
    session: SessionId,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="A tool that the session lists.")],
    as_json: AsJson = False,
) -> None:
    """Start a tool on its own terminal, and print the terminal's id."""
    opened = await (await paddock.sessions.get(session)).terminals.open(tool)
    if as_json:
        print_json(opened.info.raw)
    else:
        print(opened.id)


@app.command("list", epilog=example("paddock ptys list web-1"))
@remote
@lists
async def list_all(
    paddock: "Paddock",
    session: SessionId,
    incarnation: Incarnation = None,
    listing: Listing = TABLE,
) -> None:
    """List a session's past and present terminals, also after the session ended."""
    terminals = paddock.sessions.terminals(session, incarnation=incarnation)
    found = [each.info for each in await terminals.list()]
    print_items(
        found,
        listing,
        ("terminal", "tool", "status", "state", ">lines", ">age", "ended of"),
        lambda info: (
            info.id,
            info.tool,
            info.status,
            info.session_state,
            info.interaction_count,
            age(info.opened_at),
            info.reason,
        ),
        nothing=f"no terminals: `paddock ptys open {session} TOOL`",
    )


@app.command(epilog=example('paddock ptys show web-1 "$pty"'))
@remote
async def show(
    paddock: "Paddock",
    session: SessionId,
    pty: _Pty,
    incarnation: Incarnation = None,
    as_json: AsJson = False,
) -> None:
    """Show one terminal: its tool, and how far it has come."""
    terminals = paddock.sessions.terminals(session, incarnation=incarnation)
    found = (await terminals.get(pty)).info
    if as_json:
        print_json(found.raw)
        return
    print_fields(
        (
            ("terminal", found.id),
            ("tool", found.tool),
            ("status", found.status),
            ("state", found.session_state),
            ("lines", found.interaction_count),
            ("age", age(found.opened_at)),
            ("ended of", found.reason),
        )
    )


@app.command(epilog=example('paddock ptys send web-1 "$pty" calculate "6 * 7"'))
@remote
async def send(
    paddock: "Paddock",
    session: SessionId,
    pty: _Pty,
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="The tool's command for this line.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The line.")],
    wait: ApprovalWait = 0,
    raw: Raw = False,
    as_json: AsJson = False,
) -> None:
    """Send a line to a tool, and print its answer.

    The exit status is 6 while the line waits for an approval, and 1 if the tool did not return to
    its prompt, has ended, or printed something that its manifest does not allow.
    """
    terminal = await _terminal(paddock, session, pty)
    answer = await terminal.send(command, text, wait=wait)
    if as_json:
        print_json(answer.raw)
    elif answer.output:
        print_foreign(f"{answer.output}\n", sys.stdout, raw=raw)
    _check(answer)


@app.command(epilog=example('paddock ptys transcript web-1 "$pty"'))
@remote
async def transcript(
    paddock: "Paddock",
    session: SessionId,
    pty: _Pty,
    incarnation: Incarnation = None,
    raw: Raw = False,
) -> None:
    """Print what happened in a terminal, also after its end or the session's end."""
    terminals = paddock.sessions.terminals(session, incarnation=incarnation)
    text = await (await terminals.get(pty)).transcript()
    print_foreign(text, sys.stdout, raw=raw)


@app.command(epilog=example('paddock ptys recording web-1 "$pty"'))
@remote
async def recording(
    paddock: "Paddock",
    session: SessionId,
    pty: _Pty,
    incarnation: Incarnation = None,
) -> None:
    """Print what was shown and typed in a terminal as asciicast v2, for `asciinema play`."""
    terminals = paddock.sessions.terminals(session, incarnation=incarnation)
    data = await (await terminals.get(pty)).recording()
    sys.stdout.buffer.write(data)


@app.command(epilog=example('paddock ptys close web-1 "$pty"'))
@remote
async def close(paddock: "Paddock", session: SessionId, pty: _Pty) -> None:
    """End a tool and its terminal; the transcript stays."""
    ended = await (await _terminal(paddock, session, pty)).close()
    note(f"{pty} has ended: {ended.reason}")


async def _terminal(paddock: "Paddock", session: str, pty: str) -> "Terminal":
    return await (await paddock.sessions.get(session)).terminals.get(pty)


def _check(answer: "Interaction") -> None:
    """Raises: Failure unless the answer is a success."""
    if answer.approval is not None and answer.status == "pending":
        what = f"{answer.approval.id} waits for an approval; nothing was sent"
        remedy = "send the same line again when it is approved, or with --wait"
        raise Failure(what, remedy, Status.TRY_LATER)
    if not answer.ok:
        raise Failure(f"{answer.status}: {answer.error}")
