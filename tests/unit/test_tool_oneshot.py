"""Oneshot tools: words, types, gates, and invalid manifests."""

import ipaddress

import pytest

from orchestrator.rules.tools.advice import advice
from orchestrator.rules.tools.catalog import parse_tool
from orchestrator.rules.tools.gates import Setting
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.manifest_reader import ManifestError
from orchestrator.rules.tools.oneshot import Oneshot, Run, argv, refusal, writes_file
from orchestrator.rules.tools.scope import Scope
from tests.support.manifests import MINIMAL

SCAN = r"""
[tool]
name = "scan"
binary = "nmap"
timeout_seconds = 600
risk_tier = "low"

[tool.evidence]
output_dir = "{evidence_dir}/{scan_id}-nmap"
capture = true

[args.target]
position = 1
type = "scope_target"
block_internal = true

[args.scan_type]
position = 2
type = "enum"
allowed = ["ping", "service"]

[args.extra]
required = false
type = "string"
sanitize = ["injection"]
default = ""

[command]
template = "nmap {_scan_flags} --max-rate {max_rate} -oX '%{{out}}' {extra} {target}"

[command.defaults]
max_rate = 1000

[command.mappings.scan_type]
ping = "-sn -PE"
service = "-sT -sV --version-intensity 5"

[output]
format = "xml"
parser = "builtin:xml"
envelope = true
"""
FETCH = """
[tool]
name = "fetch"
binary = "curl"

[args.url]
type = "url"
schemes = ["http", "https"]
scope_check = true

[args.method]
required = false
type = "enum"
allowed = ["GET", "HEAD"]
default = "GET"

[args.headers]
required = false
type = "string"
default = ""

[command]
template = "curl -s -X {method} {_header_flags} {url}"

[command.conditionals]
header_flags = { when = "headers != ''", template = "-H 'X: {headers}'" }

[output]
"""
SCOPE = Scope(networks=(ipaddress.ip_network("10.0.0.0/8"),), domains=("api.example.com",))


def read(text: str) -> Oneshot:
    tool = parse_tool(text.encode(), "test.clad.toml")
    assert isinstance(tool, Oneshot)
    return tool


def why(text: str, tier: str = "high", **given: str) -> str | None:
    setting = Setting(SCOPE, tier, tier, "ready", 0, None, "agent")
    found = refusal(read(text), given, setting)
    return None if found is None else found.rule


def test_the_words_of_a_scan() -> None:
    given = {"target": "10.0.0.1", "scan_type": "ping"}
    assert why(SCAN, **given) is None
    assert argv(read(SCAN), given) == [
        *("nmap", "-sn", "-PE", "--max-rate", "1000", "-oX", "%{out}", "10.0.0.1")
    ]


def test_words_on_a_condition() -> None:
    given = {"url": "https://api.example.com/v1"}
    assert why(FETCH, **given) is None
    assert argv(read(FETCH), given) == ["curl", "-s", "-X", "GET", given["url"]]
    assert argv(read(FETCH), given | {"method": "", "headers": ""}) == argv(read(FETCH), given)
    given |= {"headers": "a b '{url}'"}
    words = argv(read(FETCH), given)
    assert words == ["curl", "-s", "-X", "GET", "-H", "X: a b '{url}'", given["url"]]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, "scope"),
        ({"target": "10.0.0.1"}, "argument"),
        ({"target": "8.8.8.8", "scan_type": "ping"}, "scope"),
        ({"target": "10.0.0.1", "scan_type": "syn"}, "argument"),
        ({"target": "10.0.0.1", "scan_type": "ping", "rate": "1"}, "argument"),
        ({"target": "10.0.0.1", "scan_type": "ping", "max_rate": "1"}, "argument"),
        ({"target": "10.0.0.1", "scan_type": "ping", "extra": "-oN /x"}, "argument"),
        ({"target": "10.0.0.1", "scan_type": "ping", "extra": "--script=x"}, "argument"),
        ({"target": "10.0.0.1", "scan_type": "ping", "extra": "a;b"}, "argument"),
        ({"target": "10.0.0.1", "scan_type": "ping", "extra": "a\x1bb"}, "argument"),
        ({"target": "10.0.0.1", "scan_type": "ping", "extra": "x" * 8193}, "argument"),
    ],
)
def test_arguments_are_held_to_their_types(given: dict[str, str], rule: str) -> None:
    assert why(SCAN, **given) == rule


