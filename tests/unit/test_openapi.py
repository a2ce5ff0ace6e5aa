"""The OpenAPI document: valid, committed, complete, and with correct examples."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel

from api.catalog import OPERATIONS
from api.openapi import document
from api.shape.access import ROLES, Access
from api.shape.objects import validated
from api.shape.version import VERSION
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.serving.problems import STATUSES
from orchestrator.rules.access.keys import Role
from paddock.contract.base import Model
from paddock.contract.problem import Problem
from tests.support.raised import raised

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return document()


@pytest.mark.slow
def test_it_is_valid(openapi: dict[str, Any]) -> None:
    validate(openapi)


def test_it_is_the_committed_one(openapi: dict[str, Any]) -> None:
    committed = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
    text = json.dumps(openapi, indent=2, ensure_ascii=False) + "\n"
    assert committed == text, "run `make openapi`"


def test_its_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION


def test_websockets_say_what_passes_on_them(openapi: dict[str, Any]) -> None:
    """Their answers, with the frames of both sides, and why they are closed."""
    schemas = openapi["components"]["schemas"]
    found = {}
    for path, item in openapi["paths"].items():
        for described in item.values():
            if "101" in (described["responses"] if isinstance(described, dict) else ()):
                found[path.rpartition("/")[2]] = described
    assert found.keys() == {"terminal", "run"}
    for name, described in found.items():
        # The handshake is refused like any request.
        assert {"400", "401", "403", "404", "410", "429", "503"} < described["responses"].keys()
        told = described["x-websocket"]
        assert next(iter(told["subprotocols"])).startswith("paddock."), name
        assert {"1000", "1001", "1007", "1009"} < told["close"].keys()
        server = told["server"]["text"]["schema"]
        assert server == described["responses"]["101"]["content"]["application/json"]["schema"]
        for schema in (told["client"]["text"]["schema"], *server.get("anyOf", [server])):
            assert schema["$ref"].rpartition("/")[2] in schemas, schema
    terminal, run = (found[name]["x-websocket"] for name in ("terminal", "run"))
    assert terminal["client"]["text"]["schema"]["$ref"].endswith("/ResizeFrame")
    assert run["client"]["text"]["schema"]["$ref"].endswith("/RunFrame")
    assert "binary" in terminal["server"]
    assert "binary" not in run["server"]


def test_operations_are_told_apart() -> None:
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)


def test_every_operation_is_described(openapi: dict[str, Any]) -> None:
    for operation in OPERATIONS:
        described = openapi["paths"][operation.path][operation.method.lower()]
        assert described["summary"], operation.id
        assert described["description"], operation.id
        assert described["tags"][0] in {tag["name"] for tag in openapi["tags"]}, operation.id
        schemes = {name for item in described["security"] for name in item}
        roles = set() if operation.access is Access.OPEN else ROLES[operation.access]
        assert ("handle" in schemes) == (Role.HANDLE in roles), operation.id
        assert ("key" in schemes) == bool(roles), operation.id
        codes = {str(STATUSES[code].value) for code in operation.codes}
        replies = {str(status.value) for status in operation.replies}
        assert set(described["responses"]) == codes | replies, operation.id
        if operation.body is not None and operation.body.model_fields:
            assert operation.examples, operation.id


def test_examples_of_requests_are_valid() -> None:
    for operation in OPERATIONS:
        for value in operation.examples.values():
            assert operation.body is not None, operation.id
            error = raised(PaddockError, validated, operation.body, value)
            assert error is None, f"{operation.id}: {error}"


def _all_models(model: type[BaseModel]) -> set[type[BaseModel]]:
    return {model}.union(*(_all_models(kind) for kind in model.__subclasses__()))


def test_examples_of_responses_are_valid() -> None:
    for model in sorted(_all_models(Model), key=str):
        extra: Any = model.model_config.get("json_schema_extra", {"examples": []})
        for value in extra["examples"]:
            model.model_validate(value)


def test_every_reply_has_an_example() -> None:
    for operation in OPERATIONS:
        for reply in operation.replies.values():
            kinds = reply.events.kinds.values() if reply.events else ()
            for model in (*reply.models, *kinds):
                assert "json_schema_extra" in model.model_config, model


def test_every_code_is_explained(openapi: dict[str, Any]) -> None:
    examples = openapi["components"]["examples"]
    assert set(examples) == set(STATUSES) - {"method_not_allowed"}
    for code, example in examples.items():
        problem = Problem.model_validate(example["value"])
        assert (problem.code, problem.status) == (code, STATUSES[code].value)
        assert example["summary"].endswith(".")


def test_references_lead_somewhere(openapi: dict[str, Any]) -> None:
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(openapi))):
        found: Any = openapi
        for part in reference.split("/"):
            found = found[part]
