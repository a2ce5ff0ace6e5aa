"""Files of templates, their errors, and what a request with a template asks for."""

from pathlib import Path

import pytest

from orchestrator.ground.config_error import BrokenFilesError, ConfigError
from orchestrator.ground.errors import NotFoundError, ValidationError
from orchestrator.operate.templates.request import preparing, with_template
from orchestrator.rules.policy.levels import load_levels
from orchestrator.rules.templates.template import Template
from orchestrator.rules.templates.template_file import read_template_file
from orchestrator.rules.templates.template_files import TemplateFiles
from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms

LEVELS = load_levels(None)
WHOLE = """
description = "A page with its tests"
image = "paddock/sandbox:latest"
permission_level = "high"
idle_timeout = 600
wall_timeout = 7200
tools = ["psql"]
policy = "SAFE_EDIT"
setup = ["mkdir build", "make | tail"]
warm = 3

[env]
TZ = "UTC"

[limits]
memory_bytes = 134_217_728

[budget]
commands = 100

[egress]
allow = [{host = "example.org"}]

[files]
"src/index.html" = "<p>hello</p>"
"notes.txt" = "é"
"""


def read(tmp_path: Path, text: str, name: str = "website") -> Template:
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return read_template_file(path)


def test_a_file_with_everything(tmp_path: Path) -> None:
    template = read(tmp_path, WHOLE)
    assert template.name == "website"
    assert template.files == {"src/index.html": "<p>hello</p>", "notes.txt": "é"}
    assert template.setup == ("mkdir build", "make | tail")
    assert (template.permission_level, template.policy) == ("high", "SAFE_EDIT")
    assert (template.env, template.limits) == ({"TZ": "UTC"}, {"memory_bytes": 134_217_728})
    assert (template.budget, template.tools) == ({"commands": 100}, ("psql",))
    assert template.warm == 3
    assert template.egress is not None
    assert template.egress["allow"][0]["host"] == "example.org"


def test_an_empty_file_is_a_template_of_defaults(tmp_path: Path) -> None:
    template = read(tmp_path, "")
    assert template == Template("website", template.sha256)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lvel = 1", ":1: lvel: is not a known field"),
        ("\nsetup = [1]", ":2: setup.0: must be a valid string"),
        ('setup = [""]', ":1: setup.0: must have at least 1 character"),
        ('[files]\n"/etc/passwd" = ""', "must be relative to the workspace"),
        ('[files]\n"a/../b" = ""', "must be relative to the workspace"),
        ('[files]\n"a//b" = ""', "must be relative to the workspace"),
        ('[files]\n"a" = 1', ":2: files.a: must be a valid string"),
        ('[env]\n"A B" = ""', "must match"),
        ("[limits]\ncores = 1", ":2: limits.cores: is not a known field"),
        ("[budget]\ncommands = 0", ":2: budget.commands: must be greater"),
        ("warm = -1", ":1: warm: must be greater"),
        ("warm = 101", ":1: warm: must be less"),
        ("idle_timeout = 0", ":1: idle_timeout: must be greater"),
        ('permission_level = "High"', ":1: permission_level: must match"),
        ('[egress]\nallow = [{host = "a b"}]', ": egress"),
        ("setup = ", ":1: "),
        ('secrets = {A = "b"}', ":1: secrets: is not a known field"),
    ],
)
def test_an_error_names_the_file_the_line_and_the_field(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/website.toml:"), refused.value
    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["Website", "_a", "a" * 65, "a b"])
def test_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a template's name begins"):
        read(tmp_path, "", name)


def test_the_digest_is_of_the_file_the_image_and_the_level(tmp_path: Path) -> None:
    template = read(tmp_path, WHOLE)
    same = read(tmp_path, WHOLE).digest("sha256:1", "a")
    digests = {
        template.digest("sha256:1", "a"),
        template.digest("sha256:2", "a"),
        template.digest("sha256:1", "b"),
        read(tmp_path, WHOLE + "# other\n").digest("sha256:1", "a"),
    }
    assert len(digests) == 4
    assert same in digests