def test_a_number_looks_like_no_option() -> None:
    head = SCAN.replace('type = "string"\nsanitize = ["injection"]', 'type = "integer"')
    given = {"target": "10.0.0.1", "scan_type": "ping"}
    assert why(head, **given, extra="5") is None
    assert why(head, **given, extra="-5") == "argument"
    below = head.replace('type = "integer"', 'type = "integer"\nmin = -9')
    assert why(below, **given, extra="-5") is None


def test_gates() -> None:
    given = {"target": "10.0.0.1", "scan_type": "ping"}
    assert why(SCAN.replace('"low"', '"high"'), "medium", **given) == "risk-tier"
    approved = SCAN.replace('"low"', '"low"\nhuman_approval = true')
    assert why(approved, **given) is None
    assert read(approved).human_approval
    assert read(SCAN.replace('"low"', '"critical"')).human_approval
    assert why(FETCH, url="https://evil.com/") == "scope"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{target}", "{host}", "command.template: there is nothing to fill {host}"),
        ("{target}", "{_evidence_dir}/x {target}", "template: there is no {_evidence_dir}"),
        ("{target}", "{_secret:token} {target}", "template: there is no {_secret:…}"),
        ("max_rate = 1000", '_output_file = "/x"', "command.defaults._output_file: is reserved"),
        ("[args.extra]", "[args._scan_id]", "args._scan_id: is reserved for the run"),
        ("template = ", "executor = 'scan.sh'\ntemplate = ", "command.executor: a script on the"),
        ("{_scan_flags}", "x{_scan_flags}", "there is nothing to fill {_scan_flags}"),
        ("nmap {_scan", "{extra} {_scan", "command.template: must begin with the program's name"),
        ('"nmap {_scan', '"sh nmap {_scan', "tool.binary: is nmap, but the command runs sh"),
        ('"-sn -PE"', '"-sn {port}"', "command.mappings.scan_type: there is nothing to fill"),
        ("mappings.scan_type", "mappings.kind", "command.mappings.kind: there is no such argument"),
        ('"scope_target"', '"hostname"', "args.target.type: "),
        ('default = ""', 'default = "a;b"', "args.extra.default: "),
        ("position = 1", "place = 1", "args.target.place: is not a known field"),
        ("-oX '", "-oX ", "command.template: can't be split into words"),
        ("[output]", "[outputs]", "output: is missing"),
    ],
)
def test_manifests_that_can_not_be_used(old: str, new: str, expected: str) -> None:
    assert old in SCAN
    with pytest.raises(ManifestError) as caught:
        read(SCAN.replace(old, new, 1))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "when",
    [
        "headers != '' and url",
        "headers",
        "headers != '' and",
        "and headers != ''",
        "headers != '' or or url == ''",
        "headers = ''",
        "headers > 1",
        "headers != '' andurl == ''",
        "headers != '' url == ''",
        "(headers != '')",
        "headers == None",
        "headers == 1e999",
    ],
)
def test_conditions_are_simple(when: str) -> None:
    with pytest.raises(ManifestError, match=r"header_flags\.when: must be <argument>"):
        read(FETCH.replace("headers != ''", when))


PORTS = """
[tool]
name = "connect"

[args.port]
type = "integer"
required = false
default = 0

[args.user]
type = "string"
required = false
default = ""

[args.key]
type = "string"
required = false
default = ""

[args.fast]
type = "boolean"
required = false
default = false

[command]
template = "ssh {_flags} host"

[command.conditionals]
flags = { when = "WHEN", template = "-x" }

[output]
"""


@pytest.mark.parametrize(
    ("when", "given", "met"),
    [
        ("port != 0", {}, False),
        ("port != 0", {"port": "22"}, True),
        ("port == 22", {"port": "022"}, True),
        ("port == 22.0", {"port": "22"}, True),
        ("fast == true", {}, False),
        ("fast == true", {"fast": "true"}, True),
        ("fast != true", {}, True),
        ("user != '' and key == ''", {"user": "a"}, True),
        ("user != '' and key == ''", {"user": "a", "key": "k"}, False),
        ("user != '' and key == ''", {}, False),
        ("user == 'a' or key == 'k' and fast == true", {"user": "a"}, True),
        ("user == 'a' or key == 'k' and fast == true", {"key": "k"}, False),
        ("user == 'a' or key == 'k' and fast == true", {"key": "k", "fast": "true"}, True),
        ("user == 'x and y'", {"user": "x and y"}, True),
        # A missing value is neither a number nor different from one.
        ("user == 0", {}, False),
        ("user != 0", {}, False),
        ("user != 0", {"user": "nan"}, True),
    ],
)
def test_conditions(when: str, given: dict[str, str], met: bool) -> None:
    words = argv(read(PORTS.replace("WHEN", when)), given)
    assert words == ["ssh", *(["-x"] if met else []), "host"]


