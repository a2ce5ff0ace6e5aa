"""What an agent may read about its session: the session, its budget, its latest events."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from api.mcp.messages import RESOURCE_NOT_FOUND, McpError
from api.operations.audit import count_audit, search_audit
from api.operations.budgets import show_budget
from api.operations.sessions import inspect_session
from api.shape.context import Context
from paddock.contract.audit import AuditEvents, AuditQuery
from paddock.contract.base import Model
from paddock.contract.requests import IncarnationQuery

_LATEST = 50


class Resource(NamedTuple):
    """A document; `read` makes its present content."""

    uri: str
    name: str
    description: str
    read: Callable[[Context], Awaitable[Model]]

    @property
    def raw(self) -> dict[str, Any]:
        """The members of the protocol's `Resource`."""
        return {
            "uri": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": "application/json",
        }


async def _audit(context: Context) -> AuditEvents:
    counts = await count_audit(context, IncarnationQuery())
    after = max(0, counts.total_operations - _LATEST)
    # A query's numbers are text.
    query = AuditQuery.model_validate({"after": str(after), "limit": str(_LATEST)})
    return await search_audit(context, query)


RESOURCES = (
    Resource("paddock://session", "session", "The session: level, limits, state.", inspect_session),
    Resource("paddock://budget", "budget", "Limits, consumption, and what is left.", show_budget),
    Resource("paddock://audit", "audit", f"The latest {_LATEST} events of the record.", _audit),
)


async def read_resource(context: Context, uri: str) -> dict[str, Any]:
    """The result of `resources/read`. Raises: McpError, and the errors of the operations."""
    found = next((each for each in RESOURCES if each.uri == uri), None)
    if found is None:
        raise McpError(RESOURCE_NOT_FOUND, f"there is no resource {uri[:128]}")
    text = (await found.read(context)).encode().decode()
    return {"contents": [{"uri": found.uri, "mimeType": "application/json", "text": text}]}
