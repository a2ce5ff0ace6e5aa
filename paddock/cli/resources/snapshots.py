"""Snapshots: save a session as a file, and restore it on another control plane."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.options import AsJson, SessionId, example
from paddock.cli.output import note, print_json, print_line, size, working

if TYPE_CHECKING:
    from paddock.client import Paddock


def add_to(app: typer.Typer) -> None:
    """Adds the commands to those of sessions."""
    app.command(epilog=example("paddock sessions snapshot web-1 web-1.tar"))(snapshot)
    app.command(epilog=example("paddock sessions restore web-1.tar"))(restore)


@remote
async def snapshot(
    paddock: "Paddock",
    session: SessionId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
) -> None:
    """Save a session as one file: turns, budget, policy, workspace, and what it staged.

    Nothing may run in the session. Secrets are not in the file.
    """
    found = await paddock.sessions.get(session)
    with working(f"saving {session}") as show:
        count = await found.snapshot(file, progress=_shown(show))
    note(f"{size(count)} in {file}")


@remote
async def restore(
    paddock: "Paddock",
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A snapshot.")],
    session_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Another id than the snapshot's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create the session of a snapshot, with its id, and print the id.

    The control plane must not know the id. With --id, it is a new session whose time and budget
    begin anew, so one file can serve many times. If anything fails, nothing is created.
    """
    with working(f"restoring {file}") as show:
        made = await paddock.restore(file, id=session_id, progress=_shown(show))
    if as_json:
        print_json(made.info.raw)
    else:
        print_line((made.id, ""))


def _shown(show: Callable[[str], None]) -> Callable[[int], None]:
    return lambda count: show(size(count) or "")
