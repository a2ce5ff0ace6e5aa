"""Parses request bodies: strict JSON, then the operation's model; errors name the field."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from api.http.pace import BODY_PACE, Pace, Window
from api.http.unread import UnreadBody
from orchestrator.config.schema_errors import place, reason
from orchestrator.errors import TooLargeError, ValidationError
from paddock.contract.requests import Body, NoBody
from paddock.contract.words import LEVEL_NAMES

# Bodies nest two levels; a client may nest more in free-form objects.
MAX_DEPTH = 32
# Bodies that are announced to be no larger are not counted: requests to stop something are not.
SMALL_BYTES = 4096
_CHUNK_BYTES = 256 * 1024
_MAX_SHOWN = 64

Model = TypeVar("Model", bound=BaseModel)
Given = TypeVar("Given", bound=Body)


async def read_body(
    request: web.Request,
    model: type[Given],
    unread: AbstractContextManager[UnreadBody],
    levels: Collection[str] = LEVEL_NAMES,
) -> Given:
    """The body as `model`; `levels` are the permission levels that it may name.

    Raises: ValidationError, TooLargeError, and the errors of `unread`.
    """
    check_encoding(request)
    if is_small(request):
        data = await _whole(request, SMALL_BYTES)
    else:
        with unread as counted:
            data = await _whole(request, model.MOST_BYTES, counted)
    if not data and issubclass(model, NoBody):
        return model()
    return validated(model, parse_object(data), {"levels": levels})


def is_small(request: web.Request) -> bool:
    """Whether reading the body costs no more than refusing the request."""
    length = request.content_length
    return not request.can_read_body if length is None else length <= SMALL_BYTES


async def _whole(request: web.Request, most: int, counted: UnreadBody | None = None) -> bytes:
    data = bytearray()
    if (request.content_length or 0) > most:
        raise _too_large(most)
    async for chunk in arriving(request, BODY_PACE):
        if len(data) + len(chunk) > most:
            raise _too_large(most)
        if counted is not None:
            counted.add(len(chunk))
        data += chunk
    return bytes(data)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the body is over the limit of this operation, {most} bytes")


async def arriving(request: web.Request, pace: Pace) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises: ValidationError if it arrives too slowly."""
    window = Window(pace)
    while True:
        chunk, began = None, time.monotonic()
        try:
            async with asyncio.timeout(window.left):
                chunk = await request.content.read(_CHUNK_BYTES)
        except TimeoutError:
            # The window is over, however exactly the loop keeps time.
            window.passed(window.left, 0)
        else:
            if not chunk:
                return
            window.passed(time.monotonic() - began, len(chunk))
            yield chunk


def check_encoding(request: web.Request) -> None:
    """Refuses compressed bodies, whose size could not be limited. Raises: ValidationError."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ValidationError("Content-Encoding must be identity", field="Content-Encoding")


def parse_object(data: bytes) -> dict[str, Any]:
    """Parses a JSON object that different parsers can't read differently.

    Other values, repeated members, NaN and Infinity, NUL and lone surrogates in strings, and deep
    nesting are refused. Raises: ValidationError.
    """
    try:
        value = json.loads(
            data.decode(), parse_constant=_no_constant, object_pairs_hook=_unique_members
        )
    except UnicodeDecodeError:
        raise ValidationError("the body must be UTF-8") from None
    except RecursionError:
        raise ValidationError(f"the body is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise ValidationError(f"the body must be JSON: {_shortened(str(error))}") from None
    if not isinstance(value, dict):
        raise ValidationError("the body must be a JSON object")
    _check_value(value, "body", MAX_DEPTH)
    return value


def validated(
    model: type[Model], value: dict[str, Any], context: dict[str, Any] | None = None
) -> Model:
    """The value as `model`, whose validators receive the context.

    Raises: ValidationError naming the first invalid field.
    """
    try:
        return model.model_validate(value, context=context)
    except SchemaError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _refusal(first["type"], _field(first["loc"]), first["msg"]) from None


def _refusal(kind: str, field: str, message: str) -> ValidationError:
    if kind == "sentence":
        return ValidationError(message, field=field or None)
    return ValidationError(f"{field or 'the body'} {reason(kind, message)}", field=field or None)


def _field(location: tuple[int | str, ...]) -> str:
    return ".".join(_shortened(str(part)) for part in place(location))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{_printable(repeated)} appears twice")
    return members


def _check_value(value: Any, name: str, depth: int) -> None:
    if isinstance(value, str):
        _check_text(value, name)
    elif isinstance(value, dict | list):
        if depth == 0:
            raise ValidationError(f"the body is nested more than {MAX_DEPTH} deep")
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in members:
            if isinstance(key, str):
                _check_text(key, f"a name in {name}")
            shown = str(key) if name == "body" else f"{name}.{key}"
            _check_value(item, _shortened(shown), depth - 1)


def _check_text(text: str, name: str) -> None:
    if "\0" in text:
        raise ValidationError(f"{name} must not contain NUL", field=name)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValidationError(f"{name} must not contain lone surrogates", field=name) from None


def _printable(text: str) -> str:
    return _shortened(text).encode("ascii", "backslashreplace").decode()
