"""An image from a list of packages, and what a session installs in it."""

import io
import ipaddress
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
import pytest_asyncio
from aiohttp import web

from images.builder import build, proxies
from images.recipes import find_recipe
from orchestrator.settings.operator_secrets import OperatorSecret
from tests.support.box import Box
from tests.support.documents import blocks
from tests.support.egress import Names, NamesResolver, certificate, level_with
from tests.support.packages import GIT, INDEX, NPM, PUBLIC, Packages, repository, wheel
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ROOT = Path(__file__).parents[2]
BUILD = _ROOT / "examples" / "levels" / "build.toml"
DOCUMENT = _ROOT / "docs" / "images.md"
RECIPES = _ROOT / "docs" / "egress.md"
_PROGRAM = """\
#include <stdio.h>
int main(void) { puts("compiled"); }
"""
# Its wheels, which the index has.
PYTEST = ("attrs", "pytest", "pluggy", "iniconfig", "packaging", "pygments")
_PYTEST = """\
import attrs
def test():
    assert attrs.asdict(attrs.make_class("Point", ["x"])(1)) == {"x": 1}
"""
_TEST = """\
import unittest, greet
class Test(unittest.TestCase):
    def test(self):
        greet.main()
"""


# Where the tests serve public hosts at their usual port.
_OWN = ipaddress.IPv4Address(f"127.{secrets.randbelow(200) + 2}.{secrets.randbelow(256)}.1")
# After a failed request npm would wait for 10 s, then for 60 s.
_NPM_INSTALL = "npm install --no-audit --no-fund --fetch-retries=0 greet"
_KEY = f"sk-{secrets.token_hex(16)}"


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    name = f"paddock/dev:test-{secrets.token_hex(4)}"
    build(name, recipe=find_recipe("dev"), report=lambda _line: None)
    yield name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name, noprune=True)


@pytest.fixture(scope="module")
def derived(image: str) -> Iterator[str]:
    """Built as documented, but on the tests' own image."""
    (text,) = [each.text for each in blocks(DOCUMENT.read_text()) if each.language == "dockerfile"]
    assert text.startswith("FROM paddock/python:latest\n")
    name = f"paddock-test-{secrets.token_hex(4)}:latest"
    with closing(docker.APIClient(version="auto")) as client:
        for line in client.build(
            fileobj=io.BytesIO(text.replace("paddock/python:latest", image).encode()),
            tag=name,
            buildargs=proxies(),
            rm=True,
            decode=True,
        ):
            assert "error" not in line, line
        yield name
        client.remove_image(name, force=True)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the servers' certificate, and the level files."""
    return tmp_path_factory.mktemp("packages")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def packages(directory: Path) -> AsyncIterator[Packages]:
    (directory / "git").mkdir()
    repository(directory / "git")
    served = Packages(directory / "git", *PYTEST)
    runner = web.AppRunner(served.app)
    await runner.setup()
    tls = certificate(directory, INDEX, NPM, GIT, *PUBLIC)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    served.port = runner.addresses[0][1]
    await web.TCPSite(runner, str(_OWN), 443, ssl_context=tls).start()
    yield served
    await runner.cleanup()


@pytest.fixture(scope="module")
def levels(directory: Path, packages: Packages) -> Path:
    """`build` is the example, with an index of its own; `high` has a way out and no network."""
    place = directory / "levels"
    place.mkdir()
    pages = _rule(INDEX, packages, "/simple/**") + _rule(INDEX, packages, "/files/*")
    index = f'[variables]\nPIP_INDEX_URL = "https://{INDEX}:{packages.port}/simple"\n'
    shown, _, _ = BUILD.read_text().partition("[[egress.allow]]")
    (place / "build.toml").write_text(shown + pages + index)
    registry = f'NPM_CONFIG_REGISTRY = "https://{NPM}:{packages.port}/"\n'
    rules = _rule(NPM, packages, "/greet/**") + _rule(NPM, packages, "/greet")
    rules += pages + _rule(GIT, packages, "/git/**") + index + registry
    (place / "high.toml").write_text(level_with("\n" + rules, "high", 300))
    _, _, recipes = RECIPES.read_text().partition("## Recipes\n")
    recipes_shown = [each.text for each in blocks(recipes) if each.language == "toml"]
    assert len(recipes_shown) == 4
    (place / "recipes.toml").write_text(level_with("\n" + "\n\n".join(recipes_shown), "high", 310))
    (directory / "openai.key").write_text(_KEY)
    return place


