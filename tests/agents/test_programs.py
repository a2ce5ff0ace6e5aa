"""Each coding agent's program starts in a sandbox of the level that the document names."""

import secrets
from collections.abc import Iterator
from contextlib import closing

import docker
import pytest

from images.builder import build
from images.recipes import find_recipe, recipes
from tests.support.box import Box
from tests.support.plane import opened
from tests.support.server import ROOT

# What each says about itself.
PROGRAMS = {
    "claude-code": ("claude --version", "(Claude Code)"),
    "codex": ("codex --version", "codex-cli"),
    "opencode": ("opencode --version", ""),
    "aider": ("aider --version", "aider"),
    "mini-swe-agent": ("mini --help", "mini-swe-agent version"),
}


@pytest.fixture(params=sorted(PROGRAMS))
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def image(agent: str) -> Iterator[str]:
    """The engine keeps its layers."""
    name = f"paddock/{agent}:test-{secrets.token_hex(4)}"
    build(name, recipe=find_recipe(agent), report=lambda _line: None)
    yield name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name, noprune=True)


def test_all_are_here() -> None:
    assert {name for name, recipe in recipes().items() if any(recipe.programs)} == set(PROGRAMS)


async def test_it_starts(agent: str, image: str) -> None:
    command, said = PROGRAMS[agent]
    programs = find_recipe(agent).programs
    (wanted,) = (*programs.npm, *programs.pip)
    version = wanted.replace("==", "@").rpartition("@")[2]
    async with opened(image=image, levels_dir=ROOT / "examples" / "levels") as plane:
        box = await Box.create(plane, "agent")
        done = await box.run(command)
        assert done.exit_code == 0, (done.stdout, done.stderr)
        assert version in done.stdout + done.stderr
        assert said in done.stdout + done.stderr
        # The tools of `dev` are there, too.
        assert (await box.run("pip --version")).exit_code == 0
        assert (await box.run("npm --version")).exit_code == 0
