"""JSON Schemas of manifests, of tools' input, and of their results."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import extend

from orchestrator.rules.tools.tables import ManifestTable
from sandbox_agent.decide.sanitize import MAX_TEXT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The members of every result.
RESULT = ("prompt", "output", "session_state", "interaction_count")
# References can be infinite, and a tool's output must not reach a backtracking engine.
REFUSED = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "pattern", "patternProperties"})
# In schemas of host tools' input, whose checks are counted: the cost of these would not be.
_REFUSED_INPUT = REFUSED | {"uniqueItems", "unevaluatedItems", "unevaluatedProperties"}
# One check of an input may cost less than a second. A keyword costs more than one element of its
# own, or of the value that it checks.
_MOST_STEPS = 200_000
_KEYWORD_STEPS = 10
_LONGEST_PROBLEM = 300


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
    """Raises: UnusableSchemaError unless it describes objects, without `refused` keywords."""
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
        raise UnusableSchemaError(_located(error)) from None
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
    return f"{_place(error) or 'the result'} does not satisfy {error.validator} of output.schema"


def _located(error: SchemaError | ValidationError) -> str:
    """The error's message, after its place if it has one."""
    place = _place(error)
    return f"{place}: {error.message}" if place else str(error.message)


def _place(error: SchemaError | ValidationError) -> str:
    return ".".join(str(part) for part in error.absolute_path)


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


def check_input_schema(schema: Mapping[str, Any]) -> None:
    """Raises: UnusableSchemaError if inputs could not be checked with the schema."""
    check_schema(schema, _REFUSED_INPUT)


def input_problem(schema: Mapping[str, Any], members: Mapping[str, Any]) -> str | None:
    """How arguments violate a schema that can be used; None if they do not.

    The text is for whoever wrote the arguments, which it may repeat.
    """
    try:
        error = next(_bounded()(schema).iter_errors(members), None)
    except _TooLongError:
        return f"the arguments are too large: a check takes more than {_MOST_STEPS} steps"
    except ArithmeticError:
        return "the arguments have a number that is too large"
    return None if error is None else _located(error)[:_LONGEST_PROBLEM]


class _TooLongError(Exception):
    """A check takes too many steps."""


def _bounded() -> Any:
    """A validator whose checks end if they cost too much; for one check."""
    left = _MOST_STEPS

    def counted(evaluate: Callable[..., Any]) -> Callable[..., Any]:
        def step(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            nonlocal left
            left -= _KEYWORD_STEPS + _elements(value) + _elements(instance)
            if left < 0:
                raise _TooLongError
            return evaluate(validator, value, instance, schema)

        return step

    keywords = Draft202012Validator.VALIDATORS
    make: Callable[..., Any] = extend
    return make(Draft202012Validator, {name: counted(keywords[name]) for name in keywords})


def _elements(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0
