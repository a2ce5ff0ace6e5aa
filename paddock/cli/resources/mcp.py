"""`paddock mcp`: a session of its own for a client that starts its servers as programs."""

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING

import typer

from paddock.cli import own_session
from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import Keep, OptionalLevel, Upload, example
from paddock.cli.output import note

if TYPE_CHECKING:
    from paddock.client import Paddock


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock mcp --level low --upload ."))(mcp)


@remote
async def mcp(
    paddock: "Paddock",
    level: OptionalLevel = None,
    upload: Upload = None,
    keep: Keep = False,
) -> None:
    """Serve a new session to an agent by the Model Context Protocol.

    Messages are lines on standard input and output. The session is closed and its files are removed
    when the input ends.
    """
    from paddock.cli.resources.mcp_relay import Relay, lines, writer
    from paddock.cli.terminal.piped_input import pieces, piped_input

    if upload is not None and not upload.is_dir():
        raise Failure(f"{upload} is not a directory", status=Status.USAGE)
    created = await paddock.sessions.create(permission_level=level)
    try:
        if upload is not None:
            await own_session.upload(created, upload)
        # The agent gets what a handle may do, and not what the key may do.
        session = await paddock.sessions.attach(created.id, created.handle or "")
        note(f"session {session.id} at {session.info.permission_level}")
        descriptor = sys.stdin.fileno() if sys.stdin.isatty() else piped_input()
        if descriptor is None:  # there is no input
            return
        async with aclosing(pieces(descriptor)) as found, aclosing(lines(found)) as taken:
            await Relay(session, await writer()).run(taken)
    finally:
        await own_session.leave(created, keep=keep)
