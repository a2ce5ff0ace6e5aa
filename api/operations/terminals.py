"""Terminals: open them, send lines, look at them, read their transcripts, end them."""

from http import HTTPStatus

from api import stops
from api.auth import Access
from api.operations.base import SESSION, Operation, Reply, ok
from api.queries import IncarnationQuery
from api.routes import terminals
from api.tool_schemas import InteractionBody, TerminalBody
from paddock.contract.terminals import Interaction, Terminal, Terminals

_TAG = "Terminals"
_TERMINAL = SESSION + "/ptys/{terminal_id}"

_WORK = (
    "session_terminated",
    "invalid_transition",
    "conflict",
    "busy",
    "permission_denied",
    "sandbox_unavailable",
)

OPERATIONS = (
    Operation(
        "POST",
        SESSION + "/ptys",
        terminals.open_one,
        Access.WORK,
        body=TerminalBody,
        id="open_terminal",
        tag=_TAG,
        summary="Open a tool",
        replies={
            HTTPStatus.CREATED: Reply("The terminal.", Terminal, headers=("Location",)),
        },
        errors=_WORK,
        examples={"tool": {"tool": "psql"}},
    ),
    Operation(
        "POST",
        _TERMINAL + "/interactions",
        terminals.interact,
        Access.WORK,
        body=InteractionBody,
        id="interact",
        tag=_TAG,
        summary="Send a line",
        replies={
            HTTPStatus.OK: Reply("What the tool answered.", Interaction),
            HTTPStatus.ACCEPTED: Reply("It waits for a person.", Interaction),
        },
        errors=_WORK,
        examples={
            "query": {"tool": "psql.select_query", "command": "SELECT 1"},
            "approved": {"tool": "psql.drop_table", "command": "DROP TABLE t", "wait": 60},
        },
    ),
    Operation(
        "GET",
        SESSION + "/ptys",
        terminals.list_all,
        Access.READ,
        query=IncarnationQuery,
        id="list_terminals",
        tag=_TAG,
        summary="List a session's terminals",
        replies=ok("The terminals.", Terminals),
    ),
    Operation(
        "GET",
        _TERMINAL,
        terminals.read,
        Access.READ,
        query=IncarnationQuery,
        id="read_terminal",
        tag=_TAG,
        summary="Look at a terminal",
        replies=ok("The terminal.", Terminal),
    ),
    Operation(
        "GET",
        _TERMINAL + "/transcript",
        terminals.transcript,
        Access.READ,
        query=IncarnationQuery,
        id="read_transcript",
        tag=_TAG,
        summary="Read a terminal's transcript",
        replies={
            HTTPStatus.OK: Reply("The transcript.", media_type="text/plain"),
        },
    ),
    Operation(
        "DELETE",
        _TERMINAL,
        terminals.close,
        Access.WORK,
        stops=stops.closes_terminal,
        id="close_terminal",
        tag=_TAG,
        summary="End a terminal",
        replies=ok("The terminal as it has ended.", Terminal),
        errors=("invalid_transition", "conflict", "sandbox_unavailable"),
    ),
)
