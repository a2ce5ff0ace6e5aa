"""Translates HTTP answers, or their absence: into JSON, the contract's models, or an error."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import aiohttp
from pydantic import ValidationError

from paddock.client import errors
from paddock.contract.base import READER, Model

M = TypeVar("M", bound=Model)


# The API's answer for a path without a route, never used for a missing object.
_NO_ROUTE = "there is nothing at this path"
_PROXY_STATUSES = (502, 503, 504)


@contextmanager
def translated(method: str, path: str) -> Iterator[None]:
    """Translates connection errors into this package's classes."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        reason = str(error) or "no connection in time"
        raise errors.UnreachableError(f"no control plane answers: {reason}") from error
    except TimeoutError as error:
        raise errors.NoAnswerError(f"{method} {path}: no answer in time") from error
    except aiohttp.ClientResponseError as error:
        raise errors.NotPaddockError(
            f"the server at the URL does not speak HTTP: {error}"
        ) from error
    except (aiohttp.ClientError, ConnectionError) as error:
        reason = str(error) or type(error).__name__
        raise errors.ConnectionLostError(f"{method} {path}: connection lost: {reason}") from error


async def json_object(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The body; empty for an answer without one. Raises: NotPaddockError for anything else."""
    if response.status == 204:
        return {}
    if response.content_type == "application/json":
        value = object_of(await response.read())
        if value is not None:
            return value
    raise not_paddock(response)


def object_of(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object of a text; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


async def refusal(response: aiohttp.ClientResponse, method: str, path: str) -> errors.PaddockError:
    """The error for an answer that is not a success."""
    document = None
    if response.content_type == "application/problem+json":
        document = object_of(await response.read())
    if document is None or not isinstance(document.get("code"), str):
        return not_paddock(response)
    code = document["code"]
    if code == "method_not_allowed" or (
        code == "not_found" and document.get("detail") == _NO_ROUTE
    ):
        return errors.OldServerError(
            f"the control plane has no {method} {path}: it is older than this client,"
            " or the URL has a path that it should not have"
        )
    return errors.api_error(response.status, document, _retry_after(response))


def not_paddock(response: aiohttp.ClientResponse) -> errors.PaddockError:
    """The error for an answer that does not come from the API."""
    if response.status in _PROXY_STATUSES:
        return errors.UnreachableError(
            f"no control plane answers: something in front of it says HTTP {response.status}"
        )
    return errors.NotPaddockError(
        f"{response.url.origin()} is not a Paddock control plane: it answered with HTTP"
        f" {response.status} and {response.content_type}"
    )


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def read(model: type[M], value: Any) -> M:
    """The model of a JSON value, with times as timezone-aware `datetime`s.

    Unknown members and values of a newer server are kept; `raw` has these members. Raises:
    OldServerError if a member is missing or has an impossible type.
    """
    try:
        return model.model_validate(value, extra="allow", context=READER)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join([model.__name__, *map(str, first["loc"])])
    if first["type"] == "missing":
        raise errors.OldServerError(
            f"the answer of the control plane lacks {where}: it is older than this client"
        )
    raise errors.OldServerError(
        f"the answer of the control plane has {where} in a form that this client does not know"
    )


def read_items(model: type[M], page: Mapping[str, Any]) -> tuple[M, ...]:
    """The models of one page of a list. Raises: NotPaddockError, OldServerError."""
    return tuple(read(model, item) for item in items(page))


def items(page: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The objects of one page of a list. Raises: NotPaddockError."""
    found = page.get("items")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise errors.NotPaddockError("the server's list is not one of Paddock's")
    return found
