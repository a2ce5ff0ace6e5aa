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
    """The operation's answer; its function gets the services that it names.

    If the operation needs the sandbox of the path's session, the session keeps it meanwhile.
    """
    given = context.shared.services.of_operation[operation.id]
    if not operation.restores:
        yield await operation.handler(context, **given, **inputs)
        return
    async with context.shared.sessions.suspensions.using(context.principal, context.session()):
        yield await operation.handler(context, **given, **inputs)
