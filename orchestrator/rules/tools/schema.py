"""JSON Schemas of manifests, of tools' input, and of their results."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError

from orchestrator.rules.tools.tables import ManifestTable
from sandbox_agent.decide.sanitize import MAX_TEXT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The members of every result.
RESULT = ("prompt", "output", "session_state", "interaction_count")
# References can be infinite, and a tool's output must not reach a backtracking engine.
REFUSED = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "pattern", "patternProperties"})


class UnusableSchemaError(ValueError):
    """A schema that nothing can be validated with; the message says why."""


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema of manifest files, for editors and validators."""
    schema = ManifestTable.model_json_schema(by_alias=True)
    return {"$schema": DIALECT, **schema}


def input_schema() -> dict[str, Any]:
    """The input of every `{tool}.{command}`: one line of text."""
    return {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_TEXT,
                "description": "The line to send, without a line break at its end.",
            }
        },
        "required": ["command"],
        "additionalProperties": False,
    }


def check_schema(schema: Mapping[str, Any], refused: Collection[str] = REFUSED) -> None:
    """Raises: UnusableSchemaError unless it is one of objects, without `refused` keywords."""
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError):
        raise UnusableSchemaError(
            "has a value that JSON does not support: a time, or a number that is not finite"
        ) from None
    for keyword in _keywords(schema):
        if keyword in refused:
            raise UnusableSchemaError(f"{keyword} is not supported")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = ".".join(str(part) for part in error.absolute_path)
        raise UnusableSchemaError(f"{place}: {error.message}" if place else error.message) from None
    if schema.get("type") != "object":
        raise UnusableSchemaError("type must be object")


def check_result_schema(schema: Mapping[str, Any]) -> None:
    """Raises: UnusableSchemaError if results could not be validated with the schema."""
    check_schema(schema)
    for name in schema.get("required", ()):
        if name not in RESULT:
            raise UnusableSchemaError(f"required: results have no {name}: {', '.join(RESULT)}")


def result_problem(schema: Mapping[str, Any] | None, result: Mapping[str, Any]) -> str | None:
    """How a result violates the manifest's schema; None if it does not.

    The text never repeats the tool's output.
    """
    if schema is None:
        return None
    error = next(iter(Draft202012Validator(schema).iter_errors(result)), None)
    return None if error is None else _describe(error)


def _describe(error: ValidationError) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "the result"
    return f"{place} does not satisfy {error.validator} of output.schema"


def _keywords(schema: Any) -> Iterator[str]:
    """Every keyword in a schema at any depth, without names of properties."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    elif isinstance(schema, Mapping):
        for name, value in schema.items():
            yield name
            if name in ("properties", "$defs", "dependentSchemas") and isinstance(value, Mapping):
                for part in value.values():
                    yield from _keywords(part)
            elif name not in ("enum", "const", "default", "examples"):
                yield from _keywords(value)
