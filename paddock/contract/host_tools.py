"""Tools that a host registers with a run: a model's call of one is a signed POST to the host."""

import json
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from paddock.contract.fields import KIB, MaxBytes
from paddock.contract.requests import Body

_MOST_TOOLS = 32
_MOST_SCHEMA = 8 * KIB
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}


class HostTool(Body):
    """A tool of the host."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", max_length=64, examples=["create_ticket"])
    description: Annotated[str, Field(min_length=1), MaxBytes(KIB)] = Field(
        description="What the model is told of it."
    )
    input_schema: dict[str, Any] = Field(
        max_length=64,
        description="JSON Schema of its arguments, an object without references and patterns; "
        f"{_MOST_SCHEMA} bytes.",
        examples=[_SCHEMA],
    )
    url: Annotated[str, Field(min_length=1, max_length=2048)] = Field(
        description="Where calls are sent; below one of the operator's `PADDOCK_TOOL_URLS`.",
        examples=["https://tools.example.com/create-ticket"],
    )
    secret: str = Field(
        pattern=r"^[!-~]{16,256}$",
        max_length=256,
        repr=False,
        description="The key that signs the calls; it is neither stored nor shown.",
        json_schema_extra={"format": "password", "writeOnly": True},
        examples=["a-key-of-16-or-more-characters"],
    )
    timeout: int = Field(default=30, ge=1, le=600, description="Seconds for one call.")

    @model_validator(mode="after")
    def _short(self) -> Self:
        if len(json.dumps(self.input_schema, ensure_ascii=False).encode()) > _MOST_SCHEMA:
            raise ValueError(f"input_schema must have at most {_MOST_SCHEMA} bytes")
        return self


HostTools = Annotated[list[HostTool], Field(max_length=_MOST_TOOLS)]
