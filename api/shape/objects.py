"""Parses objects of clients: strict JSON, then a model of the contract; and fills such models."""

from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from orchestrator.ground import strict_json
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.strict_json import JsonError, shortened
from orchestrator.settings.schema_errors import place, reason

Model = TypeVar("Model", bound=BaseModel)


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


def members(model: type[BaseModel], shown: object, **others: Any) -> dict[str, Any]:
    """Every member of `model`: those of `others`, and else what `shown` has of that name."""
    return {
        name: getattr(shown, name) for name in model.model_fields if name not in others
    } | others
