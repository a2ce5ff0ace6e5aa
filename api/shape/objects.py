"""Parses objects of clients: strict JSON, then a model of the contract; and fills such models."""

from typing import Any

from pydantic import BaseModel

from orchestrator.ground import strict_json
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.strict_json import JsonError
from orchestrator.settings.requests import validated as validated


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


def members(model: type[BaseModel], shown: object, **others: Any) -> dict[str, Any]:
    """Every member of `model`: those of `others`, and else what `shown` has of that name."""
    return {
        name: getattr(shown, name) for name in model.model_fields if name not in others
    } | others
