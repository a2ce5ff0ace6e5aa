"""Models that stop at the first wrong member: an error costs far more than checking a member."""

from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, ValidationError


def _stop_early(schema: Any) -> None:
    """Marks all lists and maps in the schema."""
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "set", "frozenset", "tuple", "dict"):
            schema["fail_fast"] = True
        for part in schema.values():
            _stop_early(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _stop_early(part)


class StopsEarly(BaseModel):
    """A base for models of what others send."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _stop_early(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, value: Any) -> Any:
        """Stops at the first unknown member, where there are more members than it can have."""
        fields = cls.model_fields
        if cls.model_config.get("extra") != "forbid" or not isinstance(value, dict):
            return value
        if len(value) > len(fields):
            unknown = next(name for name in value if name not in fields)
            details = InitErrorDetails(type="extra_forbidden", loc=(unknown,), input=None)
            raise ValidationError.from_exception_data(cls.__name__, [details])
        return value
