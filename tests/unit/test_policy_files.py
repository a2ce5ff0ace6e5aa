"""Files of session policies: read strictly, one broken file changes no other."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.config_error import BrokenFilesError, ConfigError
from orchestrator.ground.errors import ValidationError
from orchestrator.rules.policy.policy_files import SessionPolicies, read_policy_file
from orchestrator.rules.policy.session_policy import BUILT_IN, SAFE_ANALYSIS, SAFE_EDIT

REVIEW = """\
extends = "SAFE_EDIT"
denied_operations = ["world.run", "world.exec", "shell", "subeval"]

[world_rules]
write_patterns = ["docs/**/*.md"]

[llm_rules]
max_tokens_per_call = 500
"""


def test_a_file_changes_what_it_gives(tmp_path: Path) -> None:
    (tmp_path / "review.toml").write_text(REVIEW)
    (tmp_path / ".draft.toml").write_text("broken")
    (tmp_path / "notes.txt").write_text("broken")
    policies = SessionPolicies(tmp_path)
    assert list(policies) == ["SAFE_ANALYSIS", "SAFE_EDIT", "SAFE_WORK", "review"]
    found = policies["review"]
    assert found.name == "review"
    assert found.allowed_operations == SAFE_EDIT.allowed_operations
    assert "subeval" in found.denied_operations
    assert found.world_rules.write_patterns.patterns == ("docs/**/*.md",)
    assert found.world_rules.read_patterns == SAFE_EDIT.world_rules.read_patterns
    assert found.world_rules.proposal_mode
    assert found.llm_rules.max_tokens_per_call == 500
    assert found.execution_rules == SAFE_EDIT.execution_rules
    (tmp_path / "empty.toml").write_text("")
    assert read_policy_file(tmp_path / "empty.toml").rules() == SAFE_ANALYSIS.rules()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", ":1: x: is not a known field"),
        ("\n[world_rules]\nread_only = 1", ":3: world_rules.read_only: must be a valid boolean"),
        ("[llm_rules]\nallow = true", ":2: llm_rules.allow: is not a known field"),
        (
            '[world_rules]\nread_patterns = ["a", "[b"]',
            ":2: world_rules.read_patterns.1: has a [ without its ]",
        ),
        ('allowed_operations = ["world.fly"]', ":1: allowed_operations.0: must be one of assert"),
        ("[llm_rules]\nmax_tokens_per_call = 0", ":2: llm_rules.max_tokens_per_call: must be"),
        ('extends = "other"', ":1: extends: must be one of SAFE_ANALYSIS SAFE_EDIT SAFE_WORK"),
        ("a = [", ":1: "),
        ("world_rules = 5", ":1: world_rules: must be"),
        ("a = " + "[" * 2000, "nested"),
    ],
)
def test_a_broken_file_is_named_with_the_field(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        SessionPolicies(tmp_path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["SAFE_EDIT", "my policy", "1st", "a.b", "ä"])
def test_a_name_is_plain_and_not_that_of_a_built_in_one(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.toml").write_text("")
    with pytest.raises(ConfigError, match=r"built in|begins with a letter"):
        SessionPolicies(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"mine\.toml: must be UTF-8"):
        SessionPolicies(tmp_path)
    (tmp_path / "mine.toml").unlink()
    (tmp_path / "mine.toml").mkdir()
    with pytest.raises(ConfigError, match=r"mine\.toml: Is a directory"):
        SessionPolicies(tmp_path)


def test_a_broken_edit_keeps_the_policy_before_it_and_others_change(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(REVIEW)
    (tmp_path / "two.toml").write_text(REVIEW)
    policies = SessionPolicies(tmp_path)
    before = policies["one"]
    (tmp_path / "one.toml").write_text("read_only = true")
    (tmp_path / "two.toml").unlink()
    (tmp_path / "three.toml").write_text("")
    (tmp_path / "four.toml").write_text("x = 1")
    with pytest.raises(BrokenFilesError) as caught:
        policies.reading(tmp_path)
    assert set(caught.value.problems) == {tmp_path / "one.toml", tmp_path / "four.toml"}
    assert list(policies) == [*BUILT_IN, "one", "two"]
    caught.value.replace()
    assert sorted(policies) == sorted([*BUILT_IN, "one", "three"])
    assert policies["one"] is before
    (tmp_path / "four.toml").unlink()
    (tmp_path / "one.toml").write_text("")
    policies.reading(tmp_path)()
    assert policies["one"].rules() == SAFE_ANALYSIS.rules()


def test_a_request_names_a_policy_or_has_one(tmp_path: Path) -> None:
    (tmp_path / "review.toml").write_text(REVIEW)
    policies = SessionPolicies(tmp_path)
    assert policies.resolve(None, "policy") is SAFE_ANALYSIS
    assert policies.resolve("review", "policy") is policies["review"]
    own = policies.resolve({"extends": "review", "llm_rules": {"allow_intent": False}}, "policy")
    assert own.name is None
    assert own.world_rules == policies["review"].world_rules
    assert not own.llm_rules.allow_intent
    assert policies.resolve(own, "policy") is own


@pytest.mark.parametrize(
    ("wanted", "field", "said"),
    [
        ("other", "policy", "policy must be one of SAFE_ANALYSIS SAFE_EDIT SAFE_WORK"),
        (
            {"extends": "other"},
            "policy.extends",
            "must be one of SAFE_ANALYSIS SAFE_EDIT SAFE_WORK",
        ),
        (
            {"world_rules": {"read_patterns": ["/a"]}},
            "policy.world_rules.read_patterns.0",
            "policy.world_rules.read_patterns.0 must be relative",
        ),
        ({"world_rules": {"read_patterns": "a"}}, "policy.world_rules.read_patterns", "list"),
        ({"world_rules": {"write_patterns": ["a"] * 257}}, "policy.world_rules.write_patterns", ""),
        ({"execution_rules": {"x": True}}, "policy.execution_rules.x", "not a known field"),
        ({"allowed_operations": ["a", 5]}, "policy.allowed_operations.0", "must be one of"),
    ],
)
def test_a_refused_policy_names_its_field(wanted: Any, field: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SessionPolicies().resolve(wanted, "policy")
    assert caught.value.fields["field"] == field
    assert said in caught.value.detail
