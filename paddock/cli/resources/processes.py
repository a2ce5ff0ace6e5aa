"""Commands of a session that have an id: `ps`, `output`, `logs`, `wait`, `kill`; `attach`."""

from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.description import outcome, words
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, CommandId, Raw, SessionId, example
from paddock.cli.output import age, complain, note, print_json, seconds
from paddock.cli.terminal.command_output import Printed

if TYPE_CHECKING:
    from paddock.client import Exit, Paddock, Session

_ID = "5c1d2b6f0a9e4d37"


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(epilog=example("paddock ps web-1"))(ps)
    app.command(epilog=example(f"paddock output web-1 {_ID}"))(output)
    app.command(epilog=example(f"paddock logs -f web-1 {_ID}"))(logs)
    app.command(epilog=example(f"paddock wait web-1 {_ID}"))(wait)
    app.command(epilog=example(f"paddock kill -s INT web-1 {_ID}"))(kill)


@remote
@lists
async def ps(paddock: "Paddock", session: SessionId, listing: Listing = TABLE) -> None:
    """List a session's running commands and the latest ended ones."""
    found = await (await paddock.sessions.get(session)).processes.list()
    print_items(
        found,
        listing,
        ("command", "status", ">started", ">took", "end", "argv"),
        lambda command: (
            command.command_id,
            command.status,
            age(command.started_at or None),
            "-" if command.exit is None else seconds(command.exit.duration_ms / 1000),
            "-" if command.exit is None else outcome(command.exit.raw),
            words(command.argv),
        ),
        nothing=f"no command has run in {session} lately",
    )


@remote
async def output(
    paddock: "Paddock", session: SessionId, command: CommandId, raw: Raw = False
) -> None:
    """Show a command's output: everything that is stored, and what it still prints.

    Its standard output and standard error go to those of this command. Of long output, more is
    stored than a result shows, as long as the session lives; a change to a level with less memory
    may leave less of it.
    """
    found = await paddock.sessions.get(session)
    await _check_kept(found, command)
    await _show(found, command, Printed(raw=raw))


@remote
async def logs(
    paddock: "Paddock",
    session: SessionId,
    command: CommandId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new output until it ends.")
    ] = False,
    after: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="Only output after so many bytes.")
    ] = 0,
    raw: Raw = False,
) -> None:
    """Show what a command has printed so far, and with -f what it still prints.

    Its standard output and standard error go to those of this command. Ctrl-C ends this command
    only.
    """
    found = await paddock.sessions.get(session)
    await _check_kept(found, command, after)
    told = Printed(raw=raw)
    if follow:
        await _show(found, command, told, after)
        return
    while True:
        page = await found.processes.get(command, after=after)
        for piece in page.output:
            told.add(piece, cut=max(0, piece.offset - after))
            after = piece.offset + len(piece.data)
        if not page.output or page.next < after:
            return
        after = page.next


@remote
async def wait(
    paddock: "Paddock", session: SessionId, command: CommandId, as_json: AsJson = False
) -> int:
    """Wait until a command has ended; the exit status is its own."""
    found = await paddock.sessions.get(session)
    end = await found.processes.wait(command)
    if as_json:
        print_json(end.raw)
    return ended(end, command)


@remote
async def kill(
    paddock: "Paddock",
    session: SessionId,
    commands: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The commands' ids, as in `ps`.")
    ],
    signal: Annotated[
        str,
        typer.Option("--signal", "-s", metavar="SIGNAL", help="Its name, or its number."),
    ] = "TERM",
) -> None:
    """Send a signal to commands and what they started in their process groups.

    TERM asks a command to end, KILL ends it. Those that have ended already are named, and the
    others get the signal all the same.
    """
    from paddock.client import NotFoundError

    number = int(signal) if signal.isdecimal() else signal.upper()
    processes = (await paddock.sessions.get(session)).processes
    missing = []
    for command in commands:
        try:
            await processes.signal(command, number)
        except NotFoundError:
            missing.append(command)
        else:
            note(f"{command}: {signal} was sent")
    if missing:
        what = f"no such command, or it has ended: {', '.join(missing)}"
        raise Failure(what, f"`paddock ps {session}` shows what there is", Status.NOT_FOUND)


async def attend(session: "Session", command: str, *, raw: bool) -> int:
    """Goes on with a command: shows all of its output, sends it our input; its exit status."""
    from paddock.cli.terminal.piped_input import fed, given_input

    await _check_kept(session, command)
    async with AsyncExitStack() as stack:
        descriptor = given_input()
        if descriptor is not None:
            await stack.enter_async_context(fed(session, command, descriptor))
        end = await _show(session, command, Printed(raw=raw))
    return ended(end, command)


async def _check_kept(session: "Session", command: str, after: int = 0) -> None:
    """Raises: Failure if nothing of the output is left."""
    first = await session.processes.get(command, after=after)
    if first.lost and (first.exit is None or first.exit.output_bytes > after):
        what = (
            "its output is not kept any more: its sandbox is gone, or more has been printed since"
        )
        raise Failure(what, status=Status.NOT_FOUND)


async def _show(session: "Session", command: str, told: Printed, after: int = 0) -> "Exit":
    """Shows the output to its end."""
    from paddock.client import Exit, Output

    async with aclosing(session.processes.follow(command, after=after)) as events:
        async for event in events:
            if isinstance(event, Output):
                told.add(event, cut=event.cut)
            elif isinstance(event, Exit):
                told.end(event)
                return event
    raise Failure("the command's output ended before the command did", status=Status.UNREACHABLE)


# The limit that the sandbox hit while a failed command ran.
_STRUCK = {
    "oom": "the sandbox's memory was used up",
    "pids": "the sandbox had no room for another process",
    "disk": "the workspace or /tmp was full",
}


def ended(end: "Exit", name: str) -> int:
    """The command's exit status; prints the reason if it has none or did not end by itself."""
    if end.exit_code is None:
        raise Failure(f"{name}: {end.error or end.reason or 'its end is unknown'}")
    if end.timed_out:
        complain("the command was ended at its time limit; --timeout SECONDS gives it more")
    elif end.reason in _STRUCK:
        complain(f"the command failed, and {_STRUCK[end.reason]} ({end.reason})")
    elif end.reason:
        complain(f"the command was ended: {end.reason}")
    elif end.error:
        complain(f"{name}: {end.error}")
    return end.exit_code
