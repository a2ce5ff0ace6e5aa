"""The gates of a line: their order, and that the strictest matching command applies."""

import ipaddress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.tools.cedar import Policies, load_policies
from orchestrator.rules.tools.gates import Setting, Verdict, decide, opening
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.scope import NO_SCOPE, Scope
from orchestrator.rules.tools.session_loader import load_manifest
from sandbox_agent.decide.sanitize import MAX_TEXT
from tests.support.manifests import PSQL, with_commands

PSQL_MANIFEST = load_manifest(PSQL)
SCOPE = Scope(networks=(ipaddress.ip_network("10.0.0.0/8"),), domains=("*.example.com",))
INSERT = "INSERT INTO logs (msg) VALUES ('test')"


def ask(
    tool: str,
    text: object,
    *,
    manifest: Manifest = PSQL_MANIFEST,
    tier: str = "high",
    scope: Scope = SCOPE,
    policies: Policies | None = None,
    count: int = 0,
    role: str = "agent",
) -> Verdict:
    setting = Setting(scope, tier, tier, "ready", count, policies, role)
    return decide(manifest, tool, text, setting)


def select(text: object, **more: object) -> Verdict:
    return ask("psql_session.select_query", text, **more)  # type: ignore[arg-type]


def policies(tmp_path: Path, text: str) -> Policies:
    (tmp_path / "p.cedar").write_text(text)
    return load_policies(tmp_path)


def test_a_declared_command_is_allowed() -> None:
    assert select("SELECT * FROM users LIMIT 10") == Verdict(
        "allow", "allowed", "allowed", "select_query", ("select_query",), None
    )
    assert ask("psql_session.insert", INSERT).decision == "allow"


@pytest.mark.parametrize(
    "tool",
    ["psql_session.truncate", "psql.select_query", "psql_session", "", ".", "select_query",
     "psql_session.select_query.x", "PSQL_SESSION.select_query"],
)  # fmt: skip
def test_an_unknown_tool_is_refused(tool: str) -> None:
    verdict = ask(tool, "SELECT 1")
    assert (verdict.decision, verdict.rule, verdict.command) == ("deny", "unknown-tool", "")


def test_without_commands_every_input_is_refused() -> None:
    manifest = with_commands("")
    assert ask("calc.add", "1 + 1", manifest=manifest).rule == "unknown-tool"


@pytest.mark.parametrize("text", [None, 1, True, ["SELECT 1"], {"command": "SELECT 1"}, ""])
def test_the_command_must_be_a_text(text: object) -> None:
    assert select(text).rule == "command-type"


def test_long_texts_are_refused() -> None:
    assert select("SELECT " + "1" * (MAX_TEXT - 7)).decision == "allow"
    assert select("SELECT " + "1" * (MAX_TEXT - 6)).rule == "too-long"


@pytest.mark.parametrize("char", ["\n", "\r", "\0", "\x1b", "\x03", "\x04", "\x1a", "\x15", "\x9b"])
def test_control_characters_are_refused_whatever_is_sanitised(char: str) -> None:
    loose = with_commands("[session.commands.any]\npattern = '(.|\\s)*'")
    assert ask("calc.any", f"a{char}b", manifest=loose).rule == "control-character"
    assert select(f"SELECT 1{char}").rule == "control-character"


@pytest.mark.parametrize("char", list(";|&$`{}[]<>!"))
def test_injection_is_refused_where_the_manifest_says_so(char: str) -> None:
    assert select(f"SELECT 1{char}").rule == "input-sanitize"
    loose = with_commands("[session.commands.any]\npattern = '.*'")
    assert ask("calc.any", f"1{char}", manifest=loose).decision == "allow"


def test_the_pattern_must_match_the_whole_text() -> None:
    for text in ("select 1", "SELECT ", " SELECT 1", "EXPLAIN SELECT 1"):
        verdict = select(text)
        assert (verdict.decision, verdict.rule, verdict.command) == ("deny", "pattern", "")


def test_a_text_that_is_another_command_is_refused_and_named() -> None:
    verdict = select("DROP TABLE users")
    assert verdict.rule == "pattern"
    assert "it is psql_session.drop_table" in verdict.message
    assert verdict.matched == ()


@pytest.mark.parametrize(
    ("tier", "allowed"), [("low", "low"), ("medium", "medium"), ("high", "high")]
)
def test_the_risk_tier_is_held_against_the_level(tier: str, allowed: str) -> None:
    tiers = {
        "low": ("psql_session.select_query", "SELECT 1"),
        "medium": ("psql_session.insert", INSERT),
        "high": ("psql_session.drop_table", "DROP TABLE x"),
    }
    for each, (tool, text) in tiers.items():
        refused = ["low", "medium", "high"].index(each) > ["low", "medium", "high"].index(allowed)
        verdict = ask(tool, text, tier=tier)
        assert (verdict.rule == "risk-tier") == refused, each


def test_an_unknown_tier_of_a_level_allows_nothing() -> None:
    assert select("SELECT 1", tier="extreme").rule == "risk-tier"


