"""A session's terminals: open them, send lines, read their transcripts, end them."""

from api import stops
from api.access import Access
from api.answers import Accepted, Created, Text
from api.context import Context
from api.operation import SESSION, operation
from api.views.terminals import interaction, terminal
from paddock.contract.requests import IncarnationQuery
from paddock.contract.terminals import (
    Interaction,
    InteractionBody,
    Terminal,
    TerminalBody,
    Terminals,
)

_TAG = "Terminals"
_TERMINALS = SESSION + "/ptys"
_TERMINAL = _TERMINALS + "/{terminal_id}"
_WORK = (
    "session_terminated",
    "invalid_transition",
    "conflict",
    "busy",
    "permission_denied",
    "sandbox_unavailable",
)


@operation(
    "POST",
    _TERMINALS,
    Access.WORK,
    tag=_TAG,
    summary="Open a tool",
    answers="The terminal.",
    errors=_WORK,
    examples={"tool": {"tool": "psql"}},
    restores=True,
)
async def open_terminal(context: Context, body: TerminalBody) -> Created[Terminal]:
    """Starts a tool on its own terminal; the answer comes when the tool prints its prompt.

    The terminal keeps the current version of the tool's manifest.
    """
    opened = terminal(
        await context.work.complete(
            context.plane.tools.open(context.principal, context.session(), body.tool)
        )
    )
    return Created(opened, f"/api/sessions/{context.session_id}/ptys/{opened.id}")


@operation(
    "POST",
    _TERMINAL + "/interactions",
    Access.WORK,
    tag=_TAG,
    summary="Send a line",
    answers={200: "The tool's answer.", 202: "The line waits for a person's approval."},
    errors=_WORK,
    examples={
        "query": {"tool": "psql.select_query", "command": "SELECT 1"},
        "approved": {"tool": "psql.drop_table", "command": "DROP TABLE t", "wait": 60},
    },
)
async def interact(
    context: Context, terminal_id: str, body: InteractionBody
) -> Interaction | Accepted[Interaction]:
    """Sends a line if the tool's manifest and the rules allow it, and returns the tool's answer.

    The answer is 202 while a line that needs approval is undecided: nothing was sent, and sending
    the same line again asks for the decision. A line continues if its client disconnects.
    """
    if body.wait:
        context.work.follow()
    exchange = await context.plane.tools.interact(
        context.principal, context.session(), terminal_id, body.tool, body.command, body.wait
    )
    shown = interaction(exchange)
    return Accepted(shown) if shown.status == "pending" else shown


@operation(
    "GET",
    _TERMINALS,
    Access.READ,
    tag=_TAG,
    summary="List a session's terminals",
    answers="The terminals.",
)
async def list_terminals(context: Context, query: IncarnationQuery) -> Terminals:
    """All terminals of the session, past and present, oldest first; also after its end."""
    records = await context.plane.terminals.records.list(await _key(context, query))
    return Terminals(items=[terminal(record) for record in records], next=None)


@operation(
    "GET",
    _TERMINAL,
    Access.READ,
    tag=_TAG,
    summary="Inspect a terminal",
    answers="The terminal.",
)
async def read_terminal(context: Context, terminal_id: str, query: IncarnationQuery) -> Terminal:
    """One terminal, also after its own end or the session's end."""
    key = await _key(context, query)
    return terminal(await context.plane.terminals.records.get(key, terminal_id))


@operation(
    "GET",
    _TERMINAL + "/transcript",
    Access.READ,
    tag=_TAG,
    summary="Read a terminal's transcript",
    answers="The transcript.",
)
async def read_transcript(context: Context, terminal_id: str, query: IncarnationQuery) -> Text:
    """What happened in a terminal, line by line; output is quoted and escaped."""
    key = await _key(context, query)
    return Text(await context.plane.terminals.records.transcript(key, terminal_id))


@operation(
    "DELETE",
    _TERMINAL,
    Access.WORK,
    tag=_TAG,
    summary="End a terminal",
    answers="The ended terminal.",
    errors=("invalid_transition", "conflict", "sandbox_unavailable"),
    stops=stops.closes_terminal,
)
async def close_terminal(context: Context, terminal_id: str) -> Terminal:
    """Ends a terminal and its tool; an ended terminal stays unchanged."""
    ending = context.plane.terminals.close(context.session(), terminal_id)
    return terminal(await context.work.complete(ending))


async def _key(context: Context, query: IncarnationQuery) -> str:
    """The record key of the session whose terminals are read; it outlives the session."""
    return await context.record_key(context.session_id, query.incarnation)
