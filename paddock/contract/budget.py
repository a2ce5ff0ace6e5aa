"""A session's budget and its consumption."""

import math
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from paddock.contract.base import Model, example
from paddock.contract.requests import Body
from paddock.contract.words import MOST_BUDGET

_NOTHING: dict[str, Any] = {
    "time": None,
    "iterations": None,
    "commands": None,
    "cpu_seconds": None,
    "output_bytes": None,
    "audit_bytes": None,
    "tokens": None,
    "cost": None,
    "egress_bytes": None,
}
EXAMPLE: dict[str, Any] = {
    "limits": {**_NOTHING, "commands": 100, "cpu_seconds": 60, "audit_bytes": 268_435_456},
    "consumed": {
        "time": 12.482113,
        "iterations": 0,
        "commands": 3,
        "cpu_seconds": 0.731944,
        "output_bytes": 5120,
        "audit_bytes": 9216,
        "tokens": 0,
        "cost": 0,
        "egress_bytes": 0,
    },
    "remaining": {
        **_NOTHING,
        "commands": 97,
        "cpu_seconds": 59.268056,
        "audit_bytes": 268_426_240,
    },
}


# A whole amount stays one.
_Number = Annotated[int | float, WithJsonSchema({"type": "number"})]


class BudgetAmounts(Model):
    """An amount of each kind; null where the session has no limit."""

    time: _Number | None = Field(description="Seconds since the session was created.")
    iterations: int | None = Field(description="Turns.")
    commands: int | None = Field(description="Commands that were started.")
    cpu_seconds: _Number | None = Field(
        description="CPU time of everything in the sandbox, as of the last command's end."
    )
    output_bytes: int | None = Field(
        description="What commands printed, kept or not, as of the last command's end."
    )
    audit_bytes: int | None = Field(description="Size of its record in the audit ledger.")
    tokens: int | None = Field(description="Tokens of language models.")
    cost: _Number | None = Field(description="Dollars.")
    egress_bytes: int | None = Field(description="Bytes sent to the network and received.")


class Budget(Model):
    """A session's budget. The remainder is the limit minus the consumption, and never below 0."""

    model_config = example(EXAMPLE)

    limits: BudgetAmounts
    consumed: BudgetAmounts
    remaining: BudgetAmounts


_Count = Annotated[int, Field(ge=1, le=MOST_BUDGET)]
# Internally they are counted in millionths.
_Amount = Annotated[float, Field(gt=0, le=MOST_BUDGET // 10**6, allow_inf_nan=False)]


class UsageBody(Body):
    """What the host's own calls of language models used."""

    tokens: Annotated[int, Field(ge=0, le=10**9)] = Field(default=0, description="Of all calls.")
    cost: Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)] = Field(
        default=0, description="Dollars, which are counted in millionths, rounded up."
    )

    @property
    def microdollars(self) -> int:
        """The cost in whole micro-dollars."""
        return math.ceil(Decimal(str(self.cost)) * 10**6)


class BudgetBody(Body):
    """The session's total limits; the session ends when one is used up."""

    time: _Amount | None = Field(default=None, description="Seconds since its creation.")
    iterations: _Count | None = Field(default=None, description="Turns.")
    commands: _Count | None = Field(
        default=None,
        description="Started commands, opened tools, and lines sent to them.",
    )
    cpu_seconds: _Amount | None = Field(
        default=None, description="CPU time of everything in the sandbox."
    )
    output_bytes: _Count | None = Field(
        default=None, description="Output of commands and tools, kept or not."
    )
    audit_bytes: Annotated[int, Field(ge=65_536, le=MOST_BUDGET)] | None = Field(
        default=None,
        description="Size of its audit record; at most the level's limit, which is the default.",
    )
    tokens: _Count | None = Field(default=None, description="Tokens of language models.")
    cost: _Amount | None = Field(default=None, description="Dollars.")
    egress_bytes: _Count | None = Field(
        default=None, description="Bytes sent to the network and received."
    )
