"""A tool: an operation of the API that an agent calls by its name."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from api.mcp.conversation import Conversation
from api.shape.context import Context
from api.shape.operation import Operation
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.terminals import Terminals

# Tells the client how far the call is: a text, and a number that grows.
Tell = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a tool, and how to send it progress."""

    context: Context
    conversation: Conversation
    tell: Tell
    session_tools: SessionTools
    terminals: Terminals

    def doing(
        self, handler: Callable[..., Any], *, context: Context | None = None, **inputs: Any
    ) -> AbstractAsyncContextManager[Any]:
        """The answer of an operation's function, as an HTTP request has it."""
        operation: Operation = vars(handler)["operation"]
        return (context or self.context).performing(operation, inputs)


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool as clients list and call it. `run` gets the caller and the arguments."""

    name: str
    description: str
    schema: dict[str, Any]
    run: Callable[[Caller, dict[str, Any]], Awaitable[Any]]
    reads: bool = False

    @property
    def raw(self) -> dict[str, Any]:
        """The members of the protocol's `Tool`."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {"readOnlyHint": self.reads, "openWorldHint": False},
        }


def described(handler: Callable[..., Any]) -> str:
    """What an operation's function does, in the API's own words."""
    operation: Operation = vars(handler)["operation"]
    return operation.description