def test_a_broken_file_leaves_its_last_version_in_force(tmp_path: Path) -> None:
    read(tmp_path, WHOLE)
    files = TemplateFiles(tmp_path)
    (tmp_path / "website.toml").write_text("x = 1")
    (tmp_path / "other.toml").write_text("")
    (tmp_path / ".draft.toml").write_text("x")
    with pytest.raises(BrokenFilesError) as broken:
        files.reading(tmp_path)
    broken.value.replace()
    assert sorted(files) == ["other", "website"]
    assert files.asked("website").setup
    (tmp_path / "website.toml").unlink()
    files.reading(tmp_path)()
    assert list(files) == ["other"]
    with pytest.raises(NotFoundError):
        files.found("website")
    with pytest.raises(ValidationError, match="the operator has other") as refused:
        files.asked("website")
    assert refused.value.fields["field"] == "template"


def test_members_of_the_request_win(tmp_path: Path) -> None:
    template = read(tmp_path, WHOLE)
    untouched = with_template(template, NewSession(id="a"), LEVELS["high"])
    assert (untouched.id, untouched.permission_level) == ("a", "high")
    assert untouched.terms == Terms(
        image="paddock/sandbox:latest",
        env={"TZ": "UTC"},
        limits={"memory_bytes": 134_217_728},
        idle_timeout=600,
        wall_timeout=7200,
        tools=("psql",),
    )
    assert (untouched.budget, untouched.policy) == ({"commands": 100}, "SAFE_EDIT")
    assert untouched.egress is None  # high has an open network
    assert with_template(template, NewSession(), LEVELS["medium"]).egress == template.egress
    terms = Terms(
        image="other:1",
        labels={"a": "b"},
        env={"TZ": "CET", "A": "1"},
        limits={"pids": 20},
        idle_timeout=1,
        wall_timeout=2,
        tools=(),
    )
    asked = NewSession(
        permission_level="high",
        terms=terms,
        budget={"commands": 1, "tokens": 2},
        egress={"deny": []},
        policy="SAFE_WORK",
    )
    won = with_template(template, asked, LEVELS["high"])
    limits = {"memory_bytes": 134_217_728, "pids": 20}
    assert won.permission_level == "high"
    assert won.terms.env == {"TZ": "CET", "A": "1"}
    assert won.terms.limits == limits
    assert (won.terms.image, won.terms.tools, won.terms.labels) == ("other:1", (), {"a": "b"})
    assert (won.terms.idle_timeout, won.terms.wall_timeout) == (1, 2)
    assert (won.budget, won.policy) == ({"commands": 1, "tokens": 2}, "SAFE_WORK")
    assert won.egress == {"deny": []}


def test_a_secret_takes_the_place_of_a_variable(tmp_path: Path) -> None:
    template = read(tmp_path, '[env]\nTOKEN = "none"\nTZ = "UTC"')
    merged = with_template(template, NewSession(secrets={"TOKEN": "tok_2b1f9c07"}), LEVELS["high"])
    assert merged.terms.env == {"TZ": "UTC"}


def test_what_the_level_does_not_permit_is_left_out(tmp_path: Path) -> None:
    text = '[env]\nTZ = "UTC"\nCOLOUR = "green"\n[limits]\npids = 20\nmemory_bytes = 4_294_967_296'
    low = with_template(read(tmp_path, text), NewSession(), LEVELS["low"])
    most = LEVELS["low"].limits.memory_bytes
    assert low.terms.env == {"TZ": "UTC"}
    assert low.terms.limits == {"pids": 20, "memory_bytes": most}


def test_a_preparation_has_no_budget_tools_or_policy(tmp_path: Path) -> None:
    request = preparing(read(tmp_path, WHOLE), "high", "image:1", 60)
    assert (request.budget, request.policy, request.terms.tools) == ({}, None, None)
    assert (request.terms.image, request.terms.wall_timeout) == ("image:1", 60)
    assert request.terms.labels == {"template": "website"}
