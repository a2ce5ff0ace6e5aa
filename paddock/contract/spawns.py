"""Spawning: children of sessions, and runs in them."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from paddock.contract.base import Model, example, model_example
from paddock.contract.budget import BudgetBody
from paddock.contract.fields import KIB, MaxBytes, PermissionLevel, sentence
from paddock.contract.policies import PolicyChoice
from paddock.contract.requests import LARGEST_BODY, Body
from paddock.contract.runs import (
    MOST_TICKS,
    SPAWN_EXAMPLE,
    Messages,
    Run,
    RunText,
    RunTick,
    RunToolCall,
    RunToolResult,
    SpawnEnd,
    SpawnStart,
    check_size,
)
from paddock.contract.words import SpawnedWorkspace

MOST_LABEL = 128
_OF_RUNS = ("model", "system", "max_ticks")

SpawnLabel = Annotated[str, Field(min_length=1, max_length=MOST_LABEL)]


class SpawnBody(Body):
    """The body of `POST …/spawn`; what is not given is as in the parent."""

    MOST_BYTES = LARGEST_BODY

    label: SpawnLabel | None = Field(default=None, description="The caller's name for the child.")
    workspace: SpawnedWorkspace = Field(
        default="own",
        description="`own`: a new one; `read-only`: the parent's, in which it can't write.",
    )
    permission_level: PermissionLevel = Field(
        default=None, description="Not above the parent's; default: the parent's."
    )
    budget: BudgetBody = Field(
        default_factory=BudgetBody,
        description="Limits of the child, at most what its parent has left; they are reserved. "
        "Where the parent has a limit and none is given, the child gets half of what is left.",
    )
    policy: PolicyChoice | None = Field(
        default=None,
        description="The name of a session policy, or its members, that permits no more than the "
        "parent's; default: the parent's.",
    )
    idle_timeout: int | None = Field(
        default=None, ge=1, description="Seconds; default: the parent's."
    )
    messages: Messages | None = Field(
        default=None,
        description="Runs a model with these messages in the child, and ends the child with it.",
    )
    model: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="A model of `GET /api/models`; by default the first one."
    )
    system: Annotated[str, Field(min_length=1), MaxBytes(32 * KIB)] | None = Field(
        default=None, description="Instructions for the model instead of the usual ones."
    )
    max_ticks: Annotated[int, Field(ge=1, le=MOST_TICKS)] | None = Field(
        default=None, description="The most calls of the model; default: 10."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.messages is None:
            given = [name for name in _OF_RUNS if getattr(self, name) is not None]
            if given:
                raise sentence(f"{given[0]} is for a run: give messages with it")
        else:
            check_size(self.messages)
        return self


class SpawnedRun(Model):
    """A run in a child, which has ended with it."""

    spawn_id: str
    child_session_id: str
    label: str | None
    text: str | None = Field(description="The model's last text; null if it came to none.")
    is_error: bool
    error: str | None
    turn: Run | None = Field(description="The child's run; null if it could not be started.")

    model_config = example(
        {
            **{name: SPAWN_EXAMPLE[name] for name in ("spawn_id", "child_session_id", "label")},
            "text": "The README says hello.",
            "is_error": False,
            "error": None,
            "turn": model_example(Run),
        }
    )


# The events of a run in a child by name. Those of the child itself have a `spawn_path`.
SPAWN_EVENTS: dict[str, type[Model]] = {
    "spawn_start": SpawnStart,
    "tick": RunTick,
    "text": RunText,
    "tool_call": RunToolCall,
    "tool_result": RunToolResult,
    "spawn_end": SpawnEnd,
}
