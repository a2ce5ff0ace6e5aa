"""Runs commands: `run` in a new session, `exec` in an existing one."""

from contextlib import AsyncExitStack, ExitStack, aclosing
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import own_session
from paddock.cli.connection import remote
from paddock.cli.egress_rules import Reached, narrowing
from paddock.cli.exits import Failure, Status
from paddock.cli.mount_options import FromSnapshot, VolumeUses, WorkspacePath, volume_uses
from paddock.cli.options import (
    TAKES_COMMAND,
    AsJson,
    FromTemplate,
    Image,
    Keep,
    LabelPairs,
    LimitAmounts,
    Merge,
    NewId,
    NoStdin,
    OptionalLevel,
    OptionalWords,
    OutputFile,
    Raw,
    SecretNames,
    SessionId,
    ShellLine,
    TimeLimit,
    Upload,
    Variables,
    WorkingDirectory,
    command_words,
    example,
    limit_amounts,
    pairs,
    secret_values,
)
from paddock.cli.output import note, print_json, working
from paddock.cli.resources.packs import files_of, load_pack, note_misses, stage
from paddock.cli.resources.processes import ended
from paddock.cli.terminal.command_output import Collected, Printed

if TYPE_CHECKING:
    from paddock.client import CommandResult, ExitData, Paddock, Session


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        context_settings=TAKES_COMMAND,
        epilog=example("paddock run --level high --upload . -- python3 -m unittest"),
    )(run)
    app.command(
        "exec",
        context_settings=TAKES_COMMAND,
        epilog=example("paddock exec web-1 -- ls -la"),
    )(execute)


@remote
async def run(
    paddock: "Paddock",
    words: OptionalWords = None,
    level: OptionalLevel = None,
    image: Image = None,
    template: FromTemplate = None,
    upload: Upload = None,
    pack: Annotated[
        Path | None,
        typer.Option(
            "--pack",
            metavar="FILE",
            help="Limit it to this context pack, whose files are uploaded from DIR, or from here.",
        ),
    ] = None,
    git: Annotated[
        str | None,
        typer.Option(
            "--git",
            metavar="URL",
            help="Clone this repository's last commit first; the command begins in it.",
        ),
    ] = None,
    git_branch: Annotated[
        str | None, typer.Option("--git-branch", metavar="NAME", help="With --git: its branch.")
    ] = None,
    git_secret: Annotated[
        str | None,
        typer.Option(
            "--git-secret",
            metavar="NAME",
            help="With --git: the secret that is the password, of `paddock secrets set`.",
        ),
    ] = None,
    keep: Keep = False,
    session_id: NewId = None,
    label: LabelPairs = None,
    limits: LimitAmounts = None,
    volume: VolumeUses = None,
    from_snapshot: FromSnapshot = None,
    workspace_path: WorkspacePath = None,
    reach: Reached = None,
    shell: ShellLine = None,
    cwd: WorkingDirectory = None,
    env: Variables = None,
    secret: SecretNames = None,
    merge: Merge = False,
    output_file: OutputFile = None,
    timeout: TimeLimit = None,
    no_stdin: NoStdin = False,
    stdin_file: Annotated[
        Path | None,
        typer.Option("--stdin", metavar="FILE", help="Send this file to the command as its input."),
    ] = None,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int:
    """Run one command in its own sandbox, with live output.

    The session is closed at the end, and its files are removed unless --id names it. Ctrl-C ends
    the command and closes the session, too. Piped input is sent to the command. The exit status is
    the command's own.
    """
    if pack is not None and session_id is not None:
        raise Failure("give one of --pack and --id", status=Status.USAGE)
    repository = _repository(git, git_branch, git_secret, pack)
    labels, lower = pairs(label, "--label"), limit_amounts(limits)
    request = _request(_line(words, shell), cwd, env, secret, timeout)
    request |= {"merge": merge, "output_file": output_file}
    if upload is not None and not upload.is_dir():
        raise Failure(f"{upload} is not a directory", status=Status.USAGE)
    egress = narrowing(reach)
    limited = None if pack is None else load_pack(pack)
    with ExitStack() as opened:
        stdin = _input(opened, stdin_file, no_stdin)
        with working("starting a sandbox"):
            staged = session_id
            if limited is not None:
                staged = await stage(paddock, files_of(limited), upload or Path(), image=image)
            session = await paddock.sessions.create(
                id=staged,
                permission_level=level,
                image=image,
                template=template,
                labels=labels,
                limits=lower,
                volumes=volume_uses(volume),
                from_snapshot=from_snapshot,
                workspace_path=workspace_path,
                egress=egress,
                consume=limited,
            )
        own_session.note_image(session)
        try:
            if upload is not None and limited is None:
                with working(f"uploading {upload}"):
                    await own_session.upload(session, upload)
            if repository is not None:
                place = await own_session.clone(session, repository)
                request["cwd"] = cwd or place
            return await _attend(session, request, _shown(as_json, raw), stdin, stays=keep)
        finally:
            if limited is not None and await note_misses(paddock, session.id):
                note(f"`paddock refine {session.id} --add PATH` goes on with more files")
            else:
                await own_session.leave(session, keep=keep, purge=session_id is None)


@remote
async def execute(
    paddock: "Paddock",
    session: SessionId,
    words: OptionalWords = None,
    shell: ShellLine = None,
    cwd: WorkingDirectory = None,
    env: Variables = None,
    secret: SecretNames = None,
    merge: Merge = False,
    output_file: OutputFile = None,
    timeout: TimeLimit = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            "-d",
            help="Print the command's id when it has started; it outlives this command.",
        ),
    ] = False,
    stdin_open: Annotated[
        bool,
        typer.Option("--stdin-open", help="With -d: input may follow, by `paddock attach`."),
    ] = False,
    no_stdin: NoStdin = False,
    raw: Raw = False,
    as_json: AsJson = False,
) -> int | None:
    """Run a command in a session, with live output.

    Ctrl-C ends the command, but not the session. Piped input is sent to the command. The exit
    status is the command's own. With -d, the command goes on by itself: `paddock logs`, `attach`,
    `wait` and `kill` take its id.
    """
    from paddock.cli.terminal.piped_input import piped_input

    request = _request(_line(words, shell, session=True), cwd, env, secret, timeout)
    request |= {"merge": merge, "output_file": output_file}
    if detach:
        found = await paddock.sessions.get(session)
        started = await found.processes.start(**request, stdin_open=stdin_open)
        print_json(started.raw) if as_json else print(started.command_id)
        return None
    if stdin_open:
        raise Failure("--stdin-open goes with -d", status=Status.USAGE)
    stdin = None if no_stdin else piped_input()
    found = await paddock.sessions.get(session)
    return await _attend(found, request, _shown(as_json, raw), stdin, stays=True)


