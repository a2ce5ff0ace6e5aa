"""Manifest files: parsing, and refusals that name the file, the field and the reason."""

import hashlib
from pathlib import Path

import pytest

from orchestrator.rules.tools.manifest_reader import MAX_BYTES, ManifestError
from orchestrator.rules.tools.session_loader import load_manifest, parse_manifest
from tests.support.manifests import MINIMAL, PSQL, parse

NAMED = "test.clad.toml: "


def refused(text: str) -> str:
    """The message of the refusal, without the file's name."""
    with pytest.raises(ManifestError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(NAMED)
    return message.removeprefix(NAMED)


def test_the_documented_example_loads_verbatim() -> None:
    manifest = load_manifest(PSQL)
    assert manifest.name == "psql_session"
    assert manifest.argv == ("psql", "-h", "localhost", "-U", "agent_user", "-d", "appdb")
    assert (manifest.startup_timeout_seconds, manifest.idle_timeout_seconds) == (10, 300)
    assert (manifest.session_timeout_seconds, manifest.max_interactions) == (1800, 200)
    assert (manifest.output_max_bytes, manifest.output_wait_ms) == (1048576, 2000)
    assert manifest.sanitize_injection
    assert manifest.line_terminator == ";\n"  # psql reads on until the semicolon
    assert list(manifest.commands) == ["select_query", "insert", "update", "drop_table"]
    drop = manifest.commands["drop_table"]
    assert (drop.risk_tier, drop.human_approval) == ("high", True)
    assert manifest.cedar is not None
    assert (manifest.cedar.resource, manifest.cedar.action) == ("Data::Database", "query")
    assert manifest.declared_states == ("ready", "transaction", "error")
    assert manifest.ready_pattern.matches("appdb=>")
    assert manifest.ready_pattern.matches("appdb=> ")


def test_the_pin_is_the_digest_of_the_bytes() -> None:
    data = PSQL.read_bytes()
    assert load_manifest(PSQL).sha256 == hashlib.sha256(data).hexdigest()
    other = parse_manifest(data + b"# changed\n", "other")
    assert other.sha256 != load_manifest(PSQL).sha256


def test_defaults() -> None:
    manifest = parse(MINIMAL)
    command = manifest.commands["add"]
    assert (manifest.startup_timeout_seconds, manifest.idle_timeout_seconds) == (30, 300)
    assert (manifest.session_timeout_seconds, manifest.max_interactions) == (1800, 100)
    assert (manifest.output_max_bytes, manifest.output_wait_ms) == (1_048_576, 2000)
    assert not manifest.sanitize_injection
    assert (command.description, command.risk_tier) == ("", "low")
    assert (command.human_approval, command.extract_target, command.args) == (False, False, ())
    assert (manifest.cedar, manifest.mounts, manifest.allow_ptrace) == (None, (), False)


def test_no_commands_are_no_tools() -> None:
    assert parse(MINIMAL.replace("[session.commands.add]\n", "").replace(
        'pattern = "^[0-9]+ [+] [0-9]+$"\n', ""
    )).commands == {}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("= 1", "is not TOML: "),
        ("\xff", "session"),
        ("x = 1", "tool: is missing: a manifest has a table [tool]"),
        ("tool = 1", "tool: is missing"),
        ('[tool]\nname = "x"', "command: is missing, as is [session]: a manifest has"),
        ('[tool]\nname = "x"\nmode = "oneshot"', "command: is missing, as is [session]"),
        ('[tool]\nname = "x"\nmode = "browser"', "tool.mode: is browser, which can't be run"),
        ('[tool]\nname = "x"\ndispatch = "callback"', "tool.dispatch: is callback, which"),
        ('[tool]\nname = "x"\n[http]\nurl = "x"', "http: requests over HTTP can't be run"),
        ('[tool]\nname = "x"\n[mcp]\nserver = "x"', "mcp: tools of MCP servers can't be run"),
        (MINIMAL.replace('"session"', '"oneshot"'), "tool.mode: is oneshot, but there is a table"),
        ('[tool]\nname = "x"\nmode = "session"', "session: is missing: mode"),
        (MINIMAL.replace("[output]", ""), "output: is missing"),
    ],
)
def test_what_is_no_session_manifest(text: str, reason: str) -> None:
    if text == "\xff":
        with pytest.raises(ManifestError, match="is not TOML"):
            parse_manifest(b"\xff", "test.clad.toml")
        return
    assert refused(text).startswith(reason)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name = "calc"\n', "", "tool.name: is missing"),
        ('name = "calc"', 'name = ""', "tool.name: must match"),
        ('name = "calc"', 'name = "a.b"', "tool.name: must match"),
        ('name = "calc"', 'name = "a\\n"', "tool.name: must match"),
        ('name = "calc"', "name = 1", "tool.name: must be a valid string"),
        ('mode = "session"', 'mode = "daemon"', "tool.mode: must be"),
        ('mode = "session"', 'mode = "session"\nrisk_tier = "extreme"', "tool.risk_tier: must be"),
        ('mode = "session"', 'mode = "session"\nrisk = "low"', "tool.risk: is not a known field"),
        ('mode = "session"', 'mode = "session"\ndispatch = "callback"', "tool.dispatch: is"),
        ('mode = "session"', 'mode = "session"\ndispatch = "shell"', "tool.dispatch: must be"),
        ('mode = "session"', 'mode = "session"\nbinary = "psql"', "tool.binary: is psql, but"),
        (
            'mode = "session"',
            'mode = "session"\nhuman_approval = 1',
            "tool.human_approval: must be a valid boolean",
        ),
        ('startup_command = "bc -q"\n', "", "session.startup_command: is missing"),
        ('"bc -q"', '""', "session.startup_command: must have"),
        ('"bc -q"', '"  "', "session.startup_command: is empty"),
        ('"bc -q"', '"bc \'q"', "session.startup_command: can't be split"),
        ('"bc -q"', '"bc; id"', "session.startup_command: ; may not be in it"),
        ('"bc -q"', '"bc | id"', "session.startup_command: | may not"),
        ('"bc -q"', '"bc & id"', "session.startup_command: & may not"),
        ('"bc -q"', '"bc `id`"', "session.startup_command: ` may not"),
        ('"bc -q"', '"bc $HOME"', "session.startup_command: $ may not"),
        ('"bc -q"', "\"bc 'a\\nb'\"", "session.startup_command: \\n may not"),
        ('ready_pattern = "^> $"\n', "", "session.ready_pattern: is missing"),
        ('"^> $"', '""', "session.ready_pattern: must have"),
        ('"^> $"', '"["', "session.ready_pattern: does not compile"),
        ('"^> $"', '"^$"', "session.ready_pattern: matches the empty string"),
        ('"^> $"', '".*"', "session.ready_pattern: matches the empty string"),
        ('"^> $"', '"(?=>)> "', "session.ready_pattern: look-around is not supported"),
        ("[output]", '[output]\nformat = "json"', "output.format: must be"),
        ("[output]", "[output]\nenvelope = false", "output.envelope: must be"),
        ("[output]", "[output.schema]\ntype = 'nothing'", "output.schema: type: "),
        ("[output]", "[output.schema]\ntype = 'array'", "output.schema: type must be object"),
        ("[output]", "[output.schema]\n'$ref' = '#'", "output.schema: $ref is not supported"),
        (
            "[output]",
            "[output.schema]\ntype = 'object'\nrequired = ['rows']",
            "output.schema: required: results have no rows",
        ),
        (
            "[output]",
            "[output.schema]\ntype = 'object'\n"
            "[output.schema.properties.output]\npattern = '(a+)+$'",
            "output.schema: pattern is not supported",
        ),
        (
            "[output]",
            "[output.schema]\ndefault = 2026-01-01",
            "output.schema: has a value",
        ),
        ('"^[0-9]+ [+] [0-9]+$"', "1", "session.commands.add.pattern: must be a valid string"),
        ('"^[0-9]+ [+] [0-9]+$"', '"("', "session.commands.add.pattern: does not compile"),
        ('pattern = "^[0-9]+ [+] [0-9]+$"', "", "session.commands.add.pattern: is missing"),
        ("commands.add", 'commands."a.b"', "session.commands.a.b: must match"),
        ("commands.add", 'commands."\u00e9"', "session.commands.\u00e9: must match"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, reason: str) -> None:
    assert old in MINIMAL
    assert refused(MINIMAL.replace(old, new)).startswith(reason)


