"""Advice about manifests, and what they may leave out."""

import pytest

from orchestrator.rules.tools.advice import advice
from orchestrator.rules.tools.catalog import parse_tool, read_catalog
from orchestrator.rules.tools.gates import Setting, decide
from orchestrator.rules.tools.manifest_reader import ManifestError
from orchestrator.rules.tools.scope import NO_SCOPE
from orchestrator.rules.tools.session_loader import load_manifest
from tests.support.manifests import MINIMAL, PSQL, parse, with_commands
from tests.unit.test_tool_oneshot import SCAN


@pytest.mark.parametrize("name", list(read_catalog(None).catalog))
def test_shipped_manifests_need_no_advice(name: str) -> None:
    assert list(advice(read_catalog(None).catalog[name])) == []


def test_the_documented_manifest_needs_none() -> None:
    assert list(advice(load_manifest(PSQL))) == []


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"^> $"', '"> $"', "session.ready_pattern: must match the last line"),
        ('"^> $"', '"^> "', "session.ready_pattern: must match the last line"),
        ('"^> $"', r'"^\\n> $"', "which has no line break"),
        ('"^[0-9]+ [+] [0-9]+$"', '"[0-9]+"', "session.commands.add.pattern: must match the whole"),
        ('"^[0-9]+ [+] [0-9]+$"', '"^add "', "to its end"),
    ],
)
def test_patterns_that_will_hardly_match_are_named(old: str, new: str, sentence: str) -> None:
    assert old in MINIMAL
    (found,) = advice(parse(MINIMAL.replace(old, new)))
    assert sentence in found


STATES = '[session.states]\n"{}" = "ready"\n[session.commands.add]'


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "[session.commands.add]",
            STATES.format("> "),
            'session.states."> ": must match the prompt',
        ),
        ("[session.commands.add]", STATES.format("^> "), "to its end"),
        (
            '"^[0-9]+ [+] [0-9]+$"',
            '"^(?P<n>[0-9]+)$"\n[session.commands.add.args.n]\ntype = "string"\npattern = "[0-9]"',
            "session.commands.add.args.n.pattern: must match the whole value",
        ),
    ],
)
def test_other_patterns_are_named_too(old: str, new: str, sentence: str) -> None:
    (found,) = advice(parse(MINIMAL.replace(old, new)))
    assert sentence in found


def test_patterns_of_oneshot_tools_are_named() -> None:
    text = SCAN.replace('default = ""', 'default = ""\npattern = "[a-z]"')
    *others, found = advice(parse_tool(text.encode(), "scan.clad.toml"))
    assert found.startswith("args.extra.pattern: must match the whole value")
    assert list(advice(parse_tool(SCAN.encode(), "scan.clad.toml"))) == others


@pytest.mark.parametrize("ready", ['"^.+> $"', '".*> $"', '"(?:.+)> $"'])
def test_open_patterns_need_no_advice(ready: str) -> None:
    assert list(advice(parse(MINIMAL.replace('"^> $"', ready)))) == []


def test_a_table_of_the_session_says_the_mode() -> None:
    assert parse(MINIMAL.replace('mode = "session"', "")).name == "calc"
    without = MINIMAL.replace('mode = "session"', "").replace("[session", "[other")
    with pytest.raises(ManifestError, match=r"command: is missing, as is \[session\]"):
        parse(without)


@pytest.mark.parametrize(
    ("command", "terminator"),
    [
        ("psql -h localhost", ";\n"),
        ("/usr/lib/postgresql/15/bin/psql", ";\n"),
        ("mysql", ";\n"),
        ("sqlite3 /workspace/x.db", ";\n"),
        ("bc -q", "\n"),
    ],
)
def test_lines_to_clients_of_sql_end_with_a_semicolon(command: str, terminator: str) -> None:
    assert parse(MINIMAL.replace("bc -q", command)).line_terminator == terminator
    own = MINIMAL.replace("bc -q", command).replace(
        "[session.commands", '[session.interaction]\nline_terminator = "\\n"\n[session.commands', 1
    )
    assert parse(own).line_terminator == "\n"


@pytest.mark.parametrize(
    ("tier", "highest", "decision"),
    [
        ("info", "low", "allow"),
        ("info", "info", "allow"),
        ("low", "info", "deny"),
        ("critical", "high", "deny"),
        ("critical", "critical", "pending"),
    ],
)
def test_tiers(tier: str, highest: str, decision: str) -> None:
    manifest = with_commands(f"[session.commands.go]\npattern = '^go$'\nrisk_tier = '{tier}'\n")
    setting = Setting(NO_SCOPE, highest, highest, "ready", 0, None, "agent")
    assert decide(manifest, "calc.go", "go", setting).decision == decision


def test_the_name_of_evidence() -> None:
    manifest = load_manifest(PSQL)
    assert (manifest.capture, manifest.evidence_name) == (True, "{session_id}-psql")
    manifest = parse(MINIMAL + "[tool.evidence]\ncapture = false\n")
    assert (manifest.capture, manifest.evidence_name) == (False, None)


@pytest.mark.parametrize(
    "output_dir",
    [
        "/tmp/x",
        "{evidence_dir}/../{session_id}",
        "{evidence_dir}/all",
        "{evidence_dir}/a/{scan_id}",
    ],
)
def test_evidence_stays_where_it_is_kept(output_dir: str) -> None:
    with pytest.raises(ManifestError, match=r"tool\.evidence\.output_dir"):
        parse(MINIMAL + f"[tool.evidence]\noutput_dir = '{output_dir}'\n")
