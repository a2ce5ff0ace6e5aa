"""Callers of a WebSocket: by their credential or, from a page, by a ticket in its subprotocols."""

from aiohttp import web

# The subprotocols, of which the server picks the one of the address, and what precedes a ticket.
TERMINAL = "paddock.terminal"
RUN = "paddock.run"
PROTOCOLS = (TERMINAL, RUN)
_TICKET = "ticket."


def ticket_of(request: web.Request) -> str | None:
    """The ticket that a page offers; None without one, or with a credential."""
    if "Authorization" in request.headers:
        return None
    offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", []))
    found = [name.strip() for name in offered.split(",") if name.strip().startswith(_TICKET)]
    return found[0].removeprefix(_TICKET) if len(found) == 1 else None
