"""SWE-ReX's client, with its own tests of a remote runtime, which its source package has."""

import asyncio
import hashlib
import secrets
import shutil
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
import pytest_asyncio

from images.builder import build
from images.recipes import find_recipe
from tests.foreign.conftest import Keep
from tests.foreign.environments import Environment, environment
from tests.foreign.outcomes import judged, of_junit
from tests.foreign.suites import PROGRAMS
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_ALL = {"client": "SWE-ReX", "version": "swe-rex 1.4.0", "level": "high"}
ARCHIVE = "swe_rex-1.4.0.tar.gz"
SHA256 = "14f8a24c49a63f9e251340b1109ac75a4aacbaece410f8599209de9bfca843c0"
# Those that need no other service.
MODULES = ("test_execution", "test_runtime", "test_server", "test_remote_deployment")
_OWN_DISK = "the test compares with the disk of the client's machine: no remote server can pass"
_INTERACTIVE = "test_run_in_shell_multiple_interactive_and_normal_commands"
EXCEPTIONS = {
    "test_execution::test_read_write_file": _OWN_DISK,
    "test_execution::test_read_large_file": _OWN_DISK,
    f"test_execution::{_INTERACTIVE}": "its authors expect it to fail",
}
_SECONDS = 1800
Session = dict[str, Any]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The usual image of high, which has `less` and `python`."""
    name = f"paddock/dev:test-{secrets.token_hex(4)}"
    build(name, recipe=find_recipe("dev"), report=lambda _line: None)
    yield name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name, noprune=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(image: str) -> AsyncIterator[Server]:
    """A control plane with the protocol; at its end, nothing of a session is left."""
    named = {"PADDOCK_IMAGE": image, "PADDOCK_COMPAT": "swerex", "PADDOCK_LOG_LEVEL": "warning"}
    async with leaving_nothing(**named) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def session(plane: Server) -> AsyncIterator[Session]:
    """A session, which ends with the test."""
    made = await plane.ok("POST", "/api/sessions", {"permission_level": "high"})
    yield made
    await plane.ok("DELETE", f"/api/sessions/{made['id']}?purge=true")


def own_tests(rex: Environment, directory: Path) -> Path:
    """The project's own tests, with fixtures that name a session. Raises: AssertionError."""
    words = ("download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:")
    done = rex.run("-m", "pip", *words, f"--dest={directory}", "swe-rex==1.4.0", seconds=_SECONDS)
    assert done.returncode == 0, done.stderr
    archive = directory / ARCHIVE
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256
    with tarfile.open(archive) as opened:
        opened.extractall(directory, filter="data")
    tests = directory / "suite" / "tests"
    tests.mkdir(parents=True)
    (tests / "__init__.py").touch()
    shutil.copy(PROGRAMS / "swerex_conftest.py", tests / "conftest.py")
    for module in MODULES:
        shutil.copy(directory / ARCHIVE.removesuffix(".tar.gz") / "tests" / f"{module}.py", tests)
    return tests.parent


async def test_its_own_tests(
    client: Path, plane: Server, session: Session, keep: Keep, tmp_path: Path
) -> None:
    rex = environment("swerex", client)
    suite = own_tests(rex, tmp_path)
    report = tmp_path / "report.xml"
    options = ("-o", "asyncio_mode=auto", "-p", "no:cacheprovider", f"--junit-xml={report}")
    where = f"{plane.url}/compat/swerex/{session['id']}"
    done = await asyncio.to_thread(
        rex.run,
        *("-m", "pytest", *options, "tests"),
        cwd=suite,
        seconds=_SECONDS,
        variables={"SWEREX_URL": where, "SWEREX_KEY": session["handle"]},
    )
    assert done.returncode in (0, 1), done.stdout[-4000:] + done.stderr[-4000:]
    print(done.stdout[-20_000:])
    found = of_junit(report, modules=True)
    assert len(found) == 66
    keep(judged(found, EXCEPTIONS, suite="its own tests of a remote runtime", **OF_ALL))
