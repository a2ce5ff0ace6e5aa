"""Runs commands: `run` in a new session, `exec` in an existing one, `ps`, `output`."""

from contextlib import AsyncExitStack, aclosing
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import own_session
from paddock.cli.connection import remote
from paddock.cli.description import outcome, words
from paddock.cli.egress_rules import Reached, narrowing
from paddock.cli.exits import Failure, Status
from paddock.cli.options import (
    TAKES_COMMAND,
    AsJson,
    Image,
    Keep,
    NoStdin,
    OptionalLevel,
    Raw,
    SecretNames,
    SessionId,
    TimeLimit,
    Upload,
    Variables,
    Words,
    WorkingDirectory,
    command_words,
    example,
    pairs,
    secret_values,
)
from paddock.cli.output import (
    age,
    complain,
    note,
    print_items,
    print_json,
    seconds,
    working,
)
from paddock.cli.resources.packs import files_of, load_pack, note_misses, stage
from paddock.cli.terminal.command_output import Collected, Printed

if TYPE_CHECKING:
    from paddock.client import CommandResult, Exit, ExitData, Paddock, Session


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        context_settings=TAKES_COMMAND,
        epilog=example("paddock run --level high --upload . -- python3 -m unittest"),
    )(run)
    app.command(
        "exec", context_settings=TAKES_COMMAND, epilog=example("paddock exec web-1 -- ls -la")
    )(execute)
    app.command(epilog=example("paddock ps web-1"))(ps)
    app.command(epilog=example("paddock output web-1 5c1d2b6f0a9e4d37"))(output)


