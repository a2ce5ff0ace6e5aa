"""The published schemas, of manifests and of results, are accurate."""

import tomllib

import pytest
from jsonschema import Draft202012Validator

from orchestrator.rules.tools.catalog import PACKAGED, manifest_files
from orchestrator.rules.tools.schemas import input_schema, manifest_schema, result_problem
from orchestrator.rules.tools.session_loader import load_manifest
from scripts.docs import MANIFEST_SCHEMA, manifest_schema_text
from tests.support.manifests import MINIMAL, PSQL

RESULT = {"prompt": "appdb=> ", "output": "1", "session_state": "ready", "interaction_count": 1}


def test_the_published_schema_is_the_models() -> None:
    assert MANIFEST_SCHEMA.read_text() == manifest_schema_text(), "`make docs` writes it anew"


@pytest.mark.parametrize("path", [*manifest_files(PACKAGED), PSQL], ids=lambda path: path.name)
def test_manifests_hold_to_it(path: object) -> None:
    schema = manifest_schema()
    Draft202012Validator.check_schema(schema)
    text = path.read_text()  # type: ignore[attr-defined]
    Draft202012Validator(schema).validate(tomllib.loads(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name = "calc"', 'name = "a.b"'),
        ('mode = "session"', "mode = 1"),
        ("ready_pattern", "max_interactions = 0\nready_pattern"),
        ("[output]", "[output]\nother = 1"),
        ("pattern =", "args.x.type = 'date'\npattern ="),
    ],
)
def test_others_do_not(old: str, new: str) -> None:
    value = tomllib.loads(MINIMAL.replace(f"\n{old}", f"\n{new}"))
    assert not Draft202012Validator(manifest_schema()).is_valid(value)


def test_a_tool_takes_one_text() -> None:
    validator = Draft202012Validator(input_schema())
    assert validator.is_valid({"command": "SELECT 1"})
    for value in ({}, {"command": ""}, {"command": 1}, {"command": "x", "more": 1}, {"text": "x"}):
        assert not validator.is_valid(value)


def test_results_are_held_to_the_manifests_schema() -> None:
    schema = load_manifest(PSQL).output_schema
    assert result_problem(schema, RESULT) is None
    assert result_problem(None, {"anything": 1}) is None
    problem = result_problem(schema, {**RESULT, "session_state": "secret-of-the-tool"})
    assert problem == "session_state does not satisfy enum of output.schema"
    assert result_problem(schema, {**RESULT, "interaction_count": "1"}) is not None
