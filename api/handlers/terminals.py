"""A session's terminals: open them, send lines, read their transcripts, end them."""

from api import stops
from api.access import Access
from api.answers import Accepted, Created, Text
from api.context import Context
from api.operation import SESSION, operation
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
)
async def open_terminal(context: Context, body: TerminalBody) -> Created[Terminal]:
    """Starts a tool on a terminal of its own; the answer comes when it shows its prompt.

    The terminal is pinned to the tool's manifest as it is now.
    """
    record = await context.work.complete(
        context.plane.tools.open(context.principal, context.session(), body.tool)
    )
    opened = Terminal.model_validate(record)
    return Created(opened, f"/api/sessions/{context.session_id}/ptys/{opened.id}")


@operation(
    "POST",
    _TERMINAL + "/interactions",
    Access.WORK,
    tag=_TAG,
    summary="Send a line",
    answers={200: "What the tool answered.", 202: "It waits for a person."},
    errors=_WORK,
    examples={
        "query": {"tool": "psql.select_query", "command": "SELECT 1"},
        "approved": {"tool": "psql.drop_table", "command": "DROP TABLE t", "wait": 60},
    },
)
async def interact(
    context: Context, terminal_id: str, body: InteractionBody
) -> Interaction | Accepted[Interaction]:
    """Sends a line, where the tool's manifest and the rules allow it; what the tool answered.

    202 while a line that a person must approve has no word yet: nothing was sent, and the same
    line again asks for the word. A line goes on when its client goes away.
    """
    if body.wait:
        context.work.follow()
    envelope = await context.plane.tools.interact(
        context.principal, context.session(), terminal_id, body.tool, body.command, body.wait
    )
    interaction = Interaction.model_validate(envelope)
    return Accepted(interaction) if interaction.status == "pending" else interaction


@operation(
    "GET",
    _TERMINALS,
    Access.READ,
    tag=_TAG,
    summary="List a session's terminals",
    answers="The terminals.",
)
async def list_terminals(context: Context, query: IncarnationQuery) -> Terminals:
    """Every terminal that the session has, and had, oldest first; also after the session's end."""
    records = await context.plane.terminals.records.list(await _key(context, query))
    return Terminals(items=[Terminal.model_validate(record) for record in records], next=None)


@operation(
    "GET",
    _TERMINAL,
    Access.READ,
    tag=_TAG,
    summary="Look at a terminal",
    answers="The terminal.",
)
async def read_terminal(context: Context, terminal_id: str, query: IncarnationQuery) -> Terminal:
    """One terminal, also after its end, and that of its session."""
    key = await _key(context, query)
    return Terminal.model_validate(await context.plane.terminals.records.get(key, terminal_id))


@operation(
    "GET",
    _TERMINAL + "/transcript",
    Access.READ,
    tag=_TAG,
    summary="Read a terminal's transcript",
    answers="The transcript.",
)
async def read_transcript(context: Context, terminal_id: str, query: IncarnationQuery) -> Text:
    """What happened in a terminal, line by line; what was said is quoted and escaped."""
    key = await _key(context, query)
    return Text(await context.plane.terminals.records.transcript(key, terminal_id))


@operation(
    "DELETE",
    _TERMINAL,
    Access.WORK,
    tag=_TAG,
    summary="End a terminal",
    answers="The terminal as it has ended.",
    errors=("invalid_transition", "conflict", "sandbox_unavailable"),
    stops=stops.closes_terminal,
)
async def close_terminal(context: Context, terminal_id: str) -> Terminal:
    """Ends a terminal and its tool; one that has ended stays as it is."""
    ending = context.plane.terminals.close(context.session(), terminal_id)
    return Terminal.model_validate(await context.work.complete(ending))


async def _key(context: Context, query: IncarnationQuery) -> str:
    """The session whose terminals are meant: they outlive its record."""
    return await context.record_key(context.session_id, query.incarnation)
