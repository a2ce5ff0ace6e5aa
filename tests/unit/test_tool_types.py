"""Custom argument types that an operator defines next to the manifests."""

from pathlib import Path

import pytest

from orchestrator.ground.config_error import BrokenFilesError
from orchestrator.rules.tools.catalog import kept_catalog, load_tool, parse_tool, read_catalog
from orchestrator.rules.tools.custom_types import TYPES_FILE, CustomTypes, parse_types
from orchestrator.rules.tools.gates import Setting
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.manifest_reader import ManifestError
from orchestrator.rules.tools.oneshot import Oneshot, argv, refusal
from orchestrator.rules.tools.tool_rules import ToolRules
from orchestrator.settings.settings import Settings
from tests.support.manifests import MINIMAL
from tests.unit.test_tool_oneshot import SCOPE

TYPES = r"""
[project]
name = "what other programs read"

[types.host_name]
base = "string"
pattern = "^[a-z0-9]([a-z0-9\\-]*[a-z0-9])?$"

[types.protocol]
base = "enum"
allowed = ["http", "https"]

[types.rate]
base = "integer"
min = 1
max = 100

[types.inner]
base = "scope_target"
"""
SCAN = """
[tool]
name = "scan"
[args.host]
type = "host_name"
description = "What is scanned"
[args.protocol]
type = "protocol"
required = false
default = "http"
[args.rate]
type = "rate"
required = false
default = 10
[command]
template = "nikto -h {protocol}://{host} -r {rate}"
[output]
"""


def types(text: str = TYPES) -> CustomTypes:
    return parse_types(text.encode(), TYPES_FILE)


def read(text: str, defined: CustomTypes | None = None) -> Oneshot:
    tool = parse_tool(text.encode(), "scan.clad.toml", defined or types())
    assert isinstance(tool, Oneshot)
    return tool


def why(text: str, **given: str) -> str | None:
    setting = Setting(SCOPE, "high", "high", "ready", 0, None, "agent")
    found = refusal(read(text), given, setting)
    return None if found is None else found.message


def test_an_argument_of_such_a_type_is_one_of_its_base() -> None:
    words = ["nikto", "-h", "https://web-1", "-r", "10"]
    assert argv(read(SCAN), {"host": "web-1", "protocol": "https"}) == words
    host, protocol, rate = read(SCAN).args
    assert (host.type, host.description, host.required) == ("string", "What is scanned", True)
    assert (protocol.type, protocol.allowed, protocol.required) == (
        "enum",
        ("http", "https"),
        False,
    )
    assert (rate.type, rate.min, rate.max) == ("integer", 1, 100)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"host": "-web"}, "host: does not match"),
        ({"host": "a;b"}, "host: "),
        ({"host": "web", "protocol": "ftp"}, "protocol: must be one of http, https"),
        ({"host": "web", "rate": "101"}, "rate: must be at most 100"),
        ({"host": "web", "rate": "x"}, "rate: must be an integer"),
        ({}, "host is missing"),
    ],
)
def test_values_are_held_to_it(given: dict[str, str], part: str) -> None:
    assert part in (why(SCAN, **given) or "")


