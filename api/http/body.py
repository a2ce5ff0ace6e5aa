"""Parses request bodies: strict JSON, then the operation's model; errors name the field."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from orchestrator import strict_json
from orchestrator.aside import Aside
from orchestrator.config.schema_errors import place, reason
from orchestrator.errors import ValidationError
from orchestrator.strict_json import JsonError, shortened
from paddock.contract.requests import NoBody
from paddock.contract.words import LEVEL_NAMES

# The time-out for a client that stops sending within a body.
IDLE_SECONDS = 60.0

Model = TypeVar("Model", bound=BaseModel)


async def read_body(
    request: web.Request,
    model: type[Model],
    aside: Aside,
    levels: Collection[str] = LEVEL_NAMES,
) -> Model:
    """The body as `model`; `levels` are the permission levels that it may name.

    Raises: ValidationError; CapacityExhaustedError if many long ones are being read; aiohttp's
    error for a body that is too large.
    """
    check_encoding(request)
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            data = await request.read()
    except TimeoutError:
        raise ValidationError(f"the body did not arrive within {IDLE_SECONDS:g} s") from None
    if not data and issubclass(model, NoBody):
        return model()
    if not model.__pydantic_complete__:
        model.model_rebuild()  # here, because it is not made for threads
    return await aside.call(len(data), partial(_read, data, model, levels))


def _read(data: bytes, model: type[Model], levels: Collection[str]) -> Model:
    return validated(model, parse_object(data), {"levels": levels})


def check_encoding(request: web.Request) -> None:
    """Refuses compressed bodies, whose size could not be limited. Raises: ValidationError."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ValidationError("Content-Encoding must be identity", field="Content-Encoding")


def parse_object(data: bytes) -> dict[str, Any]:
    """Parses a JSON object that different parsers can't read differently.

    Refused besides other values: what `strict_json.read` refuses. Raises: ValidationError.
    """
    try:
        value = strict_json.read(data, "the body")
    except JsonError as error:
        raise ValidationError(str(error), field=error.field) from None
    if not isinstance(value, dict):
        raise ValidationError("the body must be a JSON object")
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
    return ".".join(shortened(str(part)) for part in place(location))