def test_human_approval_is_pending_and_last() -> None:
    verdict = ask("psql_session.drop_table", "DROP TABLE users")
    assert (verdict.decision, verdict.rule) == ("pending", "human-approval")
    assert verdict.command == "drop_table"
    # An approval can't override a level.
    assert ask("psql_session.drop_table", "DROP TABLE users", tier="medium").rule == "risk-tier"


# The strictest of all matching commands

OVERLAPPING = """
[session.commands.set_option]
pattern = '^set [A-Za-z0-9_]+ .+$'

[session.commands.set_target]
pattern = '^set RHOSTS (?P<target>.+)$'
extract_target = true
risk_tier = "medium"

[session.commands.set_payload]
pattern = '^set PAYLOAD .+$'
risk_tier = "high"
human_approval = true

[session.commands.set_port]
pattern = '^set RPORT (?P<port>.+)$'

[session.commands.set_port.args.port]
type = "port"
"""


def test_a_loose_command_is_no_way_around_the_scope_of_a_strict_one() -> None:
    manifest = with_commands(OVERLAPPING)
    verdict = ask("calc.set_option", "set RHOSTS 8.8.8.8", manifest=manifest)
    assert (verdict.decision, verdict.rule, verdict.command) == ("deny", "scope", "set_target")
    assert verdict.matched == ("set_option", "set_target")
    inside = ask("calc.set_option", "set RHOSTS 10.1.1.1", manifest=manifest)
    assert (inside.decision, inside.scope, inside.command) == ("allow", "OK", "set_target")


def test_nor_around_its_tier_its_approval_and_its_arguments() -> None:
    manifest = with_commands(OVERLAPPING)
    low = ask("calc.set_option", "set RHOSTS 10.1.1.1", manifest=manifest, tier="low")
    assert low.rule == "risk-tier"
    payload = ask("calc.set_option", "set PAYLOAD x", manifest=manifest)
    assert (payload.decision, payload.command) == ("pending", "set_payload")
    assert ask("calc.set_option", "set RPORT 0", manifest=manifest).rule == "argument"
    assert ask("calc.set_option", "set OTHER x", manifest=manifest, tier="low").decision == "allow"


def test_nor_around_the_policies_for_it(tmp_path: Path) -> None:
    manifest = with_commands(
        OVERLAPPING, tool='[tool.cedar]\nresource = "Net::Tool"\naction = "use"'
    )
    permit_option = policies(
        tmp_path,
        'permit (principal, action, resource) when { resource.tool_name == "calc.set_option" };',
    )
    allowed = ask("calc.set_option", "set OTHER x", manifest=manifest, policies=permit_option)
    assert allowed.decision == "allow"
    both = ask("calc.set_option", "set RHOSTS 10.1.1.1", manifest=manifest, policies=permit_option)
    assert (both.rule, both.message) == ("cedar", "calc.set_target: no policy permits it")


@given(st.from_regex(r"\Aset [A-Z]{1,8} [0-9a-z.]{1,12}\Z"), st.sampled_from(["low", "high"]))
def test_which_command_is_named_changes_no_verdict(text: str, tier: str) -> None:
    """All commands that match a text lead to the same decision."""
    manifest = with_commands(OVERLAPPING)
    verdicts = [ask(f"calc.{name}", text, manifest=manifest, tier=tier) for name in
                manifest.commands]  # fmt: skip
    matching = {verdict for verdict in verdicts if verdict.matched}
    assert len(matching) <= 1


# Scope


@pytest.mark.parametrize(
    ("pattern", "text", "allowed"),
    [
        ("^scan (?P<target>\\S+) (.+)$", "scan 10.0.0.1 8.8.8.8", True),  # the named group
        ("^scan (\\S+) (.+)$", "scan 10.0.0.1 8.8.8.8", True),  # the first group
        ("^scan (\\S+) (.+)$", "scan 8.8.8.8 10.0.0.1", False),
        ("^scan .+$", "scan 10.0.0.1 a.example.com", True),  # every word after the literal
        ("^scan .+$", "scan 10.0.0.1 8.8.8.8", False),
        ("^scan -v .+$", "scan -v 10.0.0.1", True),
        ("^scan .+$", "scan -v 10.0.0.1", False),
        ("scan\\.sh .+", "scan.sh 10.0.0.1", True),
        ("^scan to?.+$", "scan to 10.0.0.1", False),  # "to" need not be there
        ("^(?:scan|ping) .+$", "scan 10.0.0.1", False),  # no literal beginning
        ("^a .+|b .+$", "b 10.0.0.1", False),
        ("^scan(?: (?P<target>\\S+))?$", "scan", False),  # nothing extractable
        ("^scan(?: (\\S+))?$", "scan", False),
        ("^scan .*$", "scan ", False),
        ("^scan (?P<target>.+)$", "scan 10.0.0.1,8.8.8.8", False),
        ("^scan (?P<target>.+)$", "scan 10.0.0.1 10.0.0.2", False),
    ],
)
def test_targets(pattern: str, text: str, allowed: bool) -> None:
    manifest = with_commands(
        f"[session.commands.scan]\npattern = '{pattern}'\nextract_target = true"
    )
    verdict = ask("calc.scan", text, manifest=manifest)
    assert (verdict.decision, verdict.scope) == (("allow", "OK") if allowed else ("deny", None))
    assert verdict.rule == ("allowed" if allowed else "scope")


