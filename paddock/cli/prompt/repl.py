"""A Lisp prompt: each form that is typed is a turn of a session."""

import sys
from typing import TYPE_CHECKING

import typer

from paddock.cli.connection import Connection, perhaps_remote
from paddock.cli.exits import Status
from paddock.cli.options import AsJson, SessionId, example
from paddock.cli.output import complain

if TYPE_CHECKING:
    from paddock.cli.prompt.lines import Lines


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("echo '(+ 1 2)' | paddock repl web-1"))(repl)


@perhaps_remote
async def repl(connection: Connection, session: SessionId, as_json: AsJson = False) -> int:
    """Type programs in Lisp: each complete form is a turn of the session.

    A form may have several lines. Tab completes names. Ctrl-C interrupts the turn that runs, a
    second one stops waiting for it; Ctrl-D ends. Forms can be piped into it; then the exit status
    is that of the last one.
    """
    from paddock.cli.prompt.interruptible_turn import leave_signals, run_turn
    from paddock.cli.prompt.lines import PipedLines, TypedLines, history_path
    from paddock.cli.prompt.lisp_names import NAMES
    from paddock.cli.prompt.lisp_text import TypedForms

    async with connection.open() as paddock:
        await paddock.sessions.get(session)
    leave_signals()
    typed = sys.stdin.isatty()
    lines: Lines = (
        TypedLines(f"{session}> ", NAMES, history_path("repl_history")) if typed else PipedLines()
    )
    forms, status = TypedForms(), int(Status.OK)
    while (line := _line(lines, forms.unfinished)) is not None:
        if not line:  # Ctrl-C: what was typed so far is forgotten
            forms = TypedForms()
            continue
        for form in forms.feed(line):
            # Each turn has a connection of its own: this one sleeps while nobody types.
            status = await run_turn(connection, session, form, as_json)
        lines.keep()
    if forms.unfinished:
        complain("the input ends within a form, which was not sent")
        status = Status.USAGE
    return Status.OK if typed else status


def _line(lines: "Lines", more: bool) -> str | None:
    """The next line; empty after Ctrl-C at a prompt; None at the end."""
    try:
        return lines.read(more)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
        print()
        return ""
