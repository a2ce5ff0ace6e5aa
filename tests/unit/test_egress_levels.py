"""Rules in a level's file: their errors name the line and the field."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from api.views.levels import level as view
from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.egress.outgoing_request import Outgoing, Requested
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.policy.layers import command_stops
from orchestrator.rules.policy.levels import load_levels, restore_level
from tests.support.egress import level_with

GOOD = """
[[egress.allow]]
host = "PyPI.org."

[[egress.allow]]
host = "*.bücher.example"
ports = [8443]

[[egress.allow]]
cidr = "10.1.0.0/16"

[[egress.deny]]
host = "evil.pypi.org"
"""

REQUESTS = """
[[egress.allow]]
host = "pypi.org"
ports = [443]
methods = ["GET", "HEAD"]
paths = ["/simple/**"]
inspect = true
"""


def rules_of(directory: Path, text: str) -> Rules:
    (directory / "out.toml").write_text(level_with(text), encoding="utf-8")
    return load_levels(directory)["out"].egress


def test_rules_are_in_one_spelling_and_have_the_usual_ports(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, GOOD)
    assert [str(rule) for rule in rules.allow] == [
        "pypi.org:80,443",
        "*.xn--bcher-kva.example:8443",
        "10.1.0.0/16:80,443",
    ]
    assert [str(rule) for rule in rules.deny] == ["evil.pypi.org"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[egress.allow]]\nhost = "a b"', "egress.allow.0.host: must be a host or *.domain"),
        ('[[egress.allow]]\nhost = "*.com"', "must not be a whole top-level domain"),
        ('[[egress.allow]]\nhost = "a.*.org"', "egress.allow.0.host: must be a host"),
        ('[[egress.allow]]\nhost = "*"', "egress.allow.0.host: must be a host"),
        ('[[egress.allow]]\nhost = "127.1"', "list addresses with cidr"),
        ('[[egress.allow]]\nhost = "http://a.org"', "egress.allow.0.host: must be a host"),
        ('[[egress.allow]]\ncidr = "10.0.0.1/8"', "egress.allow.0.cidr: must be a network"),
        ('[[egress.allow]]\ncidr = "169.254.0.0/16"', "has link-local addresses"),
        ('[[egress.allow]]\ncidr = "0.0.0.0/0"', "egress.allow.0.cidr: has "),
        ('[[egress.allow]]\nhost = "a.org"\nports = []', "egress.allow.0.ports"),
        ('[[egress.allow]]\nhost = "a.org"\nports = [0]', "egress.allow.0.ports.0"),
        ('[[egress.allow]]\nhost = "a.org"\nports = [65536]', "egress.allow.0.ports.0"),
        ('[[egress.allow]]\nhost = "a.org"\nports = ["80"]', "egress.allow.0.ports.0"),
        ('[[egress.allow]]\nhost = "a.org"\nmethods = ["get"]', "egress.allow.0.methods.0: must"),
        ('[[egress.allow]]\nhost = "a.org"\nmethods = []', "egress.allow.0.methods"),
        ('[[egress.allow]]\nhost = "a.org"\nmethods = ["CONNECT"]', "egress.allow.0.methods.0"),
        (
            '[[egress.allow]]\nhost = "a.org"\npaths = ["x/**"]',
            "egress.allow.0.paths.0: must begin",
        ),
        ('[[egress.allow]]\nhost = "a.org"\npaths = ["/%41"]', "egress.allow.0.paths.0: must"),
        ('[[egress.allow]]\nhost = "a.org"\npaths = ["/a/../b"]', "paths.0: matches no path"),
        ('[[egress.allow]]\nhost = "a.org"\npaths = ["/***"]', "paths.0: may have * and **"),
        ('[[egress.allow]]\ncidr = "10.0.0.0/8"\ninspect = true', "allow.0: inspect needs host"),
        ('[[egress.deny]]\nhost = "a.org"\ninspect = true', "deny.0: inspect needs methods"),
        ('[[egress.allow]]\nhost = "a.org"\nprograms = []', "egress.allow.0.programs"),
        ('[[egress.allow]]\nhost = "a.org"\nprograms = ["/bin/x"]', "allow.0.programs.0: must be"),
        ('[[egress.deny]]\nhost = "a.org"\nprograms = ["unknown"]', "deny.0.programs.0: must be"),
        ('[[egress.allow]]\ncidr = "10.0.0.0/8"\nprograms = ["x"]', "allow.0: programs needs host"),
        ('[[egress.allow]]\ncidr = "10.0.0.0/8"\nupgrade = true', "allow.0: upgrade needs host"),
        ('[[egress.deny]]\nhost = "a.org"\nupgrade = true', "egress.deny.0.upgrade"),
        (
            '[[egress.allow]]\nhost = "a.org"\nports = [80]\nupgrade = true',
            "allow.0: upgrade needs port 443",
        ),
        ("[[egress.allow]]\nports = [80]", "egress.allow.0: must have either host or cidr"),
        (
            '[[egress.deny]]\nhost = "a.org"\ncidr = "10.0.0.0/8"',
            "egress.deny.0: must have either host or cidr",
        ),
    ],
)
def test_a_bad_rule_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rules_of(tmp_path, f"{GOOD}\n{text}\n")
    place = said.replace("allow.0", "allow.3").replace("deny.0", "deny.1")
    assert place in str(refused.value)
    line = int(str(refused.value).removeprefix(f"{tmp_path / 'out.toml'}:").partition(":")[0])
    lines = level_with(f"{GOOD}\n{text}\n").splitlines()
    first = len(lines) - text.count("\n")
    assert first <= line <= len(lines), lines[line - 1]


def test_the_documented_rules_are_valid(tmp_path: Path) -> None:
    document = (Path(__file__).parents[2] / "docs" / "egress.md").read_text()
    mode, _, text = document.partition("```toml\n")[2].partition("```")[0].partition("\n")
    assert mode == 'network = "egress"'
    rules = rules_of(tmp_path, text)
    assert rules.decide(Outgoing("files.pythonhosted.org", 443)).allow
    assert not rules.decide(Outgoing("evil.pythonhosted.org", 443)).allow


def test_rules_need_a_way_out(tmp_path: Path) -> None:
    text = level_with(GOOD).replace('network = "egress"', 'network = "none"')
    (tmp_path / "out.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="egress: has no effect without"):
        load_levels(tmp_path)


def test_a_session_s_level_keeps_its_rules(tmp_path: Path) -> None:
    rules_of(tmp_path, GOOD)
    level = load_levels(tmp_path)["out"]
    assert restore_level(json.loads(json.dumps(level.stored()))) == level
    earlier = level.stored()
    del earlier["egress"]
    assert restore_level(earlier) == replace(level, egress=Rules())
    shown = view(level, allowed=True, rule=None, without_root={}).egress.model_dump()
    assert shown["allow"][2] == {
        "host": None,
        "cidr": "10.1.0.0/16",
        "ports": [80, 443],
        "methods": [],
        "paths": [],
        "inspect": False,
        "upgrade": False,
        "programs": [],
    }


def test_rules_about_requests_are_kept(tmp_path: Path) -> None:
    rules_of(tmp_path, REQUESTS)
    level = load_levels(tmp_path)["out"]
    assert [str(rule) for rule in level.egress.allow] == [
        "pypi.org:443 GET,HEAD /simple/**",
    ]
    assert restore_level(json.loads(json.dumps(level.stored()))) == level
    (shown,) = view(level, allowed=True, rule=None, without_root={}).egress.allow
    assert (shown.methods, shown.paths, shown.inspect) == (["GET", "HEAD"], ["/simple/**"], True)


def test_rules_of_an_earlier_release_are_about_every_request(tmp_path: Path) -> None:
    rules_of(tmp_path, GOOD)
    level = load_levels(tmp_path)["out"]
    earlier = level.stored()
    for rule in (*earlier["egress"]["allow"], *earlier["egress"]["deny"]):
        for name in ("methods", "paths", "inspect"):
            del rule[name]
    assert restore_level(earlier) == level


@pytest.mark.parametrize(
    ("command", "stops"),
    [
        ("curl https://pypi.org/simple", []),
        ("curl https://a.xn--bcher-kva.example:8443/", []),
        ("curl https://other.org/", ["network"]),
        ("curl http://127.0.0.1:8000/", []),
        ("curl http://169.254.169.254/", ["network"]),
    ],
)
def test_explanations_know_the_rules(tmp_path: Path, command: str, stops: list[str]) -> None:
    rules_of(tmp_path, GOOD)
    found = command_stops(load_levels(tmp_path)["out"], command.split(), "/workspace")
    assert [stop.layer for stop in found] == stops
    assert all(stop.remedy for stop in found)


def test_the_documented_inspection_is_valid(tmp_path: Path) -> None:
    document = (Path(__file__).parents[2] / "docs" / "egress.md").read_text()
    section = document.partition("## Inspection")[2]
    rules = rules_of(tmp_path, section.partition("```toml\n")[2].partition("```")[0])
    assert rules.decide(Outgoing("pypi.org", 443)).inspect
    good, bad = Requested.of("GET", "/simple/attrs/"), Requested.of("GET", "/simple/evil/x")
    assert rules.decide(Outgoing("pypi.org", 443, good)).allow
    assert not rules.decide(Outgoing("pypi.org", 443, bad)).allow
