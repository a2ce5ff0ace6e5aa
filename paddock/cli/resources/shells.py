"""Shells that keep their state: create one, run commands in it, give input, end it."""

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import (
    AsJson,
    Raw,
    SessionId,
    Variables,
    WorkingDirectory,
    example,
    finite,
    group,
    pairs,
)
from paddock.cli.output import age, note, print_done, print_fields, print_foreign, print_json

if TYPE_CHECKING:
    from paddock.client import Async, Paddock, Shell, ShellAnswer

app = group("Shells that keep their directory, variables and jobs between commands.")

_DEFAULT = "default"
_Name = Annotated[
    str, typer.Option("--name", "-n", metavar="NAME", help="The shell's name in the session.")
]
_Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        callback=finite,
        metavar="SECONDS",
        help="Then the command is interrupted, or goes on with --continue.",
    ),
]
_Expect = Annotated[
    str | None,
    typer.Option("--expect", metavar="TEXT", help="Return as soon as the output has this text."),
]
_AT_TIMEOUT: dict[bool, Literal["stop", "continue"]] = {False: "stop", True: "continue"}
_Continue = Annotated[
    bool, typer.Option("--continue", help="The command goes on at the end of the time.")
]


@app.command(epilog=example("paddock shells create web-1 --name build --cwd src"))
@remote
async def create(
    paddock: "Paddock",
    session: SessionId,
    name: _Name = _DEFAULT,
    cwd: WorkingDirectory = None,
    env: Variables = None,
    as_json: AsJson = False,
) -> None:
    """Start a shell, or find the one of that name."""
    shells = (await paddock.sessions.get(session)).shells
    made = await shells.create(name, cwd=cwd, env=pairs(env, "--env"))
    print_done(made.info, as_json, f"the shell {made.name} is in {made.info.cwd}")


@app.command("list", epilog=example("paddock shells list web-1"))
@remote
@lists
async def list_all(paddock: "Paddock", session: SessionId, listing: Listing = TABLE) -> None:
    """List a session's shells."""
    found = [each.info for each in await (await paddock.sessions.get(session)).shells.list()]
    print_items(
        found,
        listing,
        ("shell", "directory", "state", ">age", "terminal"),
        lambda each: (
            each.name,
            each.cwd,
            "runs a command" if each.running else "ready",
            age(each.opened_at),
            each.pty,
        ),
        nothing=f"no shells: `paddock shells create {session}`",
    )


@app.command(epilog=example("paddock shells show web-1 --name build"))
@remote
async def show(
    paddock: "Paddock", session: SessionId, name: _Name = _DEFAULT, as_json: AsJson = False
) -> None:
    """Show one shell: its directory, and whether it runs a command."""
    found = (await (await paddock.sessions.get(session)).shells.get(name)).info
    if as_json:
        print_json(found.raw)
        return
    print_fields(
        (
            ("shell", found.name),
            ("directory", found.cwd),
            ("state", "runs a command" if found.running else "ready"),
            ("age", age(found.opened_at)),
            ("terminal", found.pty),
        )
    )


@app.command(epilog=example('paddock shells run web-1 "cd src"'))
@remote
async def run(
    paddock: "Paddock",
    session: SessionId,
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="Any text for bash; - reads standard input.")
    ],
    name: _Name = _DEFAULT,
    timeout: _Timeout = 60,
    expect: _Expect = None,
    goes_on: _Continue = False,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int:
    """Run a command in a shell, which is started if there is none of that name.

    The exit status is the command's own; 6 if it still runs, 2 if its syntax is wrong.
    """
    text = sys.stdin.read() if command == "-" else command
    shell = await _shell(paddock, session, name, create=True)
    answer = await shell.run(text, timeout=timeout, expect=expect, at_timeout=_AT_TIMEOUT[goes_on])
    return _print(answer, raw, as_json)


@app.command("input", epilog=example("paddock shells input web-1 yes"))
@remote
async def give_input(
    paddock: "Paddock",
    session: SessionId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A line, or nothing.")] = "",
    name: _Name = _DEFAULT,
    timeout: _Timeout = 60,
    expect: _Expect = None,
    goes_on: _Continue = False,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int:
    """Give a line to the program that runs in a shell, or only wait for it without TEXT."""
    shell = await _shell(paddock, session, name)
    line = f"{text}\n" if text else ""
    answer = await shell.input(
        line, timeout=timeout, expect=expect, at_timeout=_AT_TIMEOUT[goes_on]
    )
    return _print(answer, raw, as_json)


@app.command(epilog=example("paddock shells interrupt web-1"))
@remote
async def interrupt(
    paddock: "Paddock", session: SessionId, name: _Name = _DEFAULT, as_json: AsJson = False
) -> None:
    """Interrupt the command that runs in a shell; the shell stays."""
    shell = await _shell(paddock, session, name)
    print_done(await shell.interrupt(), as_json, f"the shell {name} is interrupted")


@app.command("rm", epilog=example("paddock shells rm web-1"))
@remote
async def remove(
    paddock: "Paddock", session: SessionId, name: _Name = _DEFAULT, as_json: AsJson = False
) -> None:
    """End a shell and everything that it has started."""
    shell = await _shell(paddock, session, name)
    print_done(await shell.close(), as_json, f"the shell {name} has ended")


async def _shell(
    paddock: "Paddock", session: str, name: str, *, create: bool = False
) -> "Shell[Async]":
    shells = (await paddock.sessions.get(session)).shells
    found = next((each for each in await shells.list() if each.name == name), None)
    if found is None:
        return await (shells.create(name) if create else shells.get(name))
    return found


def _print(answer: "ShellAnswer", raw: bool, as_json: bool) -> int:
    """Prints an answer; returns the exit status."""
    if as_json:
        print_json(answer.raw)
    elif answer.output:
        print_foreign(answer.output, sys.stdout, raw=raw)
    if answer.error is not None:
        note(answer.error)
    if answer.running:
        note(f"it still runs ({answer.status}): `paddock shells input` or `interrupt`")
        return Status.TRY_LATER
    if answer.ended is not None:
        note(f"the shell has ended: {answer.ended}")
    elif answer.status == "timed_out":
        note("its time was over, and it was interrupted")
    return Status.FAILED if answer.exit_code is None else answer.exit_code
