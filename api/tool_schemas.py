"""What the bodies of requests about tools look like: terminals, lines, approvals."""

from typing import Annotated, Literal

from pydantic import Field

from api.fields import ToolName, Wait
from api.schemas import Body
from sandbox_agent.pty.sanitize import MAX_TEXT


class TerminalBody(Body):
    """What a terminal is opened for."""

    tool: ToolName = Field(description="The name of a tool that the session lists.")


class InteractionBody(Body):
    """A line for a terminal's tool."""

    tool: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="`<tool>.<command>`: what the line is meant to be."
    )
    command: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] = Field(
        description="The line, without a line break at its end."
    )
    wait: Wait = Field(
        default=0, description="Seconds to wait for a person, where the line needs one."
    )


class ApprovalBody(Body):
    """A person's word, and why."""

    decision: Literal["approve", "deny"]
    reason: Annotated[str, Field(max_length=1024)] | None = None
