"""What programs do where substitutes stand for a newer kernel's facilities: the same, or as named.

Each command runs in two sessions of its level: with all that this host's kernel has, and without.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.older_kernels import LEAST, older_image
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUILD = Path(__file__).parents[2] / "examples" / "levels" / "build.toml"
FILES = (
    *("ls", "cat a", "head -c 1 a", "tail a", "grep -r x .", "wc a", "stat -c %s a", "pwd"),
    *("mkdir -p one/two three", "touch b", "cp a b", "cp b b2", "cp -r one four", "mv b one/b"),
    *("mv one/b one/two/c", "mv one three", "mv three/one/two ./two", "ls -R", "cat two/c"),
    *("find . -name c", "cp a two/c", "rm -r four", "rm nothing"),
)
REPORTS = ("echo x", "uname", "date +%Y", "env", "which ls", "whoami", "curl --version")
MODULES = "import asyncio, ctypes, decimal, hashlib, lzma, multiprocessing, sqlite3, ssl, zlib\n"
COPIES = (
    "import os, shutil, tempfile\n"
    "os.makedirs('d/e', exist_ok=True)\n"
    "open('d/f', 'w').write('moved')\n"
    "os.replace('d/f', 'd/g')\n"
    "shutil.move('d/g', 'd/e/g')\n"
    "with open('d/e/g', 'r+') as file: file.truncate(3)\n"
    "print(open('d/e/g').read(), len(tempfile.mkdtemp(dir='d')) > 2)\n"
)
GIT = "git -C r -c user.name=a -c user.email=a@example.com"
BUILDS = (
    *("git init -q -b main r", f"{GIT} commit -q --allow-empty -m first", "cp a r/a"),
    *(f"{GIT} add a", f"{GIT} commit -q -m second", f"{GIT} gc -q", f"{GIT} tag t"),
    *(f"{GIT} checkout -q -b other", f"{GIT} merge -q main", "git clone -q r clone"),
    *("git -C clone status --short", "git -C clone fetch -q", "git -C clone fsck"),
)
SCRIPTS = {
    "low": FILES,
    "medium": (*FILES, *REPORTS),
    "build": (*FILES, *BUILDS),
    "high": (*FILES, *BUILDS),
}
# As npm does: a package is unpacked beside its place, and renamed within the directory.
PACKAGES = """
set -e
mkdir -p node_modules/.x-1 node_modules/deep
echo 1 > node_modules/.x-1/index.js
mv node_modules/.x-1 node_modules/x
mv node_modules/x node_modules/deep/x
cat node_modules/deep/x/index.js
ln node_modules/deep/x/index.js node_modules/deep/x/twice
"""
REPEATED = (
    "import ctypes, mmap, os\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "libc.mmap.restype = ctypes.c_void_p\n"
    "at = libc.mmap(None, 4096, 5, 0x22, -1, 0)\n"
    "assert at != 2**64 - 1\n"
    "print(libc.mprotect(ctypes.c_void_p(at), 4096, 5), ctypes.get_errno())\n"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("levels")
    shutil.copy(BUILD, directory)
    with older_image(sandbox_image, LEAST) as image:
        async with opened(image=sandbox_image, images=(image,), levels_dir=directory) as opened_one:
            yield opened_one


async def pair(plane: ControlPlane, level: str) -> tuple[Box, Box]:
    """A session of this host's kernel, and one of an older kernel."""
    (image,) = plane.settings.images
    new, old = await Box.create(plane, level), await Box.create(plane, level, image=image)
    link = old.session.check_open().link
    assert link.hello is not None
    assert not any(getattr(link.hello.kernel, name) for name in LEAST)
    for box in (new, old):
        await box.write("a", b"x\ny\n")
    return new, old


@pytest.mark.parametrize("level", list(SCRIPTS))
async def test_commands_do_the_same(plane: ControlPlane, level: str) -> None:
    new, old = await pair(plane, level)
    for command in SCRIPTS[level]:
        wanted, found = [await box.run(command) for box in (new, old)]
        assert (found.exit_code, found.stdout) == (wanted.exit_code, wanted.stdout), (
            command,
            found.stderr,
        )
    assert (old.workspace / "two/c").read_bytes() == b"x\ny\n"
    for box in (new, old):
        await box.close()


@pytest.mark.parametrize("level", ["build", "high"])
async def test_interpreters_load_their_libraries(plane: ControlPlane, level: str) -> None:
    new, old = await pair(plane, level)
    for source in (MODULES, COPIES):
        wanted, found = [await box.python(source) for box in (new, old)]
        assert wanted.exit_code == 0, wanted.stderr
        assert (found.exit_code, found.stdout) == (0, wanted.stdout), found.stderr
    for box in (new, old):
        await box.close()


async def test_the_differences_that_are_named(plane: ControlPlane) -> None:
    """Where it differs, the older means refuse more, and never less."""
    new, old = await pair(plane, "build")
    assert (await new.python(REPEATED)).stdout == "0 0\n"
    assert (await old.python(REPEATED)).stdout == "-1 13\n"
    cut = "import os; os.truncate('a', 1)"
    assert (await new.python(cut)).exit_code == 0
    assert "Permission denied" in (await old.python(cut)).stderr
    assert [(box.workspace / "a").read_bytes() for box in (new, old)] == [b"x", b"x\ny\n"]
    assert (await old.python("open('a', 'r+').truncate(1)")).exit_code == 0
    for box in (new, old):
        await box.write("r.py", b"import os\nos.mkdir('d')\nos.rename('a', 'd/a')\n")
    assert (await new.run("python3 r.py")).exit_code == 0
    assert "Invalid cross-device link" in (await old.run("python3 r.py")).stderr
    for box in (new, old):
        await box.close()


async def test_git_moves_nothing_between_directories(plane: ControlPlane) -> None:
    new, old = await pair(plane, "build")
    for box in (new, old):
        for command in (*BUILDS[:5], "mkdir r/d"):
            assert (await box.run(command)).exit_code == 0
    for command in (f"{GIT} mv a d/a", f"{GIT} branch -m main trunk"):
        assert (await new.run(command)).exit_code == 0
        assert "cross-device link" in (await old.run(command)).stderr, command
    assert (await old.run("cat r/a")).stdout == "x\ny\n"
    assert (await old.run(f"{GIT} rev-parse -q --verify main")).exit_code == 0
    for box in (new, old):
        await box.close()


async def test_packages_are_renamed_into_place(plane: ControlPlane) -> None:
    for box in await pair(plane, "high"):
        done = await box.bash(PACKAGES)
        assert (done.exit_code, done.stdout) == (0, "1\n"), done.stderr
        await box.close()
