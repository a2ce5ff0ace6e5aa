"""Tools: the lines that an agent may send to interactive programs."""

from typing import Any

from pydantic import Field

from paddock.contract.base import Model, RiskTier, Sha256, example
from paddock.contract.fields import LevelChoice
from paddock.contract.requests import Query
from paddock.contract.words import MAX_LINE

_TOOL: dict[str, Any] = {
    "name": "psql.select_query",
    "tool": "psql",
    "command": "select_query",
    "description": "Run a SELECT query; one statement, without its semicolon",
    "pattern": "^SELECT .+$",
    "input_schema": {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_LINE,
                "description": "The line to send, without a line break at its end.",
            }
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    "risk_tier": "low",
    "human_approval": False,
    "allowed": True,
    "rule": None,
    "sha256": "9f2d1ea1f4a1d6f0b4b6b1e5d1a7c0e2f3948d7c6b5a49382716f5e4d3c2b1a0",
}


class Tool(Model):
    """One command of a tool."""

    model_config = example(_TOOL)

    name: str = Field(description="`<tool>.<command>`, or `<tool>` of a oneshot tool.")
    tool: str
    command: str = Field(description="Empty for a oneshot tool.")
    description: str
    pattern: str = Field(description="RE2; the whole line must match it. Empty for a oneshot tool.")
    input_schema: dict[str, Any] = Field(description="JSON Schema of its arguments.")
    risk_tier: RiskTier
    human_approval: bool = Field(description="Each line needs a person's approval.")
    allowed: bool = Field(description="Whether this session could be allowed to use it.")
    rule: str | None = Field(description="The gate that no line could pass; null where allowed.")
    sha256: Sha256 = Field(description="Of the tool's manifest.")


class Tools(Model):
    """The commands of all tools."""

    model_config = example({"items": [_TOOL], "next": None})

    items: list[Tool]
    next: None


class ToolsQuery(Query):
    """The level of the session that would use them; by default the usual one."""

    level: LevelChoice = None
