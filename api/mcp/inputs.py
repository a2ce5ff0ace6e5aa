"""The arguments of tools: members of the API's own requests, under the API's own checks."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from api.shape.objects import validated
from api.shape.schemas import members
from orchestrator.ground.errors import ValidationError
from paddock.contract.requests import Query
from paddock.contract.tool_arguments import meant

_MOST_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Part:
    """Members of a request's model that are arguments; without names, all of them."""

    model: type[BaseModel]
    names: tuple[str, ...]

    def read(self, given: dict[str, Any]) -> BaseModel:
        """The model, from those arguments that are its members. Raises: ValidationError."""
        own = {name: value for name, value in given.items() if name in self.names}
        if issubclass(self.model, Query):
            own = {name: _as_parameter(value) for name, value in own.items()}
        return validated(self.model, own)


def part(model: type[BaseModel], *names: str) -> Part:
    """These members of the model, or all."""
    return Part(model, names or tuple(model.model_fields))


@dataclass(frozen=True)
class Inputs:
    """All arguments of a tool."""

    parts: tuple[Part, ...]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Their JSON Schema, an object without alternatives, which some models do not take."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        for each in self.parts:
            described = members(each.model)
            properties |= {name: described["properties"][name] for name in each.names}
            required += [name for name in described["required"] if name in each.names]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def read(self, given: dict[str, Any]) -> list[Any]:
        """The models of all parts. Raises: ValidationError that names the argument."""
        known = {name for each in self.parts for name in each.names}
        for name in given:
            if name not in known:
                shown = name[:_MOST_SHOWN]
                raise ValidationError(f"{shown} is not known", field=shown)
        given = meant(self.schema, given)
        return [each.read(given) for each in self.parts]


def _as_parameter(value: Any) -> Any:
    """A number or a truth value as a query string has it."""
    return json.dumps(value) if isinstance(value, int) else value
