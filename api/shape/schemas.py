"""JSON Schemas of the operations' parameters and answers."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from api.shape.operation import Operation
from paddock.contract.requests import Query

_REF = "#/components/schemas/{model}"

Schema = dict[str, Any]


class _Generator(GenerateJsonSchema):
    """Keeps the order of members, and leaves out generated titles and defaults of null."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        return value

    def dict_schema(self, schema: Any) -> Any:
        described = super().dict_schema(schema)
        if "patternProperties" in described:
            described["additionalProperties"] = False
        return described

    def default_schema(self, schema: Any) -> Any:
        described = super().default_schema(schema)
        if described.get("default", ...) is None:
            del described["default"]
        return described


def ref(model: type[BaseModel]) -> Schema:
    """A reference to the model's component."""
    return {"$ref": _REF.format(model=model.__name__)}


def component_schemas(operations: Iterable[Operation], *others: type[BaseModel]) -> Schema:
    """All models by name, with the models inside them. `others` are responses."""
    requests: list[type[BaseModel]] = []
    responses: list[type[BaseModel]] = [*others]
    for operation in operations:
        if operation.body is not None:
            requests.append(operation.body)
        if operation.frames is not None:
            requests.append(operation.frames.text)
        responses += _response_models(operation)
    taken, given = _generate(requests, "validation"), _generate(responses, "serialization")
    if both := taken.keys() & given.keys():
        raise ValueError(f"two models have the name {min(both)}")
    for schema in given.values():
        # Later versions may add members, and clients must ignore unknown ones.
        schema.pop("additionalProperties", None)
    return dict(sorted((taken | given).items()))


def _response_models(operation: Operation) -> Iterator[type[BaseModel]]:
    for reply in operation.replies.values():
        yield from reply.models
        if reply.events is not None:
            yield from reply.events.kinds.values()


def _generate(
    models: Iterable[type[BaseModel]], mode: Literal["validation", "serialization"]
) -> Schema:
    _, generated = models_json_schema(
        [(model, mode) for model in dict.fromkeys(models)],
        ref_template=_REF,
        schema_generator=_Generator,
    )
    definitions: Schema = generated.get("$defs", {})
    return definitions


def query_parameters(model: type[Query]) -> list[Schema]:
    """The Parameter Objects of a query model."""
    schema = model.model_json_schema(schema_generator=_Generator)
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            **_described(_without_null(member)),
        }
        for name, member in schema.get("properties", {}).items()
    ]


def members(model: type[BaseModel]) -> Schema:
    """The schemas of the model's members, and which of them are required.

    A member that may be null need not be given.
    """
    schema = model.model_json_schema(schema_generator=_Generator)
    properties = schema.get("properties", {})
    return {
        "properties": {name: _without_null(member) for name, member in properties.items()},
        "required": schema.get("required", []),
    }


def _described(schema: Schema) -> Schema:
    """Separates the schema from its description, which belongs to the parameter."""
    rest = dict(schema)
    description = rest.pop("description", None)
    return {"schema": rest} if description is None else {"description": description, "schema": rest}


def _without_null(schema: Schema) -> Schema:
    """A missing parameter is absent, never null."""
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return {**kinds[0], **rest}
    return {"anyOf": kinds, **rest} if kinds else rest
