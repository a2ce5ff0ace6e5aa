"""Translates HTTP answers, or their absence: into JSON, the contract's models, or an error."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from pydantic import ValidationError

from paddock.client import errors
from paddock.client.http_messages import BadAnswerError, Message
from paddock.contract.base import READER, Model

M = TypeVar("M", bound=Model)


# The API's answer for a path without a route, never used for a missing object.
_NO_ROUTE = "there is nothing at this path"
_JSON, _PROBLEM = "application/json", "application/problem+json"
_UNKNOWN_MEDIA = "application/octet-stream"
_PROXY_STATUSES = (502, 503, 504)


@contextmanager
def translated(method: str, path: str) -> Iterator[None]:
    """Translates what the connections raise into this package's classes."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        reason = str(error) or "no connection in time"
        raise errors.UnreachableError(f"no control plane answers: {reason}") from error
    except TimeoutError as error:
        raise errors.NoAnswerError(f"{method} {path}: no answer in time") from error
    except (aiohttp.ClientResponseError, BadAnswerError) as error:
        raise errors.NotPaddockError(
            f"the server at the URL does not speak HTTP: {error}"
        ) from error
    except (aiohttp.ClientError, ConnectionError) as error:
        reason = str(error) or type(error).__name__
        raise errors.ConnectionLostError(f"{method} {path}: connection lost: {reason}") from error


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; `body` is empty unless it is JSON. `origin`: who answered."""

    http_status: int
    content_type: str
    retry_after: str
    body: bytes
    origin: str


def answer_of(message: Message, origin: str) -> Answer:
    """The answer in a message."""
    headers = message.headers
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    retry_after = headers.get(b"retry-after", b"")
    return Answer(
        message.http_status,
        media.decode("latin-1") or _UNKNOWN_MEDIA,
        retry_after.decode("latin-1"),
        message.body,
        origin,
    )


async def read_answer(response: aiohttp.ClientResponse) -> Answer:
    """The answer that aiohttp receives."""
    known = response.content_type in (_JSON, _PROBLEM)
    return Answer(
        response.status,
        response.content_type,
        response.headers.get("Retry-After", ""),
        await response.read() if known else b"",
        str(response.url.origin()),
    )


def json_object(answer: Answer) -> dict[str, Any]:
    """The body; empty for an answer without one. Raises: NotPaddockError for anything else."""
    if answer.http_status == 204:
        return {}
    if answer.content_type == _JSON:
        value = object_of(answer.body)
        if value is not None:
            return value
    raise not_paddock(answer)


def object_of(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object of a text; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def refusal(answer: Answer, method: str, path: str) -> errors.PaddockError:
    """The error for an answer that is not a success."""
    document = None
    if answer.content_type == _PROBLEM:
        document = object_of(answer.body)
    if document is None or not isinstance(document.get("code"), str):
        return not_paddock(answer)
    code = document["code"]
    if code == "method_not_allowed" or (
        code == "not_found" and document.get("detail") == _NO_ROUTE
    ):
        return errors.OldServerError(
            f"the control plane has no {method} {path}: it is older than this client,"
            " or the URL has a path that it should not have"
        )
    return errors.api_error(answer.http_status, document, _retry_after(answer))


def not_paddock(answer: Answer) -> errors.PaddockError:
    """The error for an answer that does not come from the API."""
    if answer.http_status in _PROXY_STATUSES:
        return errors.UnreachableError(
            f"no control plane answers: something in front of it says HTTP {answer.http_status}"
        )
    return errors.NotPaddockError(
        f"{answer.origin} is not a Paddock control plane: it answered with HTTP"
        f" {answer.http_status} and {answer.content_type}"
    )


def _retry_after(answer: Answer) -> float | None:
    text = answer.retry_after
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
