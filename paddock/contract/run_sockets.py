"""A WebSocket for runs: what a client asks for, and what it is told."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from paddock.contract.base import Model, example
from paddock.contract.fields import KIB, MaxBytes
from paddock.contract.problem import Problem
from paddock.contract.runs import (
    RenderBody,
    Run,
    RunText,
    RunTick,
    RunToolCall,
    RunToolResult,
    SpawnEnd,
    SpawnStart,
)
from paddock.contract.turns import TurnStarted

RunSocketName: TypeAlias = Literal[
    "start",
    "tick",
    "text",
    "tool_call",
    "tool_result",
    "spawn_start",
    "spawn_end",
    "end",
    "error",
    "refused",
]


class RunFrame(RenderBody):
    """A client's text frame: a message for a run of the socket's session."""

    type: Literal["run"]
    session_id: Annotated[str, Field(min_length=1, max_length=128)]
    input: Annotated[str, Field(min_length=1), MaxBytes(64 * KIB)]


class RunSocketFrame(Model):
    """A text frame of the server: one event, or why a frame was refused."""

    model_config = example({"event": "tick", "id": 1, "data": {"tick": 1}})
    SPARSE = True

    event: RunSocketName
    id: int | None
    data: (
        TurnStarted
        | RunTick
        | RunText
        | RunToolCall
        | RunToolResult
        | SpawnStart
        | SpawnEnd
        | Run
        | Problem
    )
