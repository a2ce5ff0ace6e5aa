"""`paddock mcp`: a session of its own for a client that starts its servers as programs."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.options import OptionalLevel, example
from paddock.cli.remote import remote
from paddock.cli.terminal import note

if TYPE_CHECKING:
    from paddock.client import Paddock


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock mcp --level low --upload . </dev/null"))(mcp)


@remote
async def mcp(
    paddock: "Paddock",
    level: OptionalLevel = None,
    upload: Annotated[
        Path | None,
        typer.Option("--upload", metavar="DIR", help="Upload this directory's files first."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the session and its files.")] = False,
) -> None:
    """Serve a new session to an agent by the Model Context Protocol.

    Messages are lines on standard input and output. The session is closed and its files are removed
    when the input ends.
    """
    from paddock.cli.mcp_relay import Relay, lines
    from paddock.cli.piped import pieces, piped_input

    if upload is not None and not upload.is_dir():
        raise Failure(f"{upload} is not a directory", status=Status.USAGE)
    created = await paddock.sessions.create(permission_level=level)
    try:
        if upload is not None:
            sent = await created.files.upload_dir(upload)
            if sent.skipped:
                note(f"not uploaded, because they are not regular files: {', '.join(sent.skipped)}")
        # The agent gets what a handle may do, and not what the key may do.
        session = await paddock.sessions.attach(created.id, created.handle or "")
        note(f"session {session.id} at {session.info.permission_level}")
        descriptor = sys.stdin.fileno() if sys.stdin.isatty() else piped_input()
        if descriptor is None:  # there is no input
            return
        async with aclosing(pieces(descriptor)) as found, aclosing(lines(found)) as taken:
            await Relay(session, await _writer()).run(taken)
    finally:
        if keep:
            note(f"session {created.id} is kept; `paddock sessions close {created.id}` ends it")
        else:
            await created.close(purge=True)


async def _writer() -> Callable[[dict[str, Any]], Coroutine[Any, Any, None]]:
    """Writes messages to standard output; one that waits for its reader delays no signal."""
    writing = asyncio.Lock()
    # A copy, because the pipe's transport closes what it writes to.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    regular = stat.S_ISREG(os.fstat(output.fileno()).st_mode)
    pipe = None if regular else await _pipe(output)

    async def write(message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with writing:
            if pipe is None:
                output.write(data)
                output.flush()
            else:
                pipe.write(data)
                await pipe.drain()

    return write


async def _pipe(output: Any) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), output
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
