"""Forks: several sessions from one."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.options import AsJson, SessionId, example
from paddock.cli.output import print_json, print_line, working

if TYPE_CHECKING:
    from paddock.client import Paddock


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock fork web-1 --count 3"))(fork)


@remote
async def fork(
    paddock: "Paddock",
    session: SessionId,
    count: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="How many: all of them, or none.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Make sessions that begin with the files of one, and print their ids.

    They have its level, image, variables, limits, policy and budget, but neither its secrets nor
    its turns. With --json, also their handles, which are shown only once.
    """
    found = await paddock.sessions.get(session)
    with working(f"forking {session}"):
        made = await found.fork(count)
    if as_json:
        print_json([{**each.info.raw, "handle": each.handle} for each in made])
        return
    for each in made:
        print_line((each.id, ""))
