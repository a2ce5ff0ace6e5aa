"""`paddock shell`: a shell in a session. `paddock attach`: a terminal or a command that runs."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli import own_session
from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import OptionalLevel, Raw, SessionId, example
from paddock.cli.output import working

if TYPE_CHECKING:
    from paddock.client import Paddock, Session

# A level that allows any command.
_LEVEL = "high"
# How the ids of terminals begin.
_TERMINALS = "pty-"


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(epilog=example("paddock shell web-1"))(shell)
    app.command(epilog=example("paddock attach web-1 pty-8d3c0f5a1b2e4967"))(attach)


@remote
async def shell(
    paddock: "Paddock",
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="The session's id; by default a new session."),
    ] = None,
    pty: Annotated[
        str | None,
        typer.Option("--pty", metavar="PTY", help="Attach to this shell, which is open."),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Attach to the session's latest open shell.")
    ] = False,
    level: OptionalLevel = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep a new session and its files.")] = False,
) -> int:
    """Open a shell in a session, or attach to one that is open.

    Ctrl-] detaches: the shell stays open for 30 minutes after its last use. The exit status is
    the shell's own. A new session is at the level high unless --level says otherwise, and is closed
    with its shell.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("a shell needs a terminal", "`paddock exec` runs commands", Status.USAGE)
    if session is None:
        if pty is not None or last:
            raise Failure("--pty and --last need a SESSION", status=Status.USAGE)
        return await _in_new_session(paddock, level or _LEVEL, keep=keep)
    if level is not None or keep:
        raise Failure("--level and --keep are for a new session", status=Status.USAGE)
    from paddock.cli.terminal.shell_relay import attend

    found = await paddock.sessions.get(session)
    return await attend(found, await _latest(found) if last else pty) or 0


@remote
async def attach(
    paddock: "Paddock",
    session: SessionId,
    running: Annotated[str, typer.Argument(metavar="ID", help="The terminal's or command's id.")],
    raw: Raw = False,
) -> int:
    """Watch a terminal, of a tool or a shell, or go on with a command.

    Nothing is typed into a terminal. Of a command, all output is shown, and it gets the input of
    this command if it was started with --stdin-open. Ctrl-C leaves what runs. The exit status is
    the program's own.
    """
    found = await paddock.sessions.get(session)
    if running.startswith(_TERMINALS):
        from paddock.cli.terminal.shell_relay import watch

        return await watch(found, running)
    from paddock.cli.resources.processes import attend

    return await attend(found, running, raw=raw)


async def _in_new_session(paddock: "Paddock", level: str, *, keep: bool) -> int:
    from paddock.cli.terminal.shell_relay import attend

    with working("starting a sandbox"):
        created = await paddock.sessions.create(permission_level=level)
    own_session.note_image(created)
    stays = keep
    try:
        status = await attend(created, None)
        stays = keep or status is None
    finally:
        await own_session.leave(created, keep=stays)
    return status or 0


async def _latest(session: "Session") -> str:
    """The latest open shell. Raises: Failure."""
    infos = [each.info for each in await session.terminals.list()]
    shells = [info.id for info in infos if info.kind == "shell" and info.status != "terminated"]
    if not shells:
        raise Failure(f"no shell is open in {session.id}", status=Status.NOT_FOUND)
    return shells[-1]
