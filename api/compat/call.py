"""A request of a foreign protocol, and the operations that it performs as its caller."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aiohttp import web

from api.http.auth import check_role
from api.http.body import UPLOAD_PACE, arriving, check_encoding, read_body
from api.http.bounds import Unread
from api.shape.context import Context
from api.shape.operation import Operation
from orchestrator.control_plane import ControlPlane
from paddock.contract.requests import Body

Given = TypeVar("Given", bound=Body)


@dataclass(slots=True)
class Call:
    """A request of a known caller. `stopped`: an operation of it has stopped something."""

    request: web.Request
    context: Context
    plane: ControlPlane
    unread: Unread
    stopped: bool = False

    async def body(self, model: type[Given]) -> Given:
        """The request's JSON as `model`. Raises: the errors of `read_body`."""
        unread = self.unread.body(self.context.principal)
        return await read_body(self.request, model, unread, self.plane.aside, self.plane.levels)

    def upload(self) -> AsyncIterator[bytes]:
        """The request's bytes as they arrive. Raises: ValidationError."""
        check_encoding(self.request)
        return arriving(self.request, UPLOAD_PACE)

    def in_session(self, session_id: str) -> Context:
        """The context of an operation in that session."""
        context = replace(self.context, path={**self.context.path, "session_id": session_id})
        context.know_secrets()
        return context

    @asynccontextmanager
    async def doing(
        self, handler: Callable[..., Any], *, context: Context | None = None, **inputs: Any
    ) -> AsyncGenerator[Any]:
        """The answer of an operation's function, as a request of this API has it.

        `context` None: that of the request. Raises: PermissionDeniedError if the caller may not use
        the operation; its errors.
        """
        operation: Operation = vars(handler)["operation"]
        context = context or self.context
        named = {name: inputs[name] for name in operation.parameters if name in inputs}
        context = replace(context, path={**context.path, **named})
        check_role(context.principal, operation.access)
        if operation.stops is not None:
            services = context.shared.services.of_stop[operation.id]
            self.stopped |= operation.stops(context.of(operation), inputs.get("body"), **services)
        async with context.performing(operation, inputs) as answer:
            yield answer

    async def done(
        self, handler: Callable[..., Any], *, context: Context | None = None, **inputs: Any
    ) -> Any:
        """The answer of an operation that holds nothing open. Raises: as `doing`."""
        async with self.doing(handler, context=context, **inputs) as answer:
            return answer
