"""Runs: turns whose program is a model that calls tools, and the timeline that they share."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paddock.contract.base import WORDS, Count, Model, Time, example, model_example
from paddock.contract.fields import KIB, MaxBytes, PageSize, PermissionLevel, Whole
from paddock.contract.host_tools import HostTools
from paddock.contract.requests import LARGE_BODY, Body, NoBody, Query
from paddock.contract.turns import USUAL_TIMEOUT, Turn, TurnStarted, TurnTimeout

MOST_MESSAGES = 32
MOST_TICKS = 100
MOST_ENTRIES = 500
_MOST_TEXT = 256 * KIB

SPAWN_EXAMPLE: dict[str, Any] = {
    "spawn_id": "spawn-6b1f4f0e-5a35-4f1c-9b7e-2f6f0e8b1f11",
    "child_session_id": "sess-93d1c2aa70b14e5f",
    "label": "reader",
    "call_id": "call_1",
}
_ENTRY: dict[str, Any] = {
    "seq": 2,
    "turn_number": 1,
    "time": "2026-03-04T09:30:13.114210Z",
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call_1", "name": "read_file", "arguments": '{"path": "README.md"}'}],
    "tool_call_id": None,
}


class Message(Body):
    """A message to the model. Only users' come from callers."""

    role: Literal["user"] = "user"
    content: Annotated[str, Field(min_length=1), MaxBytes(64 * KIB)]


Messages = Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]


class RenderBody(Body):
    """The body of `POST …/render`: a run without new messages."""

    MOST_BYTES = LARGE_BODY

    model: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="A model of `GET /api/models`; by default the first one."
    )
    system: Annotated[str, Field(min_length=1), MaxBytes(32 * KIB)] | None = Field(
        default=None, description="Instructions for the model instead of the usual ones."
    )
    max_ticks: int = Field(
        default=10, ge=1, le=MOST_TICKS, description="The most calls of the model."
    )
    max_timeline_entries: int = Field(
        default=MOST_ENTRIES,
        ge=1,
        le=MOST_ENTRIES,
        description="The most entries of the timeline that are kept; the oldest are removed.",
    )
    timeout: TurnTimeout = USUAL_TIMEOUT
    permission_level: PermissionLevel = Field(
        default=None, description="The session's new level; only its host may give one."
    )
    tools: HostTools = Field(
        default=[], description="Tools of the host for this run; only the host may give them."
    )


class QueueBody(Body):
    """The body of `POST …/queue`."""

    MOST_BYTES = LARGE_BODY

    messages: Messages

    @model_validator(mode="after")
    def _not_too_much(self) -> Self:
        check_size(self.messages)
        return self


def check_size(messages: list[Message]) -> None:
    """Raises ValueError if the messages are too long in all."""
    if sum(len(each.content.encode()) for each in messages) > _MOST_TEXT:
        raise ValueError(f"messages must have at most {_MOST_TEXT} bytes in all")


class SendBody(RenderBody, QueueBody):
    """The body of `POST …/send`."""

    MOST_BYTES = LARGE_BODY


class InterruptBody(NoBody):
    """Nothing, or a message that is queued for the next run."""

    MOST_BYTES = LARGE_BODY

    message: Annotated[str, Field(min_length=1), MaxBytes(64 * KIB)] | None = None


class MessagesQueued(Model):
    """The messages that wait for the session's next run."""

    model_config = example({"queued": 1})

    queued: Count


class Run(Turn):
    """A run as it ended: the turn that it was, and the model's last text."""

    text: str | None = Field(description="The model's last text; null if it came to none.")

    model_config = example({**model_example(Turn), "text": "The README says hello."})


class OfRun(Model):
    """What happens in a run, or in a run of a child that it has spawned."""

    SPARSE = True

    spawn_path: list[str] = Field(
        default=[],
        description="In a run of a child: the ids of the spawns that lead to it, the outermost "
        "first. Missing in the run itself.",
    )


class RunTick(OfRun):
    """The model is called."""

    model_config = example({"tick": 1})

    tick: int = Field(ge=1)


class RunText(OfRun):
    """A piece of the model's text."""

    model_config = example({"tick": 1, "text": "The README says "})

    tick: int = Field(ge=1)
    text: str


class RunToolCall(OfRun):
    """The model calls a tool."""

    model_config = example(
        {"tick": 1, "id": "call_1", "tool": "read_file", "arguments": '{"path": "README.md"}'}
    )

    tick: int = Field(ge=1)
    id: str
    tool: str
    arguments: str = Field(description="As the model wrote them.")


class RunToolResult(OfRun):
    """What the model is told of a call."""

    model_config = example({"tick": 1, "id": "call_1", "content": "hello\n"})

    tick: int = Field(ge=1)
    id: str
    content: str


class SpawnStart(OfRun):
    """A child was spawned, and its run begins."""

    model_config = example(SPAWN_EXAMPLE)

    spawn_id: str
    child_session_id: str
    label: str | None
    call_id: str | None = Field(description="The call of a tool that asks for it.")


class SpawnEnd(SpawnStart):
    """The child's run and the child have ended; no more events of it follow."""

    model_config = example(
        {
            **SPAWN_EXAMPLE,
            "text": "The README says hello.",
            "is_error": False,
            "error": None,
            "tokens_used": 30,
        }
    )

    text: str | None = Field(description="The model's last text; null if it came to none.")
    is_error: bool
    error: str | None
    tokens_used: Count


class TimelineToolCall(Model):
    """A call of a tool."""

    id: str
    name: str
    arguments: str


class TimelineEntry(Model):
    """One message of a session's timeline."""

    model_config = example(_ENTRY)

    seq: int = Field(ge=1)
    turn_number: Count
    time: Time
    role: Annotated[Literal["user", "assistant", "tool"], WORDS]
    content: str
    tool_calls: list[TimelineToolCall] = Field(description="What an assistant called.")
    tool_call_id: str | None = Field(description="The call whose result a tool's message is.")


class Timeline(Model):
    """Entries in order; `next` is the `after` of the next page."""

    model_config = example({"items": [_ENTRY], "next": None})

    items: list[TimelineEntry]
    next: int | None


class TimelineQuery(Query):
    """Entries with numbers above `after`."""

    after: Whole = 0
    limit: PageSize = 100


# The events of a run by name.
RUN_EVENTS: dict[str, type[Model]] = {
    "start": TurnStarted,
    "tick": RunTick,
    "text": RunText,
    "tool_call": RunToolCall,
    "tool_result": RunToolResult,
    "spawn_start": SpawnStart,
    "spawn_end": SpawnEnd,
    "end": Run,
}
