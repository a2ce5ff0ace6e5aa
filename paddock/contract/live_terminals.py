"""Live terminals: tickets for pages, and the frames of the WebSocket."""

from typing import Annotated, Literal

from pydantic import Field

from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.fields import Flag, Side
from paddock.contract.requests import Body, Query
from paddock.contract.words import ID_PATTERN, MOST_SIDE

_SIZE = {"cols": 120, "rows": 40}
_TERMINAL = {
    **{"id": "pty-8d3c0f5a1b2e4967", "kind": "shell", "tool": "shell"},
    **{"writable": True, **_SIZE},
}
_EXIT = {"exit_code": 0, "signal": None, "reason": "exited"}

_Length = Annotated[int, Field(ge=1, le=MOST_SIDE)]


class TicketBody(Body):
    """A request for a ticket."""

    session_id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=128,
            description="The session whose WebSocket is to be opened.",
            json_schema_extra={"pattern": f"^{ID_PATTERN}$"},
        ),
    ]


class Ticket(Model):
    """A ticket: it is used once, before it expires, for its session."""

    model_config = example(
        {
            "ticket": "kq2h1c9rS3vXo0pZbE7uWm5tYd8fLgAa",
            "expires_at": "2026-03-04T09:30:42.482113Z",
        }
    )

    ticket: str
    expires_at: Time


class LiveTerminalQuery(Query):
    """Which terminal, its size, and whether it is only watched."""

    pty: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="A terminal of the session; by default a new shell."
    )
    cols: Side | None = None
    rows: Side | None = None
    watch: Flag = Field(default=False, description="Nothing is typed.")


class TerminalSize(Model):
    """The size of a terminal."""

    model_config = example(_SIZE)

    cols: _Length
    rows: _Length


class WatchedTerminal(Model):
    """A terminal and what its viewer may do."""

    model_config = example(_TERMINAL)

    id: str
    kind: Annotated[Literal["tool", "shell"], WORDS]
    tool: str
    writable: bool = Field(description="Whether this viewer may type.")
    cols: _Length
    rows: _Length


class TerminalOpened(Model):
    """The first frame."""

    model_config = example({"terminal": _TERMINAL})

    terminal: WatchedTerminal


class TerminalResized(Model):
    """The terminal has another size."""

    model_config = example({"resize": _SIZE})

    resize: TerminalSize


class TerminalLost(Model):
    """So many bytes of the output are missing here: this viewer was too far behind."""

    model_config = example({"lost": 786_432})

    lost: Count


class TerminalEnd(Model):
    """How the program has ended."""

    model_config = example(_EXIT)

    exit_code: int | None
    signal: str | None
    reason: str


class TerminalExit(Model):
    """The last frame."""

    model_config = example({"exit": _EXIT})

    exit: TerminalEnd


class ClientSize(Body):
    """The size that a client wants."""

    cols: _Length
    rows: _Length


class ResizeFrame(Body):
    """A client's text frame."""

    resize: ClientSize
