"""The program: its commands, and the one place where failures become a line and a status."""

import os
import sys
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from paddock.cli import contexts
from paddock.cli.exits import MEANINGS, SIGNALLED, TRACEBACK_VARIABLE, Failure, Status
from paddock.cli.global_options import after_the_command
from paddock.cli.options import group
from paddock.cli.prompt import repl, shell
from paddock.cli.resources import (
    any_operation,
    api_keys,
    approvals,
    audit,
    break_glass,
    budgets,
    code,
    commands,
    denials,
    egress,
    events,
    file_trees,
    files,
    forks,
    git,
    hooks,
    instance,
    lifetimes,
    mcp,
    memory,
    named_snapshots,
    nodes,
    owners,
    packs,
    policies,
    ports,
    processes,
    proposals,
    ptys,
    runs,
    secrets,
    sessions,
    shells,
    snapshots,
    spawn,
    templates,
    tools,
    top,
    turns,
    users,
    volumes,
)
from paddock.cli.server import server

_SIGPIPE = 13
_SIGINT = 2

_KEPT_LINES = "\b"  # the paragraph that begins with it keeps its lines
_EPILOGUE = "\n".join(
    (
        _KEPT_LINES,
        "Exit status:",
        *(f"  {status.value}  {meaning}" for status, meaning in MEANINGS.items()),
        "\n`run`, `exec` and `shell` give their program's own; 128 + n after signal n.",
    )
)


def _version(wanted: bool) -> None:
    if wanted:
        from paddock.contract.build import this_build

        print(f"paddock {this_build()}")
        raise typer.Exit


def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the version, its commit and its build.",
        ),
    ] = False,
) -> None:
    """Governed sandboxes for AI agents: run commands, watch them, and prove what was done."""


def build() -> TyperGroup:
    """The whole command line."""
    app = typer.Typer(
        name="paddock",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # loading what draws panels takes longer than all the rest
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=_EPILOGUE)(root)
    commands.add_to(app)
    processes.add_to(app)
    top.add_to(app)
    snapshots.add_to(sessions.app)
    instance.add_to(app, sessions.app)
    denials.add_to(audit.app)
    file_trees.add_to(files.app)
    shell.add_to(app)
    mcp.add_to(app)
    own = server()
    all_tools = group("Tools: run oneshot ones, and look at manifests on this machine.")
    for some in (tools.app, own.tools):
        all_tools.add_typer(some)
    for name, several in (
        ("sessions", sessions.app),
        ("files", files.app),
        ("git", git.app),
        ("code", code.app),
        ("ptys", ptys.app),
        ("shells", shells.app),
        ("proposals", proposals.app),
        ("egress", egress.app),
        ("secrets", secrets.app),
        ("memory", memory.app),
        ("volumes", volumes.app),
        ("nodes", nodes.app),
        ("owners", owners.app),
        ("templates", templates.app),
        ("snapshots", named_snapshots.app),
        ("hooks", hooks.app),
        ("api-keys", api_keys.app),
        ("users", users.app),
        ("tools", all_tools),
    ):
        app.add_typer(several, name=name)
    owners.add_to(app)
    break_glass.add_to(app)
    contexts.add_to(app)
    lifetimes.add_to(app)
    any_operation.add_to(app)
    packs.add_to(app)
    budgets.add_to(app)
    turns.add_to(app)
    runs.add_to(app)
    spawn.add_to(app)
    forks.add_to(app)
    repl.add_to(app)
    ports.add_to(app)
    events.add_to(app)
    for name, module in (("approvals", approvals), ("audit", audit), ("policies", policies)):
        app.add_typer(module.app, name=name)
    app.add_typer(own.machine)
    return cast(TyperGroup, get_command(app))


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        program = build()
        words = after_the_command(program, sys.argv[1:] if arguments is None else arguments)
        result: Any = program(args=words, prog_name="paddock", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - the last place to handle it
        return _report(error)
    return result if isinstance(result, int) else Status.OK


def _report(error: BaseException) -> int:
    """Prints the error in one line, and returns the exit status."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return SIGNALLED + _SIGINT
    # typer raises its own exit for it.
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        # The reader has closed the pipe, so nothing may be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return SIGNALLED + _SIGPIPE
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else Status.FAILED
    if TRACEBACK_VARIABLE in os.environ:
        import traceback

        traceback.print_exception(error)
    failure = error if isinstance(error, Failure) else _failure(error)
    if failure.what:
        from paddock.cli.output import complain

        complain(failure.what if failure.remedy is None else f"{failure.what}; {failure.remedy}")
    return failure.status


def _failure(error: BaseException) -> Failure:
    if isinstance(error, typer.TyperException):
        return _misuse(error)
    # Loaded only after a failure.
    from paddock.cli.errors import explain

    return explain(error, TRACEBACK_VARIABLE)


def _misuse(error: typer.TyperException) -> Failure:
    context = getattr(error, "ctx", None)
    text = error.format_message()
    if context is not None and text == context.get_help():  # no command was given
        print(text)
        return Failure("", status=Status.USAGE)
    text = text.strip().rstrip(".")
    path = context.command_path if context is not None else "paddock"
    return Failure(text[:1].lower() + text[1:], f"see `{path} --help`", Status.USAGE)
