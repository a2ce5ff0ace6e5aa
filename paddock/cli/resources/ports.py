"""Ports of a session: open one, list them, close one."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, SessionId, example
from paddock.cli.output import note, print_done, print_json, print_line

if TYPE_CHECKING:
    from paddock.client import Paddock

_Port = Annotated[int, typer.Argument(metavar="PORT", help="The port in the sandbox.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(epilog=example("paddock port web-1 8000"))(port)
    app.command(epilog=example("paddock ports web-1"))(ports)


@remote
async def port(
    paddock: "Paddock",
    session: SessionId,
    port: _Port,
    seconds: Annotated[
        int, typer.Option("--seconds", metavar="N", help="How long it stays open.")
    ] = 3600,
    host: Annotated[
        bool, typer.Option("--host", help="Print the link with a host name of its own.")
    ] = False,
    close: Annotated[bool, typer.Option("--close", help="Close it instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Open a port of a session, and print a link to it.

    The link has a path on an address that ports share. Pages that name their scripts from the root,
    or store something, need the one with a host name of its own (`--host`).
    """
    of_session = (await paddock.sessions.get(session)).ports
    if close:
        closed = await of_session.close(port)
        print_done(closed, as_json, f"port {port} is closed after {closed.requests} requests")
        return
    opened = await of_session.open(port, seconds=seconds)
    if as_json:
        print_json(opened.raw)
    elif not host:
        print_line((opened.link, ""))
        if opened.host_link is not None:
            note(f"with a host name of its own: {opened.host_link}")
    elif opened.host_link is not None:
        print_line((opened.host_link, ""))
    else:
        raise typer.BadParameter("this port has no host name of its own", param_hint="--host")


@remote
@lists
async def ports(paddock: "Paddock", session: SessionId, listing: Listing = TABLE) -> None:
    """List a session's open ports."""
    found = await (await paddock.sessions.get(session)).ports.list()
    print_items(
        found,
        listing,
        (">port", "open until (UTC)", ">requests", "url", "host url"),
        lambda each: (
            str(each.port),
            f"{each.expires_at:%Y-%m-%d %H:%M:%S}",
            str(each.requests),
            each.url or "-",
            each.host_url or "-",
        ),
        nothing="no port is open",
    )
