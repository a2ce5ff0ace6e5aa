"""Parses what clients send into models, and says in our own words what is wrong with it.

Servers of the API read the same: the control plane, and the gateway of a cluster.
"""

from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from orchestrator.ground.errors import ValidationError
from orchestrator.ground.strict_json import shortened
from orchestrator.settings.schema_errors import place, reason

_MOST_PARAMETERS = 32

Model = TypeVar("Model", bound=BaseModel)


def read_query(text: str, model: type[Model]) -> Model:
    """A query string, without its question mark, as `model`.

    Raises: ValidationError naming the parameter.
    """
    return validated(model, query_parameters(text))


def query_parameters(text: str) -> dict[str, str]:
    """The parameters of a query string, each once. Raises: ValidationError."""
    return _parse(text) if text else {}


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


def _parse(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except UnicodeDecodeError:
        text = r"query parameters must be UTF-8; another byte of a name is written as \xff"
        raise ValidationError(text) from None
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