def _rule(host: str, packages: Packages, path: str) -> str:
    return (
        f'[[egress.allow]]\nhost = "{host}"\nports = [{packages.port}]\ninspect = true\n'
        f'methods = ["GET", "HEAD"]\npaths = ["{path}"]\n\n'
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def boxes(
    image: str, derived: str, sandbox_image: str, directory: Path, levels: Path
) -> AsyncIterator[dict[str, Box]]:
    """A session of the image at each level that is used."""
    names = Names()
    names.answers = {name: [["127.0.0.1"]] for name in (INDEX, NPM, GIT)}
    names.answers |= {name: [[str(_OWN)]] for name in PUBLIC}
    openai = OperatorSecret(
        file=directory / "openai.key",
        hosts=("api.openai.com",),
        levels=("recipes",),
        variable="OPENAI_API_KEY",
    )
    async with opened(
        resolver=NamesResolver(names, _OWN),
        secrets={"openai": openai},
        image=sandbox_image,
        images=(image, derived),
        levels_dir=levels,
        ca_file=directory / "cert.pem",
    ) as plane:
        found = {level: await Box.create(plane, level, image="dev") for level in _LEVELS}
        yield {**found, "derived": await Box.create(plane, "high", image=derived)}


_LEVELS = ("high", "build", "recipes")


@pytest.fixture
def box(boxes: dict[str, Box]) -> Box:
    return boxes["high"]


async def test_what_is_installed_is_found_by_its_name(box: Box) -> None:
    await box.write("greet-1-py3-none-any.whl", wheel())
    installed = await box.run("pip install --no-index ./greet-1-py3-none-any.whl")
    assert installed.exit_code == 0, installed.stderr
    assert (await box.run("greet")).stdout == "hello\n"
    assert (await box.run("python -m greet")).exit_code == 0
    # A program of the image is never replaced by one that a command has written.
    await box.bash("cp .local/bin/greet .local/bin/git")
    assert "git version" in (await box.run("git --version")).stdout


async def test_packages_are_installed_and_tests_run_as_typed(box: Box) -> None:
    await box.write("test_attrs.py", _PYTEST.encode())
    tested = await box.bash("pip install attrs pytest && python -m pytest && pytest -q")
    assert tested.exit_code == 0, (tested.stdout, tested.stderr)
    assert tested.stdout.count("1 passed") == 2


async def test_high_can_have_a_way_out_instead_of_a_network(box: Box, packages: Packages) -> None:
    assert "eth0" not in (await box.run("cat /proc/net/dev")).stdout
    refused = await box.run(f"curl -sS https://{INDEX}:{packages.port}/other")
    assert "Paddock denied this request" in refused.stdout


async def test_an_image_is_derived_as_documented(boxes: dict[str, Box]) -> None:
    assert "tree v" in (await boxes["derived"].run("tree --version")).stdout


async def test_a_virtual_environment(box: Box) -> None:
    made = await box.run("python -m venv env")
    assert made.exit_code == 0, made.stderr
    source = "import sys; print(sys.prefix)"
    found = await box.run(argv=["env/bin/python", "-c", source])
    assert found.stdout == "/workspace/env\n"


async def test_a_program_is_compiled(box: Box) -> None:
    await box.write("main.c", _PROGRAM.encode())
    built = await box.run("gcc -o main main.c")
    assert built.exit_code == 0, built.stderr
    assert (await box.run("./main")).stdout == "compiled\n"


async def test_the_example_level_installs_and_tests_a_package(boxes: dict[str, Box]) -> None:
    box = boxes["build"]
    await box.write("test_greet.py", _TEST.encode())
    installed = await box.run("pip3 install greet")
    assert installed.exit_code == 0, (installed.stdout, installed.stderr)
    tested = await box.run("python3 -m unittest")
    assert (tested.exit_code, tested.stdout) == (0, "hello\n"), tested.stderr
    paths = [event["args"]["path"] for event in await box.events("egress.request")]
    assert paths == ["/simple/greet/", "/files/greet-1-py3-none-any.whl"]


async def test_a_request_overrides_a_level_s_variable(boxes: dict[str, Box]) -> None:
    box = boxes["build"]
    assert f"PIP_INDEX_URL=https://{INDEX}" in (await box.run("env")).stdout
    said = await box.run("env", env={"PIP_INDEX_URL": "https://other.example"})
    assert "PIP_INDEX_URL=https://other.example\n" in said.stdout


async def test_npm_installs_from_the_registry_of_the_level(
    boxes: dict[str, Box], packages: Packages
) -> None:
    box = boxes["high"]
    installed = await box.run(_NPM_INSTALL)
    assert installed.exit_code == 0, (installed.stdout, installed.stderr)
    said = await box.run(argv=["node", "-e", "console.log(require('greet'))"])
    assert said.stdout == "hello\n", said.stderr
    # What it would tell the registry is not among the rules.
    refused = await box.run("npm audit")
    assert refused.exit_code != 0
    assert packages.posted == []


async def test_git_clones(boxes: dict[str, Box], packages: Packages) -> None:
    box = boxes["high"]
    cloned = await box.run(f"git clone https://{GIT}:{packages.port}/git/greet.git")
    assert cloned.exit_code == 0, cloned.stderr
    assert (await box.run("git -C greet log --format=%s")).stdout == "greeting\n"


async def test_the_recipes_let_through_what_they_say(
    boxes: dict[str, Box], packages: Packages
) -> None:
    box = boxes["recipes"]
    for command in (
        "pip install greet",
        _NPM_INSTALL,
        "git clone https://github.com/our-team/greet.git",
    ):
        done = await box.run(command)
        assert done.exit_code == 0, (command, done.stdout, done.stderr)
    packages.posted.clear()
    packages.authorizations.clear()
    for url in (
        "https://pypi.org/legacy/",
        "https://files.pythonhosted.org/files/greet",
        "https://registry.npmjs.org/greet",
        "https://github.com/our-team/greet.git/git-receive-pack",
        "https://github.com/other/greet.git/git-upload-pack",
        "https://api.openai.com/v1/files",
    ):
        refused = await box.run(argv=["curl", "-sS", "-d", "canary", url])
        assert "Paddock denied this request" in refused.stdout, url
    assert packages.posted == []
    asked = await box.bash(
        'curl -sS -H "Authorization: Bearer $OPENAI_API_KEY" -d hello'
        " https://api.openai.com/v1/chat/completions"
    )
    assert asked.stdout == "{}", asked.stderr
    assert (packages.posted, packages.authorizations) == ([b"hello"], [f"Bearer {_KEY}"])
    assert "OPENAI_API_KEY=paddock:openai\n" in (await box.run("env")).stdout