@given(st.lists(st.sampled_from(["10.0.0.1", "a.example.com", "8.8.8.8", "-v", "10.0.0.0/7"])))
def test_no_word_after_the_literal_escapes_the_scope(words: list[str]) -> None:
    manifest = with_commands(
        "[session.commands.scan]\npattern = '^scan .*$'\nextract_target = true"
    )
    verdict = ask("calc.scan", " ".join(["scan", *words]), manifest=manifest)
    inside = bool(words) and all(SCOPE.refusal(word) is None for word in words)
    assert (verdict.decision == "allow") == inside


def test_a_target_without_a_scope_is_refused() -> None:
    manifest = with_commands(
        "[session.commands.scan]\npattern = '^scan (.+)$'\nextract_target = true"
    )
    verdict = ask("calc.scan", "scan 10.0.0.1", manifest=manifest, scope=NO_SCOPE)
    assert verdict.rule == "scope"
    assert "no scope file is configured" in verdict.message


def test_a_target_argument_is_checked_too() -> None:
    manifest = with_commands(
        "[session.commands.scan]\npattern = '^scan (?P<host>.+)$'\nargs.host.type = 'scope_target'"
    )
    assert ask("calc.scan", "scan 8.8.8.8", manifest=manifest).rule == "scope"
    assert ask("calc.scan", "scan 10.0.0.1", manifest=manifest).scope == "OK"


# Order

STRICT = """
[session.commands.scan]
pattern = '^scan (?P<target>[a-z0-9.]+)$'
extract_target = true
risk_tier = "high"
human_approval = true
"""


def test_the_gates_are_in_order(tmp_path: Path) -> None:
    """A text that several gates would refuse is refused by the first of these."""
    manifest = with_commands(
        STRICT,
        tool='[tool.cedar]\nresource = "Net::Tool"\naction = "use"',
        interaction='[session.interaction]\ninput_sanitize = ["injection"]',
    )
    none = policies(tmp_path, "forbid (principal, action, resource);")

    def rule(tool: str, text: object, tier: str = "low", given: Policies | None = none) -> str:
        return ask(tool, text, manifest=manifest, tier=tier, policies=given).rule

    assert rule("calc.x", None) == "unknown-tool"
    assert rule("calc.scan", None) == "command-type"
    assert rule("calc.scan", "\x03;" * MAX_TEXT) == "too-long"
    assert rule("calc.scan", "\x03;") == "control-character"
    assert rule("calc.scan", ";") == "input-sanitize"
    assert rule("calc.scan", "SCAN 8.8.8.8") == "pattern"
    assert rule("calc.scan", "scan 8.8.8.8") == "scope"
    assert rule("calc.scan", "scan 10.0.0.1") == "risk-tier"
    assert rule("calc.scan", "scan 10.0.0.1", "high") == "cedar"
    assert rule("calc.scan", "scan 10.0.0.1", "high", None) == "human-approval"


@given(st.one_of(st.text(), st.none(), st.integers()), st.text(max_size=40))
def test_nothing_breaks_the_gates(text: object, tool: str) -> None:
    assert ask(tool, text).decision == "deny"
    verdict = select(text)
    if verdict.decision == "allow":
        assert isinstance(text, str)
        assert text.startswith("SELECT ")


# Opening


RISKY = with_commands('[session.commands.drop]\npattern = "^drop$"\nrisk_tier = "high"')


@pytest.mark.parametrize(
    ("tools", "tier", "rule"),
    [
        (None, "high", None),
        ((RISKY.name,), "high", None),
        ((), "high", "session-tools"),
        (("other",), "high", "session-tools"),
        (None, "medium", "risk-tier"),
    ],
)
def test_what_a_session_may_open(
    tools: tuple[str, ...] | None, tier: str, rule: str | None
) -> None:
    refused = opening(RISKY, tools, tier, ptrace=False, mounts=())
    assert (refused and refused[0]) == rule


def test_tracing_needs_a_level_that_allows_it() -> None:
    tracing = replace(RISKY, allow_ptrace=True)
    assert opening(tracing, None, "high", ptrace=True, mounts=()) is None
    assert (opening(tracing, None, "high", ptrace=False, mounts=()) or ("",))[0] == "allow-ptrace"


def test_a_mount_that_the_session_has_not() -> None:
    needing = replace(RISKY, mounts=("database",))
    assert opening(needing, None, "high", ptrace=False, mounts=("database", "other")) is None
    refused = opening(needing, None, "high", ptrace=False, mounts=("other",))
    assert refused is not None
    assert refused[0] == "mount"
    assert "database" in refused[1]
