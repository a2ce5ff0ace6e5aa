"""Commands that act on this machine, the help, and the cost of starting."""

import json
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from docker.errors import DockerException

import images.foreign
import images.inventory
import orchestrator.operate.checks.doctor
from images import base, builder
from images.errors import BuildError
from images.inventory import Presence
from images.recipes import Recipe
from orchestrator.ground.check import Check, CheckStatus
from orchestrator.ground.errors import ValidationError
from orchestrator.rules.access.key_entries import load_keys
from orchestrator.rules.access.keys import Role, digest
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.images.image_facts import VERSION, ImageFacts
from orchestrator.settings.image_list import read_images
from orchestrator.settings.settings import Settings
from paddock.cli.exits import MEANINGS
from paddock.cli.levels import PACKAGED, complete_level
from paddock.cli.program import build
from paddock.contract.words import LEVEL_NAMES
from tests.support.cli import run
from tests.support.documents import documents
from tests.support.limits import PROGRAM_SECONDS
from tests.support.sources import modules, source

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PADDOCK_CONFIG_FILE", "PADDOCK_KEYS_FILE", "PADDOCK_URL", "PADDOCK_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path))
    return tmp_path


def commands(
    group: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, by its path of subcommand names."""
    group = group or build()
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


# Keys


def test_a_key_is_made_listed_and_taken_back(state_dir: Path) -> None:
    limits = ("--max-sessions", "2", "--max-cpus", "1.5")
    made = run("keys", "create", "ci", *limits, "--json")
    assert made.status == 0, made.err
    secret = json.loads(made.out)["key"]
    file = state_dir / "keys.toml"
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    known = load_keys(Settings(state_dir=state_dir)).authenticate(secret)
    assert known is not None
    assert (known.name, known.role, known.limits.max_sessions) == ("ci", Role.OPERATOR, 2)
    shown = run("keys", "create", "boss", "--role", "admin")
    (line,) = (line for line in shown.out.splitlines() if line.startswith("key"))
    assert digest(line.split()[1]) in file.read_text()
    listed = run("keys", "list").out.splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["NAME", "ROLE"],
        ["ci", "operator"],
        ["boss", "admin"],
    ]
    assert [key["name"] for key in json.loads(run("keys", "list", "--json").out)] == ["ci", "boss"]
    assert secret not in run("keys", "list", "--json").out
    assert run("keys", "revoke", "ci").status == 0
    assert [key["name"] for key in tomllib.loads(file.read_text())["keys"]] == ["boss"]


def test_keys_with_bounds(state_dir: Path) -> None:
    assert run("keys", "create", "dash", "--role", "viewer", "--owner", "ci").status == 0
    viewer = ("--role", "viewer", "--all", "--expires", "30d")
    assert run("keys", "create", "board", *viewer).status == 0
    assert run("keys", "create", "scrape", "--role", "metrics").status == 0
    bounds = ("--max-level", "low", "--image", "a:1", "--image", "b:1", "--tool", "psql")
    times = ("--max-idle-timeout", "60", "--max-wall-timeout", "600")
    more = ("--max-workspaces", "4", "--max-workspace-bytes", "1048576", "--expires", "2999-01-31")
    assert run("keys", "create", "ci", *bounds, *times, *more).status == 0
    listed = {key["name"]: key for key in json.loads(run("keys", "list", "--json").out)}
    assert (listed["dash"]["owner"], listed["board"]["owner"]) == ("ci", None)
    left = datetime.fromisoformat(listed["board"]["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < left < timedelta(days=30)
    assert listed["scrape"]["role"] == "metrics"
    assert listed["ci"]["max_level"] == "low"
    assert (listed["ci"]["images"], listed["ci"]["tools"]) == (["a:1", "b:1"], ["psql"])
    assert (listed["ci"]["max_idle_timeout"], listed["ci"]["max_wall_timeout"]) == (60, 600)
    assert (listed["ci"]["max_workspaces"], listed["ci"]["max_workspace_bytes"]) == (4, 1048576)
    assert listed["ci"]["expires_at"] == "2999-01-31T00:00:00+00:00"
    table = run("keys", "list").out
    assert "reads ci" in table
    assert "up to low, images a:1 b:1, tools psql, idle up to 60 s, living up to 600 s" in table
    assert "2999-01-31 00:00" in table


@pytest.mark.parametrize(
    "arguments",
    [
        ("--role", "root"),
        ("--role", "handle"),
        ("--role", "viewer"),
        ("--role", "viewer", "--all", "--owner", "ci"),
        ("--all",),
        ("--owner", "ci"),
        ("--role", "viewer", "--owner", "Not a name"),
        ("--role", "metrics", "--max-sessions", "1"),
        ("--role", "admin", "--max-level", "low"),
        ("--max-level", "Low"),
        ("--image", "-x"),
        ("--expires", "soon"),
        ("--expires", "0d"),
        ("--expires", "2020-01-31"),
        ("--expires", "9999999d"),
    ],
)
def test_keys_with_bounds_that_can_not_be(state_dir: Path, arguments: tuple[str, ...]) -> None:
    ended = run("keys", "create", "x", *arguments)
    assert (ended.status, bool(ended.line)) == (2, True)
    assert json.loads(run("keys", "list", "--json").out) == []


def test_the_admin_key_is_rotated(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_keys(Settings(state_dir=state_dir))
    file = state_dir / "admin.key"
    before = file.read_text()
    ended = run("keys", "rotate-admin")
    assert (ended.status, ended.out) == (0, "")
    after = file.read_text()
    assert after != before
    assert after.strip() not in ended.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(state_dir.iterdir()) == [file]
    monkeypatch.setenv("PADDOCK_ADMIN_KEY", "the-admin-key-of-a-setting")
    refused = run("keys", "rotate-admin")
    assert (refused.status, "PADDOCK_ADMIN_KEY" in refused.line) == (2, True)
    assert file.read_text() == after


def test_the_admin_key_of_a_cluster_is_each_node_s(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_CLUSTER", "blue")
    refused = run("keys", "rotate-admin")
    assert (refused.status, "paddock keys create NAME --role admin" in refused.line) == (2, True)
    assert not (state_dir / "admin.key").exists()


def test_keys_that_can_not_be() -> None:
    assert run("keys", "create", "ci").status == 0
    for arguments in (("create", "ci"), ("create", "NO"), ("revoke", "absent")):
        ended = run("keys", *arguments)
        assert (ended.status, bool(ended.line)) == (2, True)
    none = run("keys", "create", "x", "--max-sessions", "-1")
    assert (none.status, "--max-sessions" in none.line) == (2, True)


# Configuration


@pytest.mark.parametrize(
    "command", [("serve",), ("doctor",), ("keys", "list"), ("sessions", "list")]
)
def test_configuration_that_can_not_be_read(
    command: tuple[str, ...], state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_CONFIG_FILE", str(state_dir / "absent.toml"))
    ended = run(*command)
    assert ended.status == 2
    assert "absent.toml: No such file" in ended.line
    (state_dir / "absent.toml").write_text("listen = [")
    assert (run(*command).status, "absent.toml" in run(*command).line) == (2, True)


# Doctor


def doctor_says(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    async def run_checks(_settings: Settings, **_options: object) -> list[Check]:
        return list(checks)

    monkeypatch.setattr(orchestrator.operate.checks.doctor, "run_checks", run_checks)


FINE = Check("engine", CheckStatus.OK, "version 20.10", None)
UNSURE = Check("disk", CheckStatus.WARNING, "1 GiB free", "free some space")
WRONG = Check("image", CheckStatus.FAILURE, "is missing", "run `make image`")


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor_says(monkeypatch, FINE, UNSURE)
    ended = run("doctor")
    assert (ended.status, "free some space" in ended.out) == (0, True)
    doctor_says(monkeypatch, FINE, WRONG)
    ended = run("doctor")
    assert (ended.status, "make image" in ended.out) == (1, True)
    ended = run("doctor", "--json")
    assert ended.status == 1
    said = json.loads(ended.out)
    assert set(said.pop("build")) == {"version", "commit", "date"}
    assert said == {
        "ok": False,
        "checks": [
            {"name": "engine", "status": "ok", "detail": "version 20.10", "remedy": None},
            {
                "name": "image",
                "status": "failure",
                "detail": "is missing",
                "remedy": "run `make image`",
            },
        ],
    }


# Images


def test_images(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Presence(
        "sandbox",
        "paddock/sandbox:latest",
        "What sandboxes are made of.",
        "stale",
        "sha256:0123456789abcdef",
        2**20,
        "2026-01-01T00:00:00Z",
    )
    absent = Presence("control-plane", "paddock/control-plane:latest", "The server.", "missing")
    monkeypatch.setattr(images.inventory, "inventory", lambda *_: [here, absent])
    listed = run("images", "list").out.splitlines()
    assert listed[1].split()[:4] == ["sandbox", "paddock/sandbox:latest", "stale", "default"]
    assert listed[2].split()[2] == "missing"
    assert json.loads(run("images", "list", "--json").out)[1]["id"] is None
    built = builder.Result("paddock/sandbox:latest", "sha256:1", True)
    monkeypatch.setattr(builder, "build", lambda *_args, **_options: built)
    assert run("images", "build").out == "paddock/sandbox:latest built\n"
    assert json.loads(run("images", "build", "--json").out)["built"] is True
    for command in ("build", "show"):
        ended = run("images", command, "nothing")
        assert (ended.status, "sandbox" in ended.line, "dev" in ended.line) == (2, True, True)


def test_the_list_of_images_is_edited(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: dict[str, str] = {}
    monkeypatch.setattr(images.inventory, "why_not_usable", problems.get)
    monkeypatch.setattr(images.inventory, "look_up", _missing)
    monkeypatch.setattr(images.inventory, "_inspected", lambda *_: (None, None))
    monkeypatch.setattr(images.foreign, "bring", lambda *_: None)
    monkeypatch.setattr(images.foreign, "is_ours", lambda _name: True)
    monkeypatch.setenv("PADDOCK_IMAGES", "fixed:1")
    path = state_dir / "images.toml"
    assert run("images", "add", "dev").status == 0
    assert run("images", "add", "example.org/own:3").status == 0
    assert "already" in run("images", "add", "own").err
    assert read_images(path) == ("paddock/dev:latest", "example.org/own:3")
    shown = {each["image"]: each for each in json.loads(run("images", "list", "--json").out)}
    assert [name for name, each in shown.items() if each["listed"]] == [
        *("paddock/sandbox:latest", "paddock/dev:latest", "fixed:1", "example.org/own:3")
    ]
    shown_own = json.loads(run("images", "show", "own", "--json").out)
    assert (shown_own["image"], shown_own["state"]) == ("example.org/own:3", "missing")
    assert run("images", "remove", "own").status == 0
    assert read_images(path) == ("paddock/dev:latest",)
    problems["stale:1"] = "rebuild it with `docker build`"
    for command, name, status, said in (
        ("add", "stale:1", 1, "docker build"),
        ("add", "not an image", 2, "is not an image name"),
        ("remove", "own", 5, "is not on the list"),
        ("remove", "fixed", 2, "PADDOCK_IMAGES"),
        ("remove", "sandbox", 2, "PADDOCK_IMAGE"),
    ):
        ended = run("images", command, name)
        assert (ended.status, said in ended.line) == (status, True), ended
    assert read_images(path) == ("paddock/dev:latest",)
    path.write_text("imagse = []")
    assert "imagse" in run("images", "add", "node").line


def test_an_image_without_an_agent_is_checked(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []
    problem: list[str] = []

    async def check(name: str, *_: object) -> ImageFacts:
        if problem:
            raise ValidationError(problem[0])
        return _facts(name)

    monkeypatch.setattr(
        images.foreign, "bring", lambda name, ref, _report: asked.append((name, ref))
    )
    monkeypatch.setattr(images.foreign, "is_ours", lambda _name: False)
    monkeypatch.setattr(images.foreign, "check", check)
    ended = run("images", "add", "tool:1", "example.org/team/tool:1")
    assert ended.status == 0
    assert asked == [("tool:1", "example.org/team/tool:1")]
    assert "none of the programs of level low" in ended.out
    assert re.search(r"^high +works$", ended.out, re.MULTILINE)
    assert "no python3" in ended.err
    assert read_images(state_dir / "images.toml") == ("tool:1",)
    # It is checked again, also if it is on the list.
    assert run("images", "add", "tool:1").status == 0
    assert len(asked) == 2
    problem.append("/opt is no directory")
    ended = run("images", "add", "other:1")
    assert (ended.status, "/opt is no directory" in ended.line) == (1, True)
    assert read_images(state_dir / "images.toml") == ("tool:1",)
    CheckedImages(state_dir).keep(_facts("tool:1"))
    assert run("images", "remove", "tool:1").status == 0
    assert CheckedImages(state_dir).named("tool:1") == []
    monkeypatch.setenv("PADDOCK_IMAGE", "own:1")
    assert "must be one of Paddock's" in run("images", "add", "own:1").line


def _facts(name: str) -> ImageFacts:
    return ImageFacts(
        version=VERSION,
        id="sha256:1",
        names=[name],
        architecture="",
        size=1,
        environment={},
        volumes=[],
        programs={},
        broken={},
        setuid=[],
        setuid_count=0,
        entries=1,
        whole=True,
    )


def _missing(recipe: Recipe) -> Presence:
    return Presence(recipe.name, recipe.image, recipe.description, "missing")


def test_an_image_with_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        images.inventory,
        "look_up",
        _missing,
    )
    shown = run("images", "show", "python")
    assert "python3-venv" in shown.out
    assert "`paddock images build python`" in shown.err
    assert "python3-venv" in json.loads(run("images", "show", "python", "--json").out)["packages"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "packages"),
        ("packages = []", "packages"),
        ('packages = ["a b"]', "packages.0"),
        ('packages = ["$(id)"]', "packages.0"),
        ('packages = ["-y"]', "packages.0"),
        ("packages = 5", "packages"),
        ('packages = ["jq"]\nsource = "x"', "source"),
        ('packages = ["jq"]\ndescription = "\\u001b"', "description"),
        ("packages = [", "my.toml"),
        ("#" * 70_000, "65536"),
    ],
)
def test_a_faulty_list_of_packages(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(text)
    ended = run("images", "build", str(tmp_path / "my.toml"))
    assert (ended.status, named in ended.line, "my.toml" in ended.line) == (1, True, True)


@pytest.mark.parametrize("name", ["sandbox.toml", "dev.toml", "Mine.toml", ".toml", "absent.toml"])
def test_a_list_of_packages_with_a_name_that_can_t_be(name: str, tmp_path: Path) -> None:
    if "absent" not in name:
        (tmp_path / name).write_text('packages = ["jq"]')
    ended = run("images", "build", str(tmp_path / name))
    assert (ended.status, name in ended.line) == (1, True)


def test_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_timeout: int) -> None:
        raise DockerException("nobody answers")

    monkeypatch.setattr(base, "connect", connect)
    for command in ("list", "build"):
        ended = run("images", command)
        assert (ended.status, "paddock doctor" in ended.line) == (1, True)


def test_a_build_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def build_image(*_args: object, **_options: object) -> None:
        raise BuildError("no base image")

    monkeypatch.setattr(builder, "build", build_image)
    assert "no base image" in run("images", "build").line


# OpenAPI


def test_the_document_is_printed_or_written(tmp_path: Path) -> None:
    printed = run("openapi")
    assert json.loads(printed.out)["openapi"].startswith("3.1")
    file = tmp_path / "openapi.json"
    written = run("openapi", "-o", str(file))
    assert (written.status, written.out, file.read_text()) == (0, "", printed.out)
    assert run("openapi", "-o", "/absent/openapi.json").status == 1


# Help


def test_every_command_has_help_with_an_example() -> None:
    found = dict(commands())
    assert len(found) > 25
    for words, command in found.items():
        assert command.help, words
        assert f"paddock {' '.join(words)}" in command.epilog, words
        shown = run(*words, "--help")
        assert (shown.status, shown.err) == (0, ""), words
        assert "Example:" in shown.out, words


def test_examples_are_taken_as_they_are() -> None:
    """Every example uses only options and arguments that the command has."""
    for words, command in commands():
        example = shlex.split(command.epilog.removeprefix("Example: `").removesuffix("`"))
        # What comes before is the shell's: input for it, or what takes its output.
        begin = next(at for at, word in enumerate(example) if word.endswith("paddock"))
        rest = example[begin + 1 + len(words) :]
        if "--" in rest and words != ("exec",):
            rest = rest[: rest.index("--") + 2]
        command.make_context("paddock", rest).close()


@pytest.mark.parametrize(
    "words",
    [
        ("turn", "web-1", "--operations"),
        ("send", "web-1", "hello", "--tools"),
        ("sessions", "create", "--policy"),
        ("run", "--pack"),
    ],
)
def test_a_file_that_is_nested_too_deep(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    last = ("--", "ls") if words[0] == "run" else ()
    shown = run(*words, str(file), "--url", "http://127.0.0.1:9", "--key", "k" * 16, *last)
    assert (shown.status, shown.out) == (2, "")
    assert "deep.json" in shown.err


# The words of a command in a message or a page, as far as they are the program's own.
_NAMED = re.compile(r"`paddock((?: [a-z][a-z-]*(?=[ `]|$))+)")


def test_messages_and_pages_name_commands_that_are_there() -> None:
    program = build()
    packages = ("paddock", "api", "orchestrator", "images", "scripts")
    texts = {
        text for package in packages for path in modules(package) for text in source(path).texts
    }
    texts |= {path.read_text() for path in documents()}
    named = {words for text in texts for words in _NAMED.findall(text)}
    assert len(named) > 25
    for words in named:
        group: Any = program
        for word in words.split():
            assert word in group.commands, f"`paddock{words}`"
            group = group.commands[word]
            if not hasattr(group, "commands"):
                break


@pytest.mark.parametrize("command", [(), ("sessions",), ("audit",)])
def test_no_command_shows_the_help(command: tuple[str, ...]) -> None:
    shown = run(*command)
    assert (shown.status, shown.err) == (2, "")
    assert "Usage: paddock" in shown.out


def test_the_help_tells_the_exit_statuses() -> None:
    shown = run("--help")
    assert shown.status == 0
    for text in ("no control plane answers", "refused by a policy", "128 + n"):
        assert text in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("run",),
        ("files", "ls"),
        ("run", "-e", "novalue", "ls"),
        ("sessions", "list", "--nonsense"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_KEY", "pdk_some-key-that-is-not-used")
    ended = run(*arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert "--help" in ended.line


def test_version() -> None:
    assert run("--version").out.startswith("paddock ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paddock", "sessions", "re"],
        env={
            "_PADDOCK_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": "paddock sessions re",
            "COMP_CWORD": "2",
            "_TYPER_COMPLETE_ARGS": "paddock sessions re",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    assert "resume" in done.stdout, done


def test_levels_are_completed_without_a_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PADDOCK_KEY", "pdk_some-key-that-is-not-used")
    assert complete_level("") == list(PACKAGED) == list(LEVEL_NAMES)
    assert complete_level("m") == ["medium"]
    monkeypatch.setenv("PADDOCK_URL", "nonsense")
    assert complete_level("hi") == ["high"]


def test_starting_loads_nothing_heavy() -> None:
    heavy = (
        *("aiohttp", "asyncio", "pydantic", "docker", "rich", "psutil", "orchestrator", "ssl"),
        *("paddock.client", "paddock.contract.base", "api.http", "cryptography", "sqlite3", "yarl"),
    )
    code = (
        "import sys; from paddock.cli.program import build; build(); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_failure_of_ours_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("orchestrator.settings.settings.load_settings", fail)
    ended = run("keys", "list")
    assert (ended.status, "PADDOCK_TRACEBACK=1" in ended.line) == (1, True)
    monkeypatch.setenv("PADDOCK_TRACEBACK", "1")
    assert "Traceback" in run("keys", "list").err


def test_the_document_has_every_command_and_status() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for words, _ in commands():
        assert f"paddock {' '.join(words)}" in text, words
    for status, meaning in MEANINGS.items():
        assert f"| {status.value} | {meaning} |" in text
