"""What an agent may read about its session, and be told of: also the files of its workspace."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from api.mcp.file_resources import TEMPLATE, path_of, read_file_resource, watch_file
from api.mcp.messages import RESOURCE_NOT_FOUND, McpError
from api.mcp.subscriptions import AUDIT_URI, BUDGET_URI, SESSION_URI
from api.mcp.tool import Caller
from api.operations.audit import count_audit, search_audit
from api.operations.budgets import show_budget
from api.operations.sessions import inspect_session
from paddock.contract.audit import AuditQuery, AuditStats
from paddock.contract.base import Model
from paddock.contract.requests import IncarnationQuery

_LATEST = 50


class Resource(NamedTuple):
    """A document; `read` makes its present content."""

    uri: str
    name: str
    description: str
    read: Callable[[Caller], Awaitable[Model]]

    @property
    def raw(self) -> dict[str, Any]:
        """The members of the protocol's `Resource`."""
        return {
            "uri": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": "application/json",
        }


async def _session(caller: Caller) -> Model:
    shown: Model = await _answer(caller, inspect_session)
    return shown


async def _budget(caller: Caller) -> Model:
    shown: Model = await _answer(caller, show_budget)
    return shown


async def _audit(caller: Caller) -> Model:
    counts: AuditStats = await _answer(caller, count_audit, query=IncarnationQuery())
    after = max(0, counts.total_operations - _LATEST)
    # A query's numbers are text.
    query = AuditQuery.model_validate({"after": str(after), "limit": str(_LATEST)})
    shown: Model = await _answer(caller, search_audit, query=query)
    return shown


async def _answer(caller: Caller, handler: Callable[..., Any], **inputs: Any) -> Any:
    async with caller.doing(handler, **inputs) as answer:
        return answer


RESOURCES = (
    Resource(SESSION_URI, "session", "The session: level, limits, state.", _session),
    Resource(BUDGET_URI, "budget", "Limits, consumption, and what is left.", _budget),
    Resource(AUDIT_URI, "audit", f"The latest {_LATEST} events of the record.", _audit),
)


TEMPLATES = (TEMPLATE,)


async def read_resource(caller: Caller, uri: str) -> dict[str, Any]:
    """The result of `resources/read`. Raises: McpError, and the errors of the operations."""
    if (path := path_of(uri)) is not None:
        return {"contents": [await read_file_resource(caller, uri, path)]}
    text = (await _known(uri).read(caller)).encode().decode()
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}


async def subscribe(caller: Caller, uri: str) -> dict[str, Any]:
    """The result of `resources/subscribe`; a file need not exist, but its directory.

    Raises: McpError, BusyError, and the errors of a watch.
    """
    subscriptions = caller.conversation.subscriptions
    path = path_of(uri)
    if path is None:
        _known(uri)
    if uri in subscriptions:
        return {}
    subscriptions.check_room()
    subscriptions.add(uri, None if path is None else await watch_file(caller, uri, path))
    return {}


def unsubscribe(caller: Caller, uri: str) -> dict[str, Any]:
    """The result of `resources/unsubscribe`; there need not be a subscription."""
    caller.conversation.subscriptions.remove(uri)
    return {}


def _known(uri: str) -> Resource:
    found = next((each for each in RESOURCES if each.uri == uri), None)
    if found is None:
        raise McpError(RESOURCE_NOT_FOUND, f"there is no resource {uri[:128]}")
    return found
