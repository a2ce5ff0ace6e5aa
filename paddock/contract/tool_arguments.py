"""Arguments of tools as models write them: converted to the schema's types where that is clear."""

import json
from collections.abc import Mapping
from typing import Any

# A longer text does not stand for a number or a list.
_MOST_TEXT = 256 * 1024
_MOST_DEPTH = 4
_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def meant(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the types of their JSON Schema, an object, where that is clear.

    Null for an optional argument leaves it out, unless null is a value of it. Text that is JSON of
    the type becomes that. Everything else stays as it is: the schema's own check says what is
    wrong.
    """
    properties, required = schema.get("properties", {}), schema.get("required", ())
    found: dict[str, Any] = {}
    for name, value in given.items():
        described = properties.get(name)
        if isinstance(described, Mapping):
            types = _types(schema, described)
            optional = name not in required
            value = _meant(schema, described, value, nullable=optional)
            if value is None and optional and "null" not in types:
                continue
        found[name] = value
    return found


def _meant(
    schema: Mapping[str, Any],
    described: Mapping[str, Any],
    value: Any,
    *,
    nullable: bool = False,
    depth: int = 0,
) -> Any:
    types = _types(schema, described)
    if not types or depth > _MOST_DEPTH:
        return value
    if isinstance(value, str) and "string" not in types:
        value = _read(value, types | {"null"} if nullable else types)
    if isinstance(value, float) and value.is_integer() and "number" not in types:
        value = int(value) if "integer" in types else value
    if isinstance(value, list) and (items := _items(schema, described)) is not None:
        return [_meant(schema, items, each, depth=depth + 1) for each in value]
    return value


def _read(text: str, types: set[str]) -> Any:
    """The value that a text stands for; the text if it stands for none of these types."""
    if len(text) > _MOST_TEXT:
        return text
    plain = text.strip()
    try:
        value = json.loads(plain.lower() if plain in ("True", "False", "None") else plain)
    except (ValueError, RecursionError):
        return None if plain == "None" and "null" in types else text
    kind = _TYPES[type(value)]
    whole = isinstance(value, int | float) and bool(types & _numbers(value))
    return value if kind in types or whole else text


def _numbers(value: Any) -> set[str]:
    """The types that a number satisfies, or could."""
    if isinstance(value, bool):
        return {"boolean"}
    return {"number", "integer"} if isinstance(value, int) or value.is_integer() else {"number"}


def _types(schema: Mapping[str, Any], described: Mapping[str, Any]) -> set[str]:
    """The types that a value may have; empty if any, or if the schema does not say so plainly."""
    found: set[str] = set()
    for each in _branches(schema, described):
        kind = each.get("type")
        if isinstance(kind, str):
            found.add(kind)
        elif isinstance(kind, list):
            found.update(name for name in kind if isinstance(name, str))
        elif isinstance(each.get("enum"), list):
            found.update(_TYPES.get(type(value), "null") for value in each["enum"])
        else:
            return set()
    return found


def _items(schema: Mapping[str, Any], described: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for each in _branches(schema, described):
        if isinstance(each.get("items"), Mapping):
            found: Mapping[str, Any] = each["items"]
            return found
    return None


def _branches(schema: Mapping[str, Any], described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a value, one level deep, with references into `$defs` followed."""
    several = described.get("anyOf", described.get("oneOf"))
    branches = several if isinstance(several, list) else [described]
    return [_followed(schema, each) for each in branches if isinstance(each, Mapping)]


def _followed(schema: Mapping[str, Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    place = described.get("$ref")
    if not isinstance(place, str) or not place.startswith("#/$defs/"):
        return described
    found = schema.get("$defs", {}).get(place.removeprefix("#/$defs/"), {})
    return found if isinstance(found, Mapping) else {}
