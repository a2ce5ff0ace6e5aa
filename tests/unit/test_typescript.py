"""The JavaScript client's generated modules are current, with types as the schemas have them."""

import json
import tomllib
from typing import Any

import pytest

from scripts.npm_package import SOURCE
from scripts.typescript import DOCUMENT, GENERATED, modules, typed
from tests.support.server import ROOT


def test_they_are_current() -> None:
    wanted = modules(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    found = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.iterdir()}
    assert found == wanted, "`make openapi` writes them anew"


def test_the_package_has_the_projects_version_and_needs_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = json.loads((SOURCE / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == project["version"]
    assert "dependencies" not in package
    assert set(package["devDependencies"]) == {"typescript"}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "integer"}, "number"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, 'readonly ("a" | "b")[]'),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "Record<string, string>"),
        ({"type": "object", "patternProperties": {"^a": {}}}, "Record<string, unknown>"),
        ({"type": "object", "additionalProperties": False}, "{}"),
        ({"$ref": "#/components/schemas/Port"}, "Port"),
        ({"const": "user"}, '"user"'),
        ({}, "unknown"),
        (
            {"type": "object", "properties": {"a-b": {"type": "null"}, "c": {}}, "required": ["c"]},
            '{\n  "a-b"?: null | undefined;\n  c: unknown;\n}',
        ),
    ],
)
def test_a_schema_is_a_type(schema: dict[str, Any], wanted: str) -> None:
    assert typed(schema) == wanted