@remote
async def run(
    paddock: "Paddock",
    words: Words,
    level: OptionalLevel = None,
    image: Image = None,
    upload: Upload = None,
    pack: Annotated[
        Path | None,
        typer.Option(
            "--pack",
            metavar="FILE",
            help="Limit it to this context pack, whose files are uploaded from DIR, or from here.",
        ),
    ] = None,
    keep: Keep = False,
    reach: Reached = None,
    cwd: WorkingDirectory = None,
    env: Variables = None,
    secret: SecretNames = None,
    timeout: TimeLimit = None,
    no_stdin: NoStdin = False,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int:
    """Run one command in its own sandbox, with live output.

    The session is closed and its files are removed at the end. Ctrl-C ends the command and closes
    the session, too. Piped input is sent to the command. The exit status is the command's own.
    """
    from paddock.cli.terminal.piped_input import piped_input

    stdin = None if no_stdin else piped_input()
    request = _request(words, cwd, env, secret, timeout)
    if upload is not None and not upload.is_dir():
        raise Failure(f"{upload} is not a directory", status=Status.USAGE)
    egress = narrowing(reach)
    limited = None if pack is None else load_pack(pack)
    with working("starting a sandbox"):
        staged = None
        if limited is not None:
            staged = await stage(paddock, files_of(limited), upload or Path(), image=image)
        session = await paddock.sessions.create(
            id=staged, permission_level=level, image=image, egress=egress, consume=limited
        )
    try:
        if upload is not None and limited is None:
            with working(f"uploading {upload}"):
                await own_session.upload(session, upload)
        return await _attend(session, request, _shown(as_json, raw), stdin, stays=keep)
    finally:
        if limited is not None and await note_misses(paddock, session.id):
            note(f"`paddock refine {session.id} --add PATH` goes on with more files")
        else:
            await own_session.leave(session, keep=keep)


@remote
async def execute(
    paddock: "Paddock",
    session: SessionId,
    words: Words,
    cwd: WorkingDirectory = None,
    env: Variables = None,
    secret: SecretNames = None,
    timeout: TimeLimit = None,
    no_stdin: NoStdin = False,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int:
    """Run a command in a session, with live output.

    Ctrl-C ends the command, but not the session. Piped input is sent to the command. The exit
    status is the command's own.
    """
    from paddock.cli.terminal.piped_input import piped_input

    stdin = None if no_stdin else piped_input()
    request = _request(command_words(words), cwd, env, secret, timeout)
    found = await paddock.sessions.get(session)
    return await _attend(found, request, _shown(as_json, raw), stdin, stays=True)


@remote
async def ps(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """List a session's running commands and the latest ended ones."""
    found = await (await paddock.sessions.get(session)).processes.list()
    print_items(
        found,
        as_json,
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
    paddock: "Paddock",
    session: SessionId,
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="The command's id, as in `ps`.")
    ],
    raw: Raw = False,
) -> None:
    """Show a command's output: everything that is stored, and what it still prints.

    Its standard output and standard error go to those of this command. Of long output, more is
    stored than a result shows, as long as the session lives; a change to a level with less memory
    may leave less of it.
    """
    from paddock.client import Exit, Output

    processes = (await paddock.sessions.get(session)).processes
    first = await processes.get(command)
    if first.lost and (first.exit is None or first.exit.output_bytes):
        what = (
            "its output is not kept any more: its sandbox is gone, or more has been printed since"
        )
        raise Failure(what, status=Status.NOT_FOUND)
    told = Printed(raw=raw)
    async with aclosing(processes.follow(command)) as events:
        async for event in events:
            if isinstance(event, Output):
                told.add(event)
            elif isinstance(event, Exit):
                told.end(event)


class Shown(Enum):
    """How to show a command's output."""

    TEXT = "text"
    RAW = "raw"
    JSON = "json"


def _request(
    argv: list[str],
    cwd: str | None,
    env: list[str] | None,
    secret: list[str] | None,
    timeout: int | None,
) -> dict[str, Any]:
    """The arguments of `exec`. Raises: typer.BadParameter."""
    return {
        "argv": argv,
        "cwd": cwd,
        "env": pairs(env, "--env"),
        "secrets": secret_values(secret) or None,
        "timeout": timeout,
    }


def _shown(as_json: bool, raw: bool) -> Shown:
    return Shown.JSON if as_json else Shown.RAW if raw else Shown.TEXT


async def _attend(
    session: "Session", request: dict[str, Any], shown: Shown, stdin: int | None, *, stays: bool
) -> int:
    """Runs a command to its end and returns our exit status.

    `stdin` is the descriptor of piped input; `stays`: the session continues.
    """
    if shown is Shown.JSON and stdin is None:
        result = await session.exec(**request)
        print_json({"session": session.id, **result.raw})
        _tell_stored(session, result, stays)
        return ended(result, request["argv"][0])
    from paddock.cli.terminal.piped_input import fed
    from paddock.client import Exit, Output, StartData

    told = Collected(session.id) if shown is Shown.JSON else Printed(raw=shown is Shown.RAW)
    async with AsyncExitStack() as stack:
        stream = session.exec_stream(**request, stdin_open=stdin is not None, resume=False)
        # Without a connection, the command has no caller and ends, as with Ctrl-C.
        async for event in await stack.enter_async_context(aclosing(stream)):
            if isinstance(event, StartData) and stdin is not None:
                await stack.enter_async_context(fed(session, event.command_id, stdin))
            elif isinstance(event, Output):
                told.add(event)
            elif isinstance(event, Exit):
                told.end(event)
                if shown is Shown.JSON:
                    _tell_stored(session, event, stays)
                return ended(event, request["argv"][0])
    raise Failure("the command's output ended before the command did", status=Status.UNREACHABLE)


def _tell_stored(session: "Session", end: "CommandResult | ExitData", stays: bool) -> None:
    if stays and end.stored_bytes:
        shows = f"`paddock output {session.id} {end.command_id}` shows"
        whole = "all" if end.stored_bytes >= end.output_bytes else f"the first {end.stored_bytes}"
        note(f"{shows} {whole} of the {end.output_bytes} bytes that were printed")


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