@pytest.mark.parametrize(
    ("table", "line", "reason"),
    [
        ("session", "startup_timeout_seconds = 0", "session.startup_timeout_seconds: must be"),
        ("session", "idle_timeout_seconds = -1", "session.idle_timeout_seconds: must be"),
        ("session", "session_timeout_seconds = 1.5", "session.session_timeout_seconds: must be"),
        ("session", "max_interactions = 0", "session.max_interactions: must be greater"),
        ("session", "max_interactions = true", "session.max_interactions: must be a valid int"),
        ("session", 'max_interactions = "9"', "session.max_interactions: must be a valid int"),
        ("session", 'mounts = ["/run"]', "session.mounts.0: must match"),
        ("session", 'env = {LD_PRELOAD = "x"}', "session.env.LD_PRELOAD: variables of the dyn"),
        ("session", 'env = {"a=b" = "x"}', "session.env.a=b: must match"),
        ("session", 'env = {A = "\\u0000"}', "session.env.A: NUL"),
        ("session", 'confinement.read = ["lib"]', "session.confinement.read.0: must match"),
        ("session", 'confinement.read = ["/"]', "session.confinement.read.0: must match"),
        ("session", 'confinement.read = ["/usr/../etc"]', "session.confinement.read: /usr/../etc"),
        ("session", 'confinement.execute = ["/proc/1"]', "session.confinement.execute: /proc/1"),
        ("session", 'states = {"(" = "ready"}', 'session.states."(": does not compile'),
        ("session.interaction", "output_max_bytes = 0", "session.interaction.output_max_bytes:"),
        ("session.interaction", "output_wait_ms = 0", "session.interaction.output_wait_ms: must"),
        ("session.interaction", 'input_sanitize = ["all"]', "session.interaction.input_sanitize.0"),
        ("session.interaction", 'input_sanitize = "injection"', "session.interaction.input_sani"),
        ("session.interaction", 'line_terminator = ";"', "session.interaction.line_terminator:"),
        ("session.interaction", 'line_terminator = "\\u0003\\n"', "session.interaction.line_t"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(table: str, line: str, reason: str) -> None:
    place = "[session]\n" if table == "session" else "[output]\n"
    added = f"[session]\n{line}\n" if table == "session" else f"[{table}]\n{line}\n\n[output]\n"
    assert refused(MINIMAL.replace(place, added)).startswith(reason)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("args.n.type = 'integer'", "args.n: the command's pattern has no group (?P<n>"),
        ("args.x.type = 'date'", "args.x.type: must be"),
        ("args.x.type = 'enum'", "args.x.allowed: is missing: type enum needs it"),
        ("args.x.type = 'regex_match'", "args.x.pattern: is missing"),
        ("args.x = {type = 'integer', clamp = true}", "args.x.clamp: is not a known field"),
        ("args.x = {type = 'path', min = 1}", "args.x.min: does not go with type path"),
        ("args.x = {type = 'integer', schemes = ['a']}", "args.x.schemes: does not go with"),
        ("args.x = {type = 'integer', min = 2, max = 1}", "args.x.min: is more than max"),
        ("args.x = {type = 'integer', min = nan}", "args.x.min: must be a finite"),
        ("args.x = {type = 'string', pattern = '('}", "args.x.pattern: does not compile"),
    ],
)
def test_what_is_wrong_in_an_argument_is_named(argument: str, reason: str) -> None:
    text = MINIMAL.replace('[0-9]+ [+] [0-9]+$"', f'(?P<x>[0-9]+)$"\n{argument}')
    assert refused(text).startswith(f"session.commands.add.{reason}")


def test_a_state_must_be_one_of_the_output_schema() -> None:
    schema = (
        "[output.schema]\ntype = 'object'\n"
        "[output.schema.properties.session_state]\nenum = ['ready', 'error']\n"
    )
    text = MINIMAL.replace("[output]", schema)
    assert parse(text).declared_states == ("ready", "error")
    by_prompt = text.replace("[session]\n", "[session]\nstates = {'x' = 'busy'}\n")
    assert refused(by_prompt).startswith('session.states."x": busy is not in the enum')
    by_command = text.replace("\npattern =", "\nstate = 'busy'\npattern =")
    assert refused(by_command).startswith("session.commands.add.state: busy is not in the enum")


def test_the_whole_tool_may_need_approval() -> None:
    text = MINIMAL.replace('mode = "session"', 'mode = "session"\nhuman_approval = true')
    assert parse(text).commands["add"].human_approval


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.clad.toml"
    with pytest.raises(ManifestError, match=r"x\.clad\.toml: No such file"):
        load_manifest(path)
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ManifestError, match=f"has more than {MAX_BYTES} bytes"):
        load_manifest(path)
    path.write_text("x = " + "[" * 100_000)
    with pytest.raises(ManifestError, match="is not TOML"):
        load_manifest(path)
