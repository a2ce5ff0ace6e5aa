"""Parses request bodies: strict JSON, then the operation's model; errors name the field."""

import asyncio
import json
from collections.abc import Collection
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from orchestrator.config.schema_errors import place, reason
from orchestrator.errors import ValidationError
from paddock.contract.requests import NoBody
from paddock.contract.words import LEVEL_NAMES

# Bodies nest two levels; a client may nest more in free-form objects.
MAX_DEPTH = 32
# The time-out for a client that stops sending within a body.
IDLE_SECONDS = 60.0
_MAX_SHOWN = 64

Model = TypeVar("Model", bound=BaseModel)


async def read_body(
    request: web.Request, model: type[Model], levels: Collection[str] = LEVEL_NAMES
) -> Model:
    """The body as `model`; `levels` are the permission levels that it may name.

    Raises: ValidationError; aiohttp's error for a body that is too large.
    """
    check_encoding(request)
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            data = await request.read()
    except TimeoutError:
        raise ValidationError(f"the body did not arrive within {IDLE_SECONDS:g} s") from None
    if not data and issubclass(model, NoBody):
        return model()
    return validated(model, parse_object(data), {"levels": levels})


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
