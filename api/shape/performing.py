"""Performs an operation for whoever asked, over HTTP or as a tool."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from api.shape.context import Context
from api.shape.operation import Operation


@asynccontextmanager
async def performing(
    operation: Operation, context: Context, inputs: Mapping[str, Any]
) -> AsyncGenerator[Any]:
    """The operation's answer.

    If the operation needs the sandbox of the path's session, the session keeps it meanwhile.
    """
    if not operation.restores:
        yield await operation.handler(context, **inputs)
        return
    async with context.plane.sessions.using(context.principal, context.session()):
        yield await operation.handler(context, **inputs)