def test_conditions_name_arguments() -> None:
    with pytest.raises(ManifestError, match="there is no argument header"):
        read(FETCH.replace("headers != ''", "header != ''"))


def test_sessions_are_read_as_before() -> None:
    assert isinstance(parse_tool(MINIMAL.encode(), "x"), Manifest)


def test_what_a_oneshot_does_not_do_is_said() -> None:
    assert [sentence.partition(":")[0] for sentence in advice(read(SCAN))] == [
        "output.parser",
    ]
    assert list(advice(read(FETCH))) == []


def test_files_are_bound_in_sessions_only() -> None:
    bound = FETCH.replace("[args.method]", '[args.file]\ntype = "path"\nbind = true\n[args.method]')
    with pytest.raises(ManifestError, match=r"args\.file\.bind: is for tools of sessions"):
        read(bound)


def test_tools_that_look_names_up() -> None:
    """ToolClad's simplest example: a target, and a kind with a default."""
    lookup = """
[tool]
name = "lookup"
[args.target]
type = "scope_target"
[args.kind]
type = "enum"
required = false
allowed = ["A", "MX"]
default = "A"
[command]
template = "dig +short {target} {kind}"
[output]
"""
    tool = read(lookup)
    assert argv(tool, {"target": "api.example.com"}) == ["dig", "+short", "api.example.com", "A"]
    assert why(lookup, target="api.example.com", kind="ANY") == "argument"
    assert why(lookup, target="evil.com") == "scope"


BRUTE = """
[tool]
name = "brute"
binary = "hydra"
[args.target]
type = "scope_target"
[args.port]
type = "port"
required = false
default = 0
[args.users]
type = "credential_file"
required = false
[command]
template = "hydra {_conditional_flags} {target}"
[command.conditionals]
port = { when = "port != 0", template = "-s {port}" }
users = { when = "users != ''", template = "-L {users}" }
[output]
"""


def test_the_words_of_all_conditions_are_in_one_place() -> None:
    given = {"target": "10.0.0.1"}
    assert why(BRUTE, **given) is None
    assert argv(read(BRUTE), given) == ["hydra", "10.0.0.1"]
    given |= {"users": "lists/users", "port": "22"}
    assert why(BRUTE, **given) is None
    words = ["hydra", "-s", "22", "-L", "lists/users", "10.0.0.1"]
    assert argv(read(BRUTE), given) == words


def test_no_port_can_be_a_default_only() -> None:
    assert why(BRUTE, target="10.0.0.1", port="0") == "argument"
    with pytest.raises(ManifestError, match=r"args\.port\.default: "):
        read(BRUTE.replace("default = 0", "default = 70000"))
    with pytest.raises(ManifestError, match=r"args\.port\.default: "):
        read(BRUTE.replace("required = false\ndefault = 0", "default = 0"))


def test_a_run_has_a_file_of_its_own() -> None:
    text = SCAN.replace("-oX '%{{out}}'", "-oX {_output_file} --id=x-{_scan_id}")
    tool = read(text)
    given = {"target": "10.0.0.1", "scan_type": "ping"}
    assert writes_file(tool)
    assert not writes_file(read(SCAN))
    words = argv(tool, given, Run("7f", "/workspace/.paddock-7f/output.xml"))
    assert words[5:8] == ["-oX", "/workspace/.paddock-7f/output.xml", "--id=x-7f"]
    assert argv(tool, given)[5:8] == ["-oX", "{_output_file}", "--id=x-{_scan_id}"]
    for name in ("_output_file", "_scan_id"):
        assert why(text, **given, **{name: "x"}) == "argument"


@pytest.mark.parametrize(
    "text",
    [
        FETCH.replace("-H 'X: {headers}'", "-o {_output_file}"),
        SCAN.replace('"-sn -PE"', '"-sn -oX {_output_file}"'),
    ],
)
def test_its_file_may_be_named_in_flags(text: str) -> None:
    assert writes_file(read(text))


def test_what_is_kept() -> None:
    tool = read(SCAN)
    assert (tool.format, tool.capture, tool.evidence_name) == ("xml", True, "{session_id}-nmap")
    assert read(SCAN.replace("capture = true", "capture = false")).capture is False
    assert read(FETCH).capture is None
