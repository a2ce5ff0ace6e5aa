"""Tools that are one operation: their arguments are its input, and their result its answer."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from api.mcp.inputs import Inputs, part
from api.mcp.results import ToolResult, of_model
from api.mcp.tool import Caller, McpTool, described
from api.shape.answers import Made


def of_query(
    name: str, handler: Callable[..., Any], query: type[BaseModel], *, reads: bool = False
) -> McpTool:
    """The tool of an operation that has a query."""
    return _tool(name, handler, "query", query, reads)


def of_body(name: str, handler: Callable[..., Any], body: type[BaseModel]) -> McpTool:
    """The tool of an operation that has a body."""
    return _tool(name, handler, "body", body, False)


def _tool(
    name: str, handler: Callable[..., Any], member: str, model: type[BaseModel], reads: bool
) -> McpTool:
    inputs = Inputs((part(model),))

    async def run(caller: Caller, given: dict[str, Any]) -> ToolResult:
        (own,) = inputs.read(given)
        async with caller.doing(handler, **{member: own}) as answer:
            return of_model(answer.model if isinstance(answer, Made) else answer)

    return McpTool(name, described(handler), inputs.schema, run, reads=reads)
