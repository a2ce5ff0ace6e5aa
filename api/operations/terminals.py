"""Terminals: look at them, read their transcripts, end them."""

from http import HTTPStatus

from api.models.terminals import Terminal, Terminals
from api.operations.base import SESSION, Operation, Reply, ok
from api.routes import terminals

_TAG = "Terminals"
_TERMINAL = SESSION + "/ptys/{terminal_id}"

OPERATIONS = (
    Operation(
        "GET",
        SESSION + "/ptys",
        terminals.list_all,
        id="list_terminals",
        tag=_TAG,
        summary="List a session's terminals",
        replies=ok("The terminals.", Terminals),
    ),
    Operation(
        "GET",
        _TERMINAL,
        terminals.read,
        id="read_terminal",
        tag=_TAG,
        summary="Look at a terminal",
        replies=ok("The terminal.", Terminal),
    ),
    Operation(
        "GET",
        _TERMINAL + "/transcript",
        terminals.transcript,
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
        id="close_terminal",
        tag=_TAG,
        summary="End a terminal",
        replies=ok("The terminal as it has ended.", Terminal),
        errors=("invalid_transition", "conflict", "sandbox_unavailable"),
    ),
)