def test_targets_stay_in_scope() -> None:
    text = SCAN.replace('"host_name"', '"inner"')
    assert why(text, host="10.0.0.1") is None
    assert "evil.com" in (why(text, host="evil.com") or "")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('base = "string"', 'base = "text"', "types.host_name.base: there is no type text"),
        ('base = "string"', 'base = "protocol"', "types.host_name.base: there is no type protocol"),
        ('base = "string"', "", "types.host_name.base: is missing"),
        ("[types.rate]", "[types.port]", "types.port: is the name of an existing type"),
        ("allowed =", "values =", "types.protocol.values: is not a known field"),
        ('allowed = ["http", "https"]', "", "types.protocol.allowed: is missing: type enum"),
        ("min = 1\n", "min = 1000\n", "types.rate.min: is more than max"),
        ("min = 1\n", "min = true\n", "types.rate.min: "),
        ("max = 100", 'pattern = "x"', "types.rate.pattern: does not go with type integer"),
        ('pattern = "^', 'pattern = "(', "types.host_name.pattern: "),
        ("[types.rate]", "[types.'a b']", "types.a b"),
        ("[types.host_name]", "[[types]]", f"{TYPES_FILE}: "),
    ],
)
def test_types_that_can_not_be_used(old: str, new: str, expected: str) -> None:
    assert old in TYPES
    with pytest.raises(ManifestError) as caught:
        types(TYPES.replace(old, new, 1))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"host_name"', '"hostname"', "args.host.type: there is no type hostname: toolclad.toml"),
        ('"rate"', '"rate"\nmax = 1000', "args.rate.max: is for toolclad.toml"),
        ("default = 10", "default = 1000", "args.rate.default: rate: must be at most 100"),
        ('type = "rate"', "type = 1", "args.rate.type: "),
        ('type = "rate"', "", "args.rate.type: is missing"),
        ("[args.rate]", "[args]\nother = 1\n[args.rate]", "args.other: "),
    ],
)
def test_manifests_that_can_not_be_used(old: str, new: str, expected: str) -> None:
    assert old in SCAN
    with pytest.raises(ManifestError) as caught:
        read(SCAN.replace(old, new, 1))
    assert expected in str(caught.value)


def test_commands_of_sessions_have_them_too() -> None:
    text = MINIMAL.replace('"^[0-9]+ [+] [0-9]+$"', '"^(?P<n>[0-9]+)$"')
    text += '\n[session.commands.add.args.n]\ntype = "rate"\n'
    tool = parse_tool(text.encode(), "calc.clad.toml", types())
    assert isinstance(tool, Manifest)
    (number,) = tool.commands["add"].args
    assert (number.type, number.max) == ("integer", 100)


def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "tools"
    directory.mkdir()
    (directory / TYPES_FILE).write_text(TYPES)
    (directory / "scan.clad.toml").write_text(SCAN)
    return directory


def test_they_are_those_of_the_manifests_folder(tmp_path: Path) -> None:
    directory = folder(tmp_path)
    assert isinstance(load_tool(directory / "scan.clad.toml"), Oneshot)
    catalog, problems = read_catalog(directory)
    assert (set(catalog.oneshots), problems) == ({"scan"}, {})
    (directory / TYPES_FILE).unlink()
    with pytest.raises(ManifestError, match="no type host_name"):
        load_tool(directory / "scan.clad.toml")


def test_what_was_read_stays_while_the_types_are_broken(tmp_path: Path) -> None:
    directory = folder(tmp_path)
    first = read_catalog(directory).catalog
    types_file, manifest = directory / TYPES_FILE, directory / "scan.clad.toml"
    types_file.write_text("= 1")
    second, problems = read_catalog(directory, first)
    assert second.oneshots["scan"] is first.oneshots["scan"]
    assert set(problems) == {types_file, manifest}
    assert str(types_file) in problems[manifest]
    assert read_catalog(directory).catalog.oneshots == {}
    kept = kept_catalog(second.texts())
    assert kept.oneshots["scan"].args == first.oneshots["scan"].args


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_types_that_are_no_file(tmp_path: Path, kind: str) -> None:
    directory = folder(tmp_path)
    types_file = directory / TYPES_FILE
    types_file.unlink()
    if kind == "directory":
        types_file.mkdir()
    else:
        types_file.symlink_to("nowhere")
    assert types_file in read_catalog(directory).problems


def test_a_change_of_the_types_is_one_of_the_tools(tmp_path: Path) -> None:
    directory = folder(tmp_path)
    rules = ToolRules(Settings(state_dir=tmp_path, tools_dir=directory))
    (files,) = rules.files()
    assert directory / TYPES_FILE in files.files()
    files.read()()
    (directory / TYPES_FILE).write_text(TYPES.replace("max = 100", "max = 200"))
    files.read()()
    assert rules.catalog.oneshots["scan"].args[2].max == 200
    (directory / TYPES_FILE).unlink()
    with pytest.raises(BrokenFilesError, match="no type host_name"):
        files.read()
    assert directory / TYPES_FILE not in files.files()
