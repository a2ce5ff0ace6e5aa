"""Explanations of rules; every rule has a remedy."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.policy.explanation import ALLOWED, explain_command, explain_path
from orchestrator.rules.policy.levels import load_levels
from paddock.contract.remedies import COMMANDS, KEYS, TOOLS, shell_remedy
from sandbox_agent.decide.command_words import CommandError

ROOT = Path(__file__).parents[2]
LEVELS = load_levels()
# Functions and errors that refuse, and the position of the rule in their arguments.
_REFUSING = {"_deny": 0, "DeniedError": 0, "AgentError": 2, "_emit_exit": 2, "_DeniedError": 0}
_RULE_NAMES = {"rule", "RULE", "refused", "PATH_RULE", "APPROVAL", "MAX_INTERACTIONS"} | {
    "ALLOW_PTRACE",
    "MOUNT",
    "SESSION_TOOLS",
    "TOOL_URL",
    "COVERED",
}
# Modules whose functions return a rule.
_RETURNING = {"curl.py", "operands.py"}


def _text(node: ast.expr) -> str | None:
    """The text of a literal, of a tuple's first item, or of a conditional's first branch."""
    if isinstance(node, ast.Tuple) and node.elts:
        return _text(node.elts[0])
    if isinstance(node, ast.IfExp):
        return _text(node.body)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _rules(path: Path) -> Iterator[str | None]:
    """The rules that a module names where it refuses or reports a refusal."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            at = _REFUSING.get(getattr(node.func, "id", getattr(node.func, "attr", "")), 99)
            yield from map(_text, node.args[at : at + 1])
            yield from (_text(item.value) for item in node.keywords if item.arg == "rule")
        elif isinstance(node, ast.Assign):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & _RULE_NAMES:
                yield _text(node.value)
        elif isinstance(node, ast.Return) and path.name in _RETURNING and node.value:
            yield _text(node.value)


def test_every_rule_has_a_remedy() -> None:
    modules = [*(ROOT / "sandbox_agent").rglob("*.py"), *(ROOT / "orchestrator").rglob("*.py")]
    rules = {rule for path in modules for rule in _rules(path) if rule}
    remedies = COMMANDS | TOOLS
    assert rules - KEYS.keys() == set(remedies)
    for remedy in remedies.values():
        assert remedy.endswith(".")
        assert "\n" not in remedy


@pytest.mark.parametrize(
    ("level", "command", "rule"),
    [
        ("low", "ls -la", ALLOWED),
        ("low", "curl http://example.org", "command-allowlist"),
        ("low", "ls; rm x", "shell-operators"),
        ("low", "cat /etc/passwd", "path-outside-workspace"),
        ("low", "find . -delete", "option-not-allowed"),
        ("medium", "curl file:///etc/passwd", "url-not-allowed"),
        ("medium", "date -s now", "option-not-allowed"),
        ("medium", "env ls", "operand-not-allowed"),
        ("high", "cp a /etc/passwd", "write-outside-workspace"),
        ("high", "make all", ALLOWED),
    ],
)
def test_commands(level: str, command: str, rule: str) -> None:
    explained = explain_command(LEVELS[level], command, None, None)
    assert explained.rule == rule
    assert explained.allow is (rule == ALLOWED)
    assert explained.verdict == ("allow" if explained.allow else "deny")
    permitted = LEVELS[level].commands is None
    remedy = shell_remedy(rule, permitted=permitted) or COMMANDS.get(rule)
    assert explained.remedy == remedy
    assert explained.message


def test_the_directory_counts() -> None:
    def explained(argv: list[str], cwd: str) -> bool:
        return explain_command(LEVELS["low"], None, argv, cwd).allow

    assert explained(["cat", "../a"], "src")
    assert not explained(["cat", "../a"], ".")
    with pytest.raises(CommandError):
        explained(["ls"], "/etc")


@pytest.mark.parametrize("path", ["a", ".", "/workspace", "/workspace/a/../b", "a/.."])
def test_paths_inside(path: str) -> None:
    explained = explain_path(LEVELS["low"], path)
    assert (explained.allow, explained.layers) == (True, ())


@pytest.mark.parametrize("path", ["..", "/etc/passwd", "a/../../b", "/workspace2", "/"])
def test_paths_outside(path: str) -> None:
    explained = explain_path(LEVELS["medium"], path)
    assert (explained.verdict, explained.rule) == ("deny", "path-outside-workspace")
    assert explained.remedy


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "the path can be read"),
        ("../usr", "the path can be read"),
        ("/tmp/x/..", "the path can be read"),
        ("/tmp/x", "the path can be read and written to"),
        ("/proc/self/mem", None),
        ("/run/paddock", None),
        ("//dev/../dev/null", None),
    ],
)
def test_paths_outside_where_any_command_is_allowed(path: str, message: str | None) -> None:
    explained = explain_path(LEVELS["high"], path)
    if message is None:
        assert explained.rule == "path-outside-workspace"
    else:
        assert (explained.allow, explained.message) == (True, message)


def test_writable_mounts_are_places_to_write() -> None:
    words = ["cp", "a", "/mnt/data/b"]
    refused = explain_command(LEVELS["high"], None, words, None)
    assert (refused.rule, refused.layer) == ("write-outside-workspace", "parser")
    explained = explain_command(LEVELS["high"], None, words, None, mounts=("/mnt/data",))
    assert (explained.allow, explained.layers) == (True, ())


def test_guarded_writes_can_be_switched_off() -> None:
    level = replace(LEVELS["high"], guard_writes=False)
    for command in (["cp", "a", "/etc/passwd"], ["rm", "-rf", "/opt/x"]):
        assert not explain_command(LEVELS["high"], None, command, None).allow
        assert explain_command(level, None, command, "/tmp").allow


@given(st.sampled_from(list(LEVELS)), st.text(max_size=30))
def test_any_command_is_explained(level: str, command: str) -> None:
    try:
        explained = explain_command(LEVELS[level], command, None, None)
    except CommandError:
        return
    assert explained.allow is (explained.remedy is None)
    assert explained.layer == (explained.layers[0].layer if explained.layers else "parser")
    assert explained.allow is (not explained.layers or explained.layers[0].layer != "parser")
