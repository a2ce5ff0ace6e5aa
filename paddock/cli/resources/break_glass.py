"""Break-glass access of an admin to another key's session."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, SessionId, example
from paddock.cli.output import print_done

if TYPE_CHECKING:
    from paddock.client import Paddock


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    text = example('paddock break-glass web-1 --reason "the build hangs: incident 4711"')
    app.command("break-glass", epilog=text)(break_glass)


@remote
async def break_glass(
    paddock: "Paddock",
    session: SessionId,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; on record, and told to its owner.")
    ] = None,
    seconds: Annotated[
        int | None, typer.Option("--for", metavar="SECONDS", help="How long; by default, an hour.")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="End it instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Open access to the content of another key's session, with an admin's key that needs it."""
    if end is (reason is not None):
        raise Failure("give one of --reason and --end", status=Status.USAGE)
    glass = (await paddock.sessions.get(session)).break_glass
    if reason is None:
        ended = await glass.close()
        print_done(ended, as_json, f"the access {ended.id} to {session} has ended")
        return
    made = await glass.open(reason, seconds=seconds)
    print_done(made, as_json, f"{session} is open to {made.key} until {made.until}, on record")
