"""JSON-RPC messages of the protocol, and its versions. Decisions only."""

from typing import Any

from paddock.contract.mcp import McpReply

# Newest first. All of them begin with `initialize`.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")

# From this version on, clients know events without data, which tell them where to read on.
_RESUMABLE_SINCE = "2025-11-25"

TOOLS_CHANGED = "notifications/tools/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"
LOG_MESSAGE = "notifications/message"
PROGRESS = "notifications/progress"
CANCELLED = "notifications/cancelled"
INITIALIZE = "initialize"

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
# The API refused or failed; `data` is its problem document.
REFUSED = -32000
RESOURCE_NOT_FOUND = -32002

RequestId = str | int


class McpError(Exception):
    """A request that the protocol refuses, with JSON-RPC's code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def negotiated(wanted: object) -> str:
    """The version to speak with a client that wants that one."""
    return wanted if isinstance(wanted, str) and wanted in VERSIONS else VERSIONS[0]


def resumable(version: str) -> bool:
    """Whether clients of that version can read a stream on after a break."""
    return version >= _RESUMABLE_SINCE


def answer(request_id: RequestId, result: dict[str, Any]) -> McpReply:
    """The answer to a request."""
    return McpReply(jsonrpc="2.0", id=request_id, result=result)


def failure(request_id: RequestId, error: McpError, data: dict[str, Any] | None = None) -> McpReply:
    """The refusal of a request; `data` says more about it."""
    described: dict[str, Any] = {"code": error.code, "message": str(error)}
    if data is not None:
        described["data"] = data
    return McpReply(jsonrpc="2.0", id=request_id, error=described)


def notice(method: str, params: dict[str, Any] | None = None) -> McpReply:
    """A notification."""
    if params is None:
        return McpReply(jsonrpc="2.0", method=method)
    return McpReply(jsonrpc="2.0", method=method, params=params)


def text_parameter(params: dict[str, Any], name: str) -> str:
    """A parameter that must be text. Raises: McpError."""
    value = params.get(name)
    if not isinstance(value, str):
        raise McpError(INVALID_PARAMS, f"{name} must be given, as text")
    return value


def object_parameter(params: dict[str, Any], name: str) -> dict[str, Any]:
    """A parameter that is an object; empty if it is missing or null. Raises: McpError."""
    value = params.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise McpError(INVALID_PARAMS, f"{name} must be an object")
    return value


def request_id(value: object) -> RequestId | None:
    """The value as the id or token of a request; None if it can't be one."""
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
