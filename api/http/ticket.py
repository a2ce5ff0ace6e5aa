"""Callers of a WebSocket: by their credential or, from a page, by a ticket in its subprotocols."""

from aiohttp import web

# The subprotocol of terminals, which the server picks, and what precedes a ticket.
PROTOCOL = "paddock.terminal"
_TICKET = "ticket."


def ticket_of(request: web.Request) -> str | None:
    """The ticket that a page offers; None without one, or with a credential."""
    if "Authorization" in request.headers:
        return None
    offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", []))
    found = [name.strip() for name in offered.split(",") if name.strip().startswith(_TICKET)]
    return found[0].removeprefix(_TICKET) if len(found) == 1 else None