def _repository(
    url: str | None, branch: str | None, secret: str | None, pack: Path | None
) -> own_session.Repository | None:
    """What is cloned first. Raises: Failure."""
    if url is None:
        if branch is not None or secret is not None:
            raise Failure("--git-branch and --git-secret go with --git", status=Status.USAGE)
        return None
    if pack is not None:
        raise Failure("give one of --pack and --git", status=Status.USAGE)
    return own_session.Repository(url, branch, secret)


def _input(opened: ExitStack, file: Path | None, no_stdin: bool) -> int | None:
    """The descriptor of the command's input, if there is any. Raises: Failure, OSError."""
    from paddock.cli.terminal.piped_input import piped_input

    if file is None:
        return None if no_stdin else piped_input()
    if no_stdin:
        raise Failure("give one of --stdin and --no-stdin", status=Status.USAGE)
    return opened.enter_context(file.open("rb")).fileno()


class Shown(Enum):
    """How to show a command's output."""

    TEXT = "text"
    RAW = "raw"
    JSON = "json"


def _line(words: list[str] | None, shell: str | None, *, session: bool = False) -> dict[str, Any]:
    """What is to run: words, which follow a `session`, or a line. Raises: Failure."""
    if (shell is None) == (not words):
        raise Failure("give one of COMMAND and --shell", "see `paddock run --help`", Status.USAGE)
    if shell is not None:
        return {"shell": shell}
    return {"argv": command_words(words or []) if session else words}


def _request(
    line: dict[str, Any],
    cwd: str | None,
    env: list[str] | None,
    secret: list[str] | None,
    timeout: float | None,
) -> dict[str, Any]:
    """The arguments of `exec`. Raises: typer.BadParameter."""
    return {
        **line,
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
        return ended(result, _name(request))
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
                told.add(event, cut=event.cut)
            elif isinstance(event, Exit):
                told.end(event)
                if shown is Shown.JSON:
                    _tell_stored(session, event, stays)
                return ended(event, _name(request))
    raise Failure("the command's output ended before the command did", status=Status.UNREACHABLE)


def _name(request: dict[str, Any]) -> str:
    """The program, for a message."""
    return str(request["argv"][0]) if "argv" in request else "the line"


def _tell_stored(session: "Session", end: "CommandResult | ExitData", stays: bool) -> None:
    if stays and end.stored_bytes:
        shows = f"`paddock output {session.id} {end.command_id}` shows"
        whole = "all" if end.stored_bytes >= end.output_bytes else f"the first {end.stored_bytes}"
        note(f"{shows} {whole} of the {end.output_bytes} bytes that were printed")
