"""Requests as E2B's SDKs send them, over plain HTTP."""

from datetime import UTC, datetime
from typing import Any

from aiohttp import ClientResponse

from tests.api.conftest import OPERATOR_KEY, Api

BASE = "/compat/e2b"
SANDBOXES = "/v2/sandboxes"


async def sent(
    api: Api, method: str, path: str, *, key: str | None = OPERATOR_KEY, **arguments: Any
) -> ClientResponse:
    """The response to a request with the key where the SDKs put it."""
    headers = dict(arguments.pop("headers", {}))
    if key is not None:
        headers["X-API-KEY"] = key
    return await api.client.request(method, BASE + path, headers=headers, **arguments)


async def told(api: Api, method: str, path: str, *, status: int = 200, **arguments: Any) -> Any:
    """The JSON of a response, whose status must be the given one."""
    response = await sent(api, method, path, **arguments)
    body = None if response.status == 204 else await response.json()
    assert response.status == status, body
    return body


async def refused(api: Api, status: int, method: str, path: str, **arguments: Any) -> str:
    """The message of an error in E2B's form."""
    body = await told(api, method, path, status=status, **arguments)
    assert body["code"] == status
    assert "Traceback" not in body["message"]
    return str(body["message"])


async def made(api: Api, template: str = "base", **members: Any) -> dict[str, Any]:
    key = members.pop("key", OPERATOR_KEY)
    body = {"templateID": template, **members}
    found: dict[str, Any] = await told(api, "POST", SANDBOXES, status=201, json=body, key=key)
    return found


def seconds_left(shown: dict[str, Any]) -> float:
    return (datetime.fromisoformat(shown["endAt"]) - datetime.now(UTC)).total_seconds()
