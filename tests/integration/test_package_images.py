"""An image from a list of packages, and what a session installs in it."""

import io
import secrets
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import docker
import pytest
import pytest_asyncio

from images.builder import build
from images.recipes import find_recipe
from tests.support.box import Box
from tests.support.plane import opened

_METADATA = "Metadata-Version: 2.1\nName: greet\nVersion: 1\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PROGRAM = """\
#include <stdio.h>
int main(void) { puts("compiled"); }
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    name = f"paddock/python:test-{secrets.token_hex(4)}"
    build(name, recipe=find_recipe("python"), report=lambda _line: None)
    yield name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name, noprune=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(image: str, sandbox_image: str) -> AsyncIterator[Box]:
    async with opened(image=sandbox_image, images=(image,)) as plane:
        box = await Box.create(plane, "high", image="python")
        yield box
        await box.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def _wheel() -> bytes:
    """A package whose command prints a greeting."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("greet.py", "def main():\n    print('hello')\n")
        archive.writestr("greet-1.dist-info/METADATA", _METADATA)
        archive.writestr("greet-1.dist-info/WHEEL", _WHEEL)
        archive.writestr(
            "greet-1.dist-info/entry_points.txt", "[console_scripts]\ngreet = greet:main\n"
        )
        archive.writestr("greet-1.dist-info/RECORD", "")
    return made.getvalue()


async def test_what_is_installed_is_found_by_its_name(box: Box) -> None:
    await box.write("greet-1-py3-none-any.whl", _wheel())
    installed = await box.run("pip install --no-index ./greet-1-py3-none-any.whl")
    assert installed.exit_code == 0, installed.stderr
    assert (await box.run("greet")).stdout == "hello\n"
    assert (await box.run("python -m greet")).exit_code == 0
    # A program of the image is never replaced by one that a command has written.
    await box.bash("cp .local/bin/greet .local/bin/git")
    assert "git version" in (await box.run("git --version")).stdout


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
