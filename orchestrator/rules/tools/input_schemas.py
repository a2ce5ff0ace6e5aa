"""JSON Schemas of what tools take: whether one can be used, and whether arguments satisfy it."""

from collections.abc import Callable, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from orchestrator.rules.tools.schema import REFUSED, check_schema

# Their cost is not counted below.
_REFUSED = REFUSED | {"uniqueItems", "unevaluatedItems", "unevaluatedProperties"}
# What one check may cost: less than a second. A keyword costs more than one of its elements, or of
# the elements that it looks at.
_MOST_STEPS = 200_000
_KEYWORD_STEPS = 10
_MOST_SAID = 300


def check_input_schema(schema: Mapping[str, Any]) -> None:
    """Raises: UnusableSchemaError."""
    check_schema(schema, _REFUSED)


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
    if error is None:
        return None
    place = ".".join(str(part) for part in error.absolute_path)
    return f"{place}: {error.message}"[:_MOST_SAID] if place else error.message[:_MOST_SAID]


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
