"""A session's terminals: open them, send lines, read their transcripts, end them."""

from contextlib import ExitStack

from api.shape import stops
from api.shape.access import Access
from api.shape.answers import Accepted, Created, Text
from api.shape.byte_answers import Recording
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, operation
from api.views.terminals import interaction, terminal
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.access.keys import Role
from orchestrator.work.terminals.governed_terminals import GovernedTerminals
from orchestrator.work.terminals.terminals import Terminals as TerminalsService
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


@operation(
    "POST",
    _TERMINALS,
    Access.WORK,
    tag=_TAG,
    summary="Open a tool",
    answers="The terminal.",
    errors=WORK_ERRORS,
    examples={"tool": {"tool": "psql"}},
    restores=True,
)
async def open_terminal(
    context: Context, tools: GovernedTerminals, body: TerminalBody
) -> Created[Terminal]:
    """Starts a tool on its own terminal; the answer comes when the tool prints its prompt.

    The terminal keeps the current version of the tool's manifest.
    """
    opened = terminal(
        await context.work.complete(tools.open(context.principal, context.session(), body.tool))
    )
    return Created(opened, f"/api/sessions/{context.session_id}/ptys/{opened.id}")


@operation(
    "POST",
    _TERMINAL + "/interactions",
    Access.WORK,
    tag=_TAG,
    summary="Send a line",
    answers={200: "The tool's answer.", 202: "The line waits for a person's approval."},
    errors=WORK_ERRORS,
    examples={
        "query": {"tool": "psql.select_query", "command": "SELECT 1"},
        "approved": {"tool": "psql.drop_table", "command": "DROP TABLE t", "wait": 60},
    },
)
async def interact(
    context: Context, tools: GovernedTerminals, terminal_id: str, body: InteractionBody
) -> Interaction | Accepted[Interaction]:
    """Sends a line if the tool's manifest and the rules allow it, and returns the tool's answer.

    The answer is 202 while a line that needs approval is undecided: nothing was sent, and sending
    the same line again asks for the decision. A line continues if its client disconnects.
    """
    if body.wait:
        context.work.follow()
    exchange = await tools.interact(
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
async def list_terminals(
    context: Context, terminals: TerminalsService, query: IncarnationQuery
) -> Terminals:
    """All terminals of the session, past and present, oldest first; also after its end."""
    records = await terminals.records.list(await _key(context, query))
    return Terminals(items=[terminal(record) for record in records], next=None)


@operation(
    "GET",
    _TERMINAL,
    Access.READ,
    tag=_TAG,
    summary="Inspect a terminal",
    answers="The terminal.",
)
async def read_terminal(
    context: Context, terminals: TerminalsService, terminal_id: str, query: IncarnationQuery
) -> Terminal:
    """One terminal, also after its own end or the session's end."""
    key = await _key(context, query)
    return terminal(await terminals.records.get(key, terminal_id))


@operation(
    "GET",
    _TERMINAL + "/transcript",
    Access.READ,
    tag=_TAG,
    summary="Read a terminal's transcript",
    answers="The transcript.",
)
async def read_transcript(
    context: Context, terminals: TerminalsService, terminal_id: str, query: IncarnationQuery
) -> Text:
    """What happened in a terminal, line by line; output is quoted and escaped."""
    key = await _key(context, query)
    return Text(await terminals.records.transcript(key, terminal_id))


@operation(
    "GET",
    _TERMINAL + "/recording",
    Access.READ,
    tag=_TAG,
    summary="Read a terminal's recording",
    answers="The recording, as asciicast v2.",
    errors=("permission_denied",),
)
async def read_recording(
    context: Context, terminals: TerminalsService, terminal_id: str, query: IncarnationQuery
) -> Recording:
    """What was shown and typed, with times, for players of asciicast; also after the end.

    A tool is not recorded if its manifest says that its output is not kept. A handle can't read a
    shell's recording, because a person typed there.
    """
    key = await _key(context, query)
    records = terminals.records
    _check_person(context, (await records.get(key, terminal_id)).kind)
    with ExitStack() as held:
        held.enter_context(context.streaming("downloads"))
        return Recording(await records.recording(key, terminal_id), held.pop_all())


@operation(
    "DELETE",
    _TERMINAL,
    Access.WORK,
    tag=_TAG,
    summary="End a terminal",
    answers="The ended terminal.",
    errors=("invalid_transition", "conflict", "permission_denied", "sandbox_unavailable"),
    stops=stops.closes_terminal,
)
async def close_terminal(
    context: Context, terminals: TerminalsService, terminal_id: str
) -> Terminal:
    """Ends a terminal and its program; an ended one stays unchanged. A handle ends no shell."""
    session = context.session()
    for live in terminals.live(session):
        if live.id == terminal_id:
            _check_person(context, live.record.kind)
    ending = terminals.close(session, terminal_id)
    return terminal(await context.work.complete(ending))


def _check_person(context: Context, kind: str) -> None:
    """Raises: PermissionDeniedError for a handle, if it is a shell."""
    if kind == "shell" and context.principal.role is Role.HANDLE:
        raise PermissionDeniedError("a shell is a person's: this needs an API key")


async def _key(context: Context, query: IncarnationQuery) -> str:
    """The record key of the session whose terminals are read; it outlives the session."""
    return await context.record_key(context.session_id, query.incarnation)
