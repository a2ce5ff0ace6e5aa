"""Live terminals: shells of persons, and views of any terminal, over a WebSocket."""

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from api.shape.access import Access
from api.shape.answers import Attached, Made
from api.shape.context import Context
from api.shape.operation import SESSION, Frames, operation
from orchestrator.sessions.sessions import Sessions
from orchestrator.sessions.tickets import SECONDS, Tickets
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.shells import Shells
from orchestrator.work.terminals.terminals import Terminals
from orchestrator.work.terminals.viewers import Size
from paddock.contract.live_terminals import (
    LiveTerminalQuery,
    ResizeFrame,
    TerminalExit,
    TerminalLost,
    TerminalOpened,
    TerminalResized,
    Ticket,
    TicketBody,
)

_TAG = "Terminals"
_COLUMNS, _ROWS = 80, 24


@operation(
    "POST",
    "/api/tickets",
    Access.MANAGE,
    tag=_TAG,
    summary="Get a ticket for a WebSocket",
    answers="The ticket, which holds for 30 seconds.",
    errors=("not_found", "session_terminated"),
    examples={"ticket": {"session_id": "sess-4f1c0a9be27d3586"}},
)
async def create_ticket(
    context: Context, sessions: Sessions, tickets: Tickets, body: TicketBody
) -> Made[Ticket]:
    """A page can send no credential with a WebSocket: it offers a ticket as a subprotocol instead.

    A ticket is used once, by the caller's key, for one WebSocket of the session.
    """
    session = sessions.finder.find(context.principal, body.session_id)
    session.check_live()
    expires_at = datetime.now(UTC) + timedelta(seconds=SECONDS)
    ticket = tickets.issue(context.principal, session)
    return Made(Ticket(ticket=ticket, expires_at=expires_at))


@operation(
    "GET",
    SESSION + "/terminal",
    Access.MANAGE,
    tag=_TAG,
    summary="Open a shell, or watch a terminal, over a WebSocket",
    answers={101: "The WebSocket. The content describes the server's text frames."},
    errors=(
        "session_terminated",
        "invalid_transition",
        "conflict",
        "busy",
        "sandbox_unavailable",
    ),
    restores=True,
    own_origin=True,
    frames=Frames(
        "paddock.terminal",
        text=ResizeFrame,
        data="The terminal's bytes: from the client what is typed, at most 64 KiB in a frame.",
        closes={
            1000: "The terminal has ended; the last frame was `exit`.",
            1001: "The control plane stops, or the credential is not valid any more.",
            1007: "A text frame was not UTF-8.",
            1008: "A frame was not understood, or the viewer may not type.",
            1009: "A frame was too large.",
            1011: "The terminal's sandbox does not answer.",
            1013: "Too much was typed that the terminal has not taken.",
        },
    ),
)
async def open_live_terminal(
    context: Context, shells: Shells, terminals: Terminals, query: LiveTerminalQuery
) -> Attached[TerminalOpened | TerminalResized | TerminalLost | TerminalExit]:
    """Opens a shell where the session's level allows any command; with `pty`, shows that terminal.

    The caller sends its key in `Authorization`, or offers the subprotocols `paddock.terminal` and
    `ticket.<ticket>`. Binary frames are the terminal's bytes, in both directions; the first ones
    show what was last printed. Text frames are JSON. The first one tells of the terminal; `exit` is
    the last one, before the socket is closed with 1000. A client sends
    `{"resize": {"cols": 120, "rows": 40}}`. A viewer of a tool's terminal, or with `watch`, types
    nothing. A frame that is not understood closes the socket with 1007 or 1008. Whoever reads too
    slowly loses output and is told how much. A shell that is left stays open, until it was not used
    for 30 minutes.
    """
    session = context.session()
    with ExitStack() as held:
        held.enter_context(context.streaming("terminals", session))
        context.work.follow()
        live = await _terminal(context, terminals, shells, query)
        watched = held.enter_context(shells.watching(live, types=not query.watch))
        if query.pty is not None and query.cols is not None and query.rows is not None:
            await watched.resize(Size(query.cols, query.rows))
        return Attached(watched, held.pop_all())


async def _terminal(
    context: Context, terminals: Terminals, shells: Shells, query: LiveTerminalQuery
) -> OpenTerminal:
    session = context.session()
    if query.pty is not None:
        return await terminals.records.running(session, query.pty)
    size = Size(query.cols or _COLUMNS, query.rows or _ROWS)
    return await context.work.complete(
        shells.open(context.principal, session, size),
        lambda live: terminals.end(live, "client_gone"),
    )
