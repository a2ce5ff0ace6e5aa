"""Parses query strings: strict UTF-8, no unknown or repeated parameters."""

from typing import TypeVar
from urllib.parse import parse_qsl

from aiohttp import web
from pydantic import BaseModel

from api.shape.objects import validated
from orchestrator.ground.errors import ValidationError

_MOST_PARAMETERS = 32

Model = TypeVar("Model", bound=BaseModel)


def read_query(request: web.Request, model: type[Model]) -> Model:
    """The query string as `model`. Raises: ValidationError naming the parameter."""
    text = request.rel_url.raw_query_string
    return validated(model, _parse(text)) if text else validated(model, {})


def _parse(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except UnicodeDecodeError:
        raise ValidationError("query parameters must be UTF-8") from None
    except ValueError:
        raise ValidationError(f"more than {_MOST_PARAMETERS} query parameters") from None
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise ValidationError("a query parameter appears twice")
    for name, value in pairs:
        if not _is_text(name) or not _is_text(value):
            raise ValidationError("query parameters must be UTF-8 without NUL")
    return parameters


def _is_text(value: str) -> bool:
    """Whether the text is valid: raw bytes that are not UTF-8 arrive as lone surrogates."""
    return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
