"""Session policies: the order of checks, the built-in ones, and nested ones."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.policy.explanation import explain_operation
from orchestrator.rules.policy.session_policy import (
    BUILT_IN,
    COMMANDS,
    EXECUTIONS,
    OPERATIONS,
    SAFE_ANALYSIS,
    SAFE_EDIT,
    SAFE_WORK,
    PolicyRefusalError,
    SessionPolicy,
)
from paddock.contract.remedies import POLICIES
from paddock.contract.words import OperationName
from sandbox_agent.decide.globs import Globs

EVERYTHING = replace(
    SAFE_EDIT,
    name="everything",
    allowed_operations=OPERATIONS,
    denied_operations=frozenset(),
    execution_rules=replace(
        SAFE_EDIT.execution_rules, allow_shell_commands=True, allow_network_calls=True
    ),
)


def refusal(policy: SessionPolicy, operation: str, **args: Any) -> tuple[str, str] | None:
    """The rule and the message; None: it is allowed."""
    try:
        policy.check(operation, **args)
    except PolicyRefusalError as error:
        return error.fields["rule"], error.detail
    return None


def test_the_default_policy_is_for_analysis() -> None:
    assert SAFE_ANALYSIS.rules() == {
        "allowed_operations": sorted(
            (
                *("world.read", "world.list", "world.search", "world.fingerprint"),
                *("llm.complete", "eval", "subeval", "memo", "fixpoint"),
                *("assert", "fact?", "facts"),
            )
        ),
        "denied_operations": ["shell", "world.exec", "world.run"],
        "world_rules": {
            "read_patterns": ["**/*"],
            "write_patterns": [],
            "read_only": True,
            "proposal_mode": False,
        },
        "llm_rules": {"allow_complete": True, "allow_intent": True, "max_tokens_per_call": 4000},
        "execution_rules": {
            "allow_shell_commands": False,
            "allow_network_calls": False,
            "allow_subeval": True,
        },
    }


def test_the_policy_for_edits_adds_writes_that_are_proposals() -> None:
    edit, analysis = SAFE_EDIT.rules(), SAFE_ANALYSIS.rules()
    assert set(edit.pop("allowed_operations")) == {
        *analysis.pop("allowed_operations"),
        *("world.write", "world.patch"),
    }
    assert edit.pop("world_rules") == {
        "read_patterns": ["**/*"],
        "write_patterns": ["src/**/*", "test/**/*"],
        "read_only": False,
        "proposal_mode": True,
    }
    analysis.pop("world_rules")
    assert edit == analysis
    assert list(BUILT_IN) == ["SAFE_ANALYSIS", "SAFE_EDIT", "SAFE_WORK"]


def test_the_policy_for_work_permits_edits_and_commands_of_the_level() -> None:
    for operation in sorted(COMMANDS | {"world.tool"}):
        SAFE_WORK.check(operation, network=True)
    for ref in ("README.md", "src/a/b.py", ".env", ".github/workflows/ci.yml", "a/.b/c"):
        for operation in ("world.read", "world.write", "world.delete"):
            SAFE_WORK.check(operation, ref=ref)
    for ref in ("../a", "/etc/passwd"):
        assert refusal(SAFE_WORK, "world.write", ref=ref) is not None
    # A child and a tool of the host are for the operator to permit.
    for operation in ("spawn", "tool.call", "llm.intent"):
        assert refusal(SAFE_WORK, operation) == (
            "policy-operation",
            f"Operation not allowed: {operation}",
        )
    assert not SAFE_WORK.world_rules.proposal_mode


def test_the_contract_knows_every_operation() -> None:
    assert set(get_args(OperationName)) == OPERATIONS


def test_deny_beats_allow_and_both_come_before_the_rest() -> None:
    both = replace(
        EVERYTHING,
        denied_operations=frozenset({"world.read"}),
        allowed_operations=OPERATIONS - {"world.write"},
        world_rules=replace(EVERYTHING.world_rules, read_only=True),
    )
    ref = ".env"
    assert refusal(both, "world.write", ref=ref) == (
        "policy-operation",
        "Operation not allowed: world.write",
    )
    assert refusal(both, "world.read", ref=ref) == (
        "policy-denied",
        "Operation explicitly denied: world.read",
    )
    neither = replace(both, denied_operations=frozenset({"world.write"}))
    assert refusal(neither, "world.write") == (
        "policy-operation",
        "Operation not allowed: world.write",
    )
    assert not both.permits("world.read")
    assert not both.permits("world.write")
    assert both.permits("world.delete")


@pytest.mark.parametrize("operation", ["world.read", "world.fingerprint"])
def test_a_read_needs_a_pattern(operation: str) -> None:
    assert refusal(SAFE_ANALYSIS, operation, ref="README.md") is None
    for ref in (".env", "src/../x", "/etc/passwd", ".git/config"):
        assert refusal(SAFE_ANALYSIS, operation, ref=ref) == (
            "policy-read",
            f"Read not allowed: {ref}",
        )


@pytest.mark.parametrize("operation", ["world.list", "world.search"])
def test_a_directory_is_listed_if_something_in_it_may_be_read(operation: str) -> None:
    narrow = replace(
        EVERYTHING,
        world_rules=replace(EVERYTHING.world_rules, read_patterns=Globs(["src/**/*.py"])),
    )
    for ref in (".", "src", "src/x", "src/a.py"):
        assert refusal(narrow, operation, ref=ref) is None
    for ref in ("lib", ".git", "..", "/"):
        assert refusal(narrow, operation, ref=ref) == (
            "policy-read",
            f"Read not allowed: {ref}",
        )
    assert refusal(narrow, operation) is None


@pytest.mark.parametrize("operation", ["world.write", "world.patch", "world.delete"])
def test_a_write_needs_a_world_that_is_not_read_only_and_a_pattern(operation: str) -> None:
    assert refusal(EVERYTHING, operation, ref="src/a.py") is None
    assert refusal(EVERYTHING, operation, ref="lib/a.py") == (
        "policy-write",
        "Write not allowed: lib/a.py",
    )
    frozen = replace(EVERYTHING, world_rules=replace(EVERYTHING.world_rules, read_only=True))
    for ref in ("src/a.py", "lib/a.py"):
        assert refusal(frozen, operation, ref=ref) == (
            "policy-read-only",
            "World is read-only",
        )


@pytest.mark.parametrize("operation", ["llm.complete", "llm.intent"])
def test_a_call_of_a_model_needs_its_flag_and_few_tokens(operation: str) -> None:
    assert refusal(EVERYTHING, operation, max_tokens=4000) is None
    assert refusal(EVERYTHING, operation) is None
    assert refusal(EVERYTHING, operation, max_tokens=4001) == (
        "policy-tokens",
        "Tokens per call exceeded: 4001 of 4000",
    )
    rules = EVERYTHING.llm_rules
    flag = "allow_" + operation.removeprefix("llm.")
    without = replace(EVERYTHING, llm_rules=replace(rules, **{flag: False}))
    assert refusal(without, operation) == (
        "policy-llm",
        f"Calls of models not allowed: {operation}",
    )
    other = "llm.intent" if operation == "llm.complete" else "llm.complete"
    assert refusal(without, other) is None


@pytest.mark.parametrize("operation", sorted(EXECUTIONS))
def test_a_command_needs_its_flag_and_another_one_for_the_network(operation: str) -> None:
    assert refusal(EVERYTHING, operation, network=True) is None
    rules = EVERYTHING.execution_rules
    offline = replace(EVERYTHING, execution_rules=replace(rules, allow_network_calls=False))
    assert refusal(offline, operation) is None
    assert refusal(offline, operation, network=True) == (
        "policy-execution",
        "Network calls not allowed",
    )
    without = replace(EVERYTHING, execution_rules=replace(rules, allow_shell_commands=False))
    assert refusal(without, operation) == ("policy-execution", "Shell commands not allowed")


def test_a_nested_evaluation_needs_its_flag() -> None:
    rules = replace(EVERYTHING.execution_rules, allow_subeval=False)
    without = replace(EVERYTHING, execution_rules=rules)
    assert refusal(EVERYTHING, "subeval") is None
    assert refusal(without, "subeval") == (
        "policy-execution",
        "Nested evaluation not allowed",
    )
    assert refusal(without, "eval") is None


def test_every_rule_is_explained() -> None:
    found = explain_operation(SAFE_ANALYSIS, "world.read", "a/b", None, False)
    assert (found.allow, found.message) == (True, "allowed by policy SAFE_ANALYSIS")
    found = explain_operation(SAFE_ANALYSIS, "world.read", ".env", None, False)
    assert (found.verdict, found.rule, found.layer) == ("deny", "policy-read", "policy")
    assert found.remedy == POLICIES["policy-read"]


POLICY = st.builds(
    lambda allowed, denied, reads, writes, flags, tokens: SessionPolicy.restored(
        {
            "name": None,
            "allowed_operations": allowed,
            "denied_operations": denied,
            "world_rules": {
                "read_patterns": reads,
                "write_patterns": writes,
                "read_only": flags[0],
                "proposal_mode": flags[1],
            },
            "llm_rules": {
                "allow_complete": flags[2],
                "allow_intent": flags[3],
                "max_tokens_per_call": tokens,
            },
            "execution_rules": {
                "allow_shell_commands": flags[4],
                "allow_network_calls": flags[5],
                "allow_subeval": flags[6],
            },
        }
    ),
    st.sets(st.sampled_from(sorted(OPERATIONS)), min_size=9),
    st.sets(st.sampled_from(sorted(OPERATIONS)), max_size=3),
    st.lists(st.sampled_from(["**/*", "a/**/*", "*", "a/*"])),
    st.lists(st.sampled_from(["**/*", "a/**/*", "*", "a/*"])),
    st.tuples(*([st.booleans()] * 7)),
    st.integers(1, 100),
)


@given(
    st.lists(POLICY, min_size=2, max_size=4),
    st.sampled_from(sorted(OPERATIONS)),
    st.sampled_from(["a", "b", "a/b", "b/c", "a/b/c"]),
    st.integers(1, 100),
    st.booleans(),
)
def test_a_nested_policy_permits_what_all_around_it_permit(
    policies: list[SessionPolicy], operation: str, ref: str, tokens: int, network: bool
) -> None:
    nested = policies[0]
    for inner in policies[1:]:
        nested = nested.narrowed(inner)
    args: dict[str, Any] = {"ref": ref, "max_tokens": tokens, "network": network}
    each = [refusal(policy, operation, **args) for policy in policies]
    assert (refusal(nested, operation, **args) is None) == (not any(each))
    assert nested.world_rules.proposal_mode == policies[0].world_rules.proposal_mode


@given(POLICY)
def test_it_is_the_same_when_it_was_stored(policy: SessionPolicy) -> None:
    assert SessionPolicy.restored(policy.stored()) == policy
    assert len(policy.sha256) == 64


def test_a_patch_is_decided_by_what_it_does_to_each_file() -> None:
    EVERYTHING.check_patch(["src/a"], ["src/a"], ["src/b"])
    narrow = replace(SAFE_EDIT, denied_operations=frozenset({"world.delete"}))
    narrow.check_patch(["src/a"], ["src/a"], [])
    with pytest.raises(PolicyRefusalError):
        narrow.check_patch(["src/a"], [], ["src/a"])
    with pytest.raises(PolicyRefusalError):
        narrow.check_patch([], ["lib/a"], [])
    with pytest.raises(PolicyRefusalError):
        narrow.check_patch(["../a"], [], [])
