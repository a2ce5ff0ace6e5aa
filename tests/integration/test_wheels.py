"""The two published wheels work outside the clone and need nothing from it."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import docker
import pytest

from scripts.wheels import ROOT, build, stamp
from tests.support.leaks import NOTHING, left_behind
from tests.support.server import serving

SECONDS = 300
PACKAGES = ("paddock", "api", "gateway", "orchestrator", "sandbox_agent", "images")


class Installed(NamedTuple):
    """A virtual environment, and a project whose packages have the same names as Paddock's."""

    python: Path
    project: Path

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """The result of a command that runs in the project."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PADDOCK_", "PYTHON"))}
        return subprocess.run(
            command,
            cwd=self.project,
            env=clean | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def paddock(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The result of the installed `paddock`."""
        return self.run(self.python.with_name("paddock"), *arguments, **environment)


def install(directory: Path, *wheels: Path) -> Installed:
    """Installs the wheels and their dependencies into an empty environment."""
    project = directory / "project"
    (project / "api").mkdir(parents=True)
    (project / "api" / "__init__.py").write_text("NAME = 'theirs'\n")
    installed = Installed(directory / "venv" / "bin" / "python", project)
    python = f"--python={installed.python}"
    for step in (
        ("venv", f"--python={sys.executable}", str(directory / "venv")),
        ("pip", "install", python, *map(str, wheels)),
        ("pip", "check", python),
    ):
        done = installed.run(sys.executable, "-m", "uv", "--quiet", *step)
        assert done.returncode == 0, done.stdout + done.stderr
    return installed


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A temporary directory, because the installations are large."""
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def wheels(place: Path) -> tuple[Path, Path]:
    return build(place / "wheels")


@pytest.fixture(scope="module")
def client(place: Path, wheels: tuple[Path, Path]) -> Installed:
    return install(place / "client", wheels[0])


@pytest.fixture(scope="module")
def server(place: Path, wheels: tuple[Path, Path]) -> Installed:
    return install(place / "server", *wheels)


def test_every_file_is_in_one_of_them(wheels: tuple[Path, Path]) -> None:
    assert {path.suffix for path in wheels[0].parent.iterdir()} == {".whl"}
    packed = [set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels]
    assert not packed[0] & packed[1]
    for package in PACKAGES:
        there = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        # The agent's text for auditors is for those who read its source.
        there.discard("sandbox_agent/README.md")
        assert there
        assert there <= packed[package != "paddock"], package


def test_the_client_needs_no_more_than_it_declares(client: Installed) -> None:
    done = client.run(client.python, "-c", "from paddock import *; import api; print(api.NAME)")
    assert (done.stdout, done.stderr) == ("theirs\n", "")
    done = client.run(client.python, "-c", "from paddock import Paddock, PaddockSync")
    assert (done.returncode, done.stderr) == (0, "")
    done = client.run(client.python, "-c", _EVERY)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "paddock.integrations.deepagents deepagents",
        "paddock.integrations.inspect inspect_ai",
        "paddock.integrations.llm_sandbox llm_sandbox",
        "paddock.integrations.mini_swe_agent minisweagent",
        "paddock.integrations.openai_agents agents",
        "paddock.integrations.openai_shell agents",
        "paddock.integrations.inspect",
    ]
    for arguments in (["--help"], ["tools", "--help"], ["audit", "verify", "--help"]):
        done = client.paddock(*arguments)
        assert (done.returncode, done.stderr, "Usage" in done.stdout) == (0, "", True)
    said = client.paddock("--version").stdout
    number = client.run(client.python, "-c", _VERSIONS).stdout.split()[0]
    assert said.startswith(f"paddock {number} (commit {stamp().commit[:12]}")


# The integrations that miss their frameworks, and the one that Inspect finds by itself.
_EVERY = """
import importlib, pkgutil, paddock
from importlib.metadata import entry_points
for each in pkgutil.walk_packages(paddock.__path__, 'paddock.'):
    if each.name.endswith('__main__'):
        continue
    try:
        importlib.import_module(each.name)
    except ModuleNotFoundError as error:
        print(each.name, error.name)
print(*(each.value for each in entry_points(group='inspect_ai')))
"""
_VERSIONS = """
from importlib.metadata import distributions
print(*(each.version for each in distributions() if each.name.startswith("paddock")))
"""


@pytest.mark.parametrize(
    "command", ["serve", "doctor --json", "keys create ci", "images build", "tools check -x a.toml"]
)
def test_commands_of_the_server_say_what_they_need(client: Installed, command: str) -> None:
    """They do so even if a package with the server's name can be imported."""
    words = command.split()
    for done in (
        client.paddock(*words),
        client.run(client.python, "-m", "paddock", *words),
    ):
        assert (done.returncode, done.stdout) == (7, "")
        (line,) = done.stderr.splitlines()
        assert "needs the server" in line
        assert "paddock-server" in line


def test_the_client_says_that_it_must_be_told_where_and_with_what(client: Installed) -> None:
    for environment, wanted in (({}, "PADDOCK_URL"), ({"PADDOCK_URL": "http://x"}, "PADDOCK_KEY")):
        done = client.paddock("sessions", "list", **environment)
        assert (done.returncode, wanted in done.stderr) == (2, True), done.stderr


def test_a_server_that_can_not_be_loaded_is_one_line(server: Installed) -> None:
    """`-m` searches the working directory first, which has another package `api`."""
    done = server.run(server.python, "-m", "paddock", "doctor")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "can't be loaded: No module named 'api.cli'" in done.stderr


async def test_the_server_works_where_its_wheel_is_installed(
    server: Installed, client: Installed, tmp_path: Path
) -> None:
    """The image is built from the installation; both clients create a session and verify it."""
    assert len(set(server.run(server.python, "-c", _VERSIONS).stdout.split())) == 1
    image = f"paddock/sandbox:test-{secrets.token_hex(4)}"
    state, exported = tmp_path / "state", tmp_path / "web-1.jsonl"
    try:
        done = server.paddock("images", "build", "--tag", image)
        assert done.returncode == 0, done.stderr
        done = server.paddock("images", "build", "control-plane")
        assert (done.returncode, "clone" in done.stderr) == (1, True), done.stderr
        async with serving(state, server.python, tmp_path, PADDOCK_IMAGE=image) as running:
            here = {"PADDOCK_STATE_DIR": str(state)}
            there = {"PADDOCK_URL": running.url, "PADDOCK_KEY": running.key}
            done = server.paddock("sessions", "create", "--id", "web-1", "--level", "low", **here)
            assert done.returncode == 0, done.stderr
            try:
                done = client.paddock("exec", "web-1", "--", "pwd", **there)
                assert (done.returncode, done.stdout) == (0, "/workspace\n"), done.stderr
                done = client.paddock("audit", "export", "web-1", "-o", str(exported), **there)
                assert done.returncode == 0, done.stderr
            finally:
                await running.ok("DELETE", "/api/sessions/web-1?purge=true")
            left = left_behind(state)
        assert left == NOTHING
        done = client.paddock("audit", "verify", "--file", str(exported), "--json")
        assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True), done.stderr
    finally:
        with closing(docker.APIClient(version="auto")) as engine:
            if engine.images(name=image):
                engine.remove_image(image)
