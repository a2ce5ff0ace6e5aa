"""Every list, map and text of a request has a bound, which the OpenAPI document states."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from api.catalog import OPERATIONS
from api.openapi import document
from orchestrator.settings.schema_errors import place
from tests.support.raised import raised

_BOUNDS = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
# Bytes that are not read at once; the operation's own limits apply to them.
_STREAMED = "binary"


class _Part(NamedTuple):
    """A schema and its place: names of members, 0 for an item, `*` for a value of a map."""

    where: tuple[str | int, ...]
    schema: dict[str, Any]

    @property
    def bound(self) -> int | None:
        """The bound of its size; -1 if its form bounds it."""
        kind = self.schema.get("type")
        if kind not in _BOUNDS or {"enum", "const"} & self.schema.keys():
            return -1
        if kind == "object" and self.schema.get("additionalProperties") is False:
            return -1
        if self.schema.get("format") == _STREAMED:
            return -1
        found: int | None = self.schema.get(_BOUNDS[kind])
        return found

    @property
    def oversized(self) -> Any:
        """A value of one more than the bound."""
        most = (self.bound or 0) + 1
        if self.schema["type"] == "string":
            return "x" * most
        if self.schema["type"] == "array":
            return [_smallest(self.schema.get("items", {}))] * most
        return {f"x{number}": None for number in range(most)}


def _smallest(schema: dict[str, Any]) -> Any:
    return {"string": "x", "integer": 1, "object": {}}.get(schema.get("type", "object"), {})


class _Document:
    """The requests that the document describes."""

    def __init__(self) -> None:
        self.whole = document()

    def bodies(self) -> Iterator[tuple[str, _Part]]:
        for name, described in self._operations():
            for content in described.get("requestBody", {}).get("content", {}).values():
                for part in self._parts(content["schema"], (), frozenset()):
                    yield name, part

    def parameters(self) -> Iterator[tuple[str, _Part]]:
        for name, described in self._operations():
            for parameter in described.get("parameters", ()):
                found = self._resolved(parameter)
                if found["in"] != "path":  # their length is the request line's
                    for part in self._parts(found["schema"], (found["name"],), frozenset()):
                        yield name, part

    def _operations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for methods in self.whole["paths"].values():
            for described in methods.values():
                if isinstance(described, dict) and "operationId" in described:
                    yield described["operationId"], described

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        found: Any = self.whole
        for part in schema.get("$ref", "#").split("/")[1:]:
            found = found[part]
        return schema if found is self.whole else found

    def _parts(
        self, schema: dict[str, Any], where: tuple[str | int, ...], within: frozenset[str]
    ) -> Iterator[_Part]:
        name = schema.get("$ref", "")
        if name in within:
            return
        found = self._resolved(schema)
        within |= {name} - {""}
        for kind in ("anyOf", "oneOf"):
            for choice in found.get(kind, ()):
                yield from self._parts(choice, where, within)
        yield _Part(where, found)
        if "items" in found:
            yield from self._parts(found["items"], (*where, 0), within)
        for member, inner in found.get("properties", {}).items():
            yield from self._parts(inner, (*where, member), within)
        if isinstance(found.get("additionalProperties"), dict):
            yield from self._parts(found["additionalProperties"], (*where, "*"), within)


@pytest.fixture(scope="module")
def openapi() -> _Document:
    return _Document()


def test_every_list_map_and_text_has_a_bound(openapi: _Document) -> None:
    unbounded = {
        f"{name}: {'.'.join(map(str, part.where)) or 'the body'}"
        for name, part in (*openapi.bodies(), *openapi.parameters())
        if part.bound is None
    }
    assert not unbounded


def _around(where: tuple[str | int, ...], value: Any) -> Any:
    """A body with that value at the place, and nothing else."""
    for step in reversed(where):
        value = [value] if step == 0 else {"a" if step == "*" else step: value}
    return value


def _named(model: type[BaseModel], value: Any) -> set[str]:
    """The fields that errors name."""
    with pytest.raises(SchemaError) as caught:
        model.model_validate(value)
    found = set()
    for error in caught.value.errors(include_url=False, include_input=False):
        if error["type"] == "sentence":
            found.add(error["msg"].split()[0])
        found.add(".".join(str(part) for part in place(error["loc"])))
    return found


def test_one_more_than_the_bound_is_refused_by_name(openapi: _Document) -> None:
    models = {operation.id: operation.body for operation in OPERATIONS}
    tried = 0
    for name, part in openapi.bodies():
        model = models[name]
        if model is None or part.bound in (None, -1) or not part.where:
            continue
        named = _named(model, _around(part.where, part.oversized))
        field = ".".join("a" if step == "*" else str(step) for step in part.where)
        # What is wrong with a member may be said of the map, or of its first member.
        assert any(each and (each in field or each.startswith(field)) for each in named), (
            f"{name}: {field}: {named}"
        )
        tried += 1
    assert tried > 100


def test_parameters_above_their_bound_are_refused_by_name(openapi: _Document) -> None:
    models = {operation.id: operation.query for operation in OPERATIONS}
    for name, part in openapi.parameters():
        model = models[name]
        (parameter,) = part.where
        if model is None or part.bound in (None, -1) or parameter == "Last-Event-ID":
            continue
        assert str(parameter) in _named(model, {parameter: part.oversized}), f"{name}: {parameter}"


def test_the_first_wrong_member_ends_the_reading() -> None:
    """An error for each would cost more than the members themselves."""
    wrong: dict[str, Any] = {f"x{number}": None for number in range(5000)}
    for operation in OPERATIONS:
        if operation.body is None:
            continue
        with pytest.raises(SchemaError) as caught:
            operation.body.model_validate(wrong)
        assert caught.value.error_count() <= len(operation.body.model_fields) + 1, operation.id


def test_lists_and_maps_end_at_their_first_wrong_member(openapi: _Document) -> None:
    models = {operation.id: operation.body for operation in OPERATIONS}
    for name, part in openapi.bodies():
        model = models[name]
        if model is None or not part.where or part.schema.get("type") not in ("array", "object"):
            continue
        value: Any = [object()] * 50
        if part.schema["type"] == "object":
            value = {f"-{number}": object() for number in range(200)}
        found = raised(SchemaError, model.model_validate, _around(part.where, value))
        assert found is None or found.error_count() < 40, f"{name}: {part.where}"
