"""Turns: programs of governed operations, and how they ended."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from paddock.contract.base import WORDS, Count, LevelName, Model, Time, example
from paddock.contract.fields import KIB, MaxBytes, PageSize, Whole
from paddock.contract.requests import LARGEST_BODY, Body, Query, check_one, exactly_one

MOST_CALLS = 1000

TurnTimeout = Annotated[
    int,
    Field(
        ge=1,
        le=86_400,
        description="The seconds after which it is stopped, with the outcome `error` of the type "
        "`interrupted`.",
    ),
]
USUAL_TIMEOUT = 3600

_OPERATION: dict[str, Any] = {
    "seq": 14,
    "time": "2026-03-04T09:30:12.482113Z",
    "operation": "world.read",
    "decision": "allow",
    "rule": None,
    "args": {"ref": "README.md"},
    "result": {
        "bytes": 6,
        "sha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    },
    "error": None,
    "duration_ms": 2,
    "tokens_used": None,
}
_SUMMARY: dict[str, Any] = {
    "turn_number": 1,
    "status": "ended",
    "actor": "handle:sess-4f1c0a9be27d3586",
    "permission_level": "low",
    "workspace_root": "/var/lib/paddock/session-workspaces/sess-4f1c0a9be27d3586",
    "started_at": "2026-03-04T09:30:12.482113Z",
    "ended_at": "2026-03-04T09:30:12.490120Z",
    "outcome": {
        "tag": "ok",
        "value": "hello\n",
        "metadata": {"time_ms": 8, "tokens": 0, "cost_microdollars": 0},
    },
    "tokens_used": 0,
    "operations_count": 1,
    "proposals": [],
    "budget_remaining": {"tokens": 5000, "cost": 0.5, "time": None, "iterations": 9},
    "printed": "",
}


class OperationCall(Body):
    """One operation, with its arguments by name."""

    operation: str = Field(min_length=1, max_length=64)
    args: dict[str, Any] = Field(default_factory=dict, max_length=16)


class TurnBody(Body):
    """The body of `POST …/turns`: exactly one of `code` and `operations`."""

    MOST_BYTES = LARGEST_BODY

    model_config = ConfigDict(json_schema_extra=exactly_one("code", "operations"))

    code: Annotated[str, MaxBytes(256 * KIB)] | None = Field(
        default=None, description="A program in Lisp; its last value is the turn's."
    )
    operations: Annotated[list[OperationCall], Field(max_length=MOST_CALLS)] | None = Field(
        default=None,
        description="Operations, one after the other; the turn's value is the list of their "
        "values.",
    )
    timeout: TurnTimeout = USUAL_TIMEOUT

    @model_validator(mode="after")
    def _one_script(self) -> Self:
        check_one(self, "code", "operations")
        return self


class TurnsQuery(Query):
    """Turns with numbers above `after`."""

    after: Whole = 0
    limit: PageSize = 100


class TurnOperation(Model):
    """An operation of a turn, as it is on record."""

    model_config = example(_OPERATION)

    seq: int = Field(ge=1, description="Its event in the session's record.")
    time: Time
    operation: str
    decision: Annotated[Literal["allow", "deny"], WORDS] | None
    rule: str | None = Field(description="The rule of the policy that refused it.")
    args: dict[str, Any] = Field(description="As in audit events: long texts are shortened.")
    result: dict[str, Any] | None = Field(description="Sizes, digests and counts, no content.")
    error: str | None
    duration_ms: Count | None
    tokens_used: Count | None


class Outcome(Model):
    """How a turn ended; `tag` says which of the other members are there."""

    SPARSE = True

    model_config = example(_SUMMARY["outcome"])

    tag: Annotated[Literal["ok", "proposed", "nonconverged", "cycle", "needs", "error"], WORDS]
    value: Any = Field(default=None, description="The program's value, or the last one.")
    proposals: list[Any] | None = None
    iterations: Count | None = None
    reason: Annotated[Literal["budget", "max-iterations", "max-tokens"], WORDS] | None = None
    cycle_length: Count | None = None
    signatures: list[str] | None = None
    need_type: str | None = Field(default=None, description="What kind of thing is needed.")
    description: str | None = None
    context: Any = None
    message: str | None = None
    error_type: str | None = Field(
        default=None, description="`policy-violation`, `runtime-error` or `interrupted`."
    )
    stacktrace: list[str] | None = Field(
        default=None, description="The functions that were being called, the innermost first."
    )
    metadata: dict[str, Any] = Field(
        description="`time_ms`, `tokens`, `cost_microdollars`, and others where they are known."
    )


class TurnProposal(Model):
    """A change that the turn has staged."""

    type: Annotated[Literal["write", "delete", "run"], WORDS]
    ref: str | None = Field(description="The file.")
    command: str | None = Field(description="The command, which may have changed any file.")
    timestamp: Time


class TurnBudget(Model):
    """What is left after the turn; null: no limit."""

    tokens: int | None
    cost: float | int | None = Field(description="Dollars.")
    time: float | int | None = Field(description="Seconds.")
    iterations: int | None = Field(description="Turns.")


class TurnSummary(Model):
    """A turn without its operations."""

    SPARSE = True

    model_config = example(_SUMMARY)

    turn_number: int | None = Field(
        description="From 1. Null for one that did not run, because no budget was left."
    )
    status: Annotated[Literal["running", "ended"], WORDS]
    actor: str = Field(description="Who ran it: a key's name, or `handle:<session>`.")
    permission_level: LevelName | None = Field(description="The session's when it began.")
    workspace_root: str | None = Field(description="The session's when it began.")
    started_at: Time
    ended_at: Time | None
    outcome: Outcome | None = Field(description="Null while it runs.")
    tokens_used: Count = Field(
        description="What the session used since the turn before, with what its host has reported."
    )
    operations_count: Count
    proposals: list[TurnProposal]
    budget_remaining: TurnBudget | None = Field(description="Null while it runs.")
    printed: str = Field(description="What the program displayed.")


class Turn(TurnSummary):
    """A turn with its operations, in order."""

    model_config = example({**_SUMMARY, "operations": [_OPERATION]})

    operations: list[TurnOperation]


class Turns(Model):
    """Turns in order; `next` is the `after` of the next page."""

    SPARSE = True

    model_config = example({"items": [_SUMMARY], "next": None})

    items: list[TurnSummary]
    next: int | None


class TurnStarted(Model):
    """A turn has begun."""

    model_config = example({"turn_number": 1})

    turn_number: int


# The events of a turn by name; `operation` once for each, in order.
TURN_EVENTS: dict[str, type[Model]] = {
    "start": TurnStarted,
    "operation": TurnOperation,
    "end": Turn,
}
