"""The JavaScript client under each runtime: its own tests, and what its page says.

Most run against a control plane without containers.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.settings.operator_models import OperatorModel
from scripts.npm_package import SOURCE
from tests.support.documents import blocks
from tests.support.fake_agent import Play
from tests.support.javascript import NODE, RUNTIMES, Runtime, names, run_program
from tests.support.leaks import NOTHING, left_behind
from tests.support.models import model_server
from tests.support.served_plane import KEY, served_plane
from tests.support.server import Server, serving

TESTS = sorted((SOURCE / "tests").glob("*.test.js"))
PLAYS = {
    "greet": Play(b"hello\n"),
    "fail": Play(stderr=b"bad\n", exit_code=3),
    "raw": Play(b"\xff\x00\xfe"),
    "build": Play(b"one\n", holds=True),
}
PACKED = {"notes": b"read me\n", "plan": b"next\n"}


@pytest.mark.parametrize("runtime", RUNTIMES, ids=names())
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name.partition(".")[0])
async def test_against_a_control_plane(
    path: Path, runtime: Runtime, javascript_package: Path
) -> None:
    async with served_plane() as served, model_server() as model:
        served.agents.plays.update(PLAYS)
        served.agents.files.update(PACKED)
        served.plane.models.configured["small"] = OperatorModel.model_validate(model.setting())
        url = served.address.rstrip("/")
        command = runtime.command(f"./tests/{path.name}", test=True)
        status, told = await run_program(
            javascript_package, *command, PADDOCK_URL=url, PADDOCK_KEY=KEY
        )
    assert status == 0, told[-6000:]
    assert "# pass 0" not in told


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    """A server with real sandboxes; nothing of a session may be left at the end."""
    state = tmp_path_factory.mktemp("served") / "state"
    async with serving(state, PADDOCK_IMAGE=sandbox_image) as running:
        yield running
        for session in (await running.ok("GET", "/api/sessions"))["items"]:
            await running.call("DELETE", f"/api/sessions/{session['id']}?purge=true")
        assert left_behind(state) == NOTHING


@pytest.mark.asyncio(loop_scope="module")
async def test_with_real_sandboxes(server: Server, javascript_package: Path) -> None:
    command = NODE.command("./tests/sandbox.real.js", test=True)
    status, told = await run_program(
        javascript_package, *command, PADDOCK_URL=server.url, PADDOCK_KEY=server.key
    )
    assert status == 0, told[-6000:]
    assert "# pass 0" not in told


@pytest.mark.parametrize("runtime", RUNTIMES, ids=names())
@pytest.mark.asyncio(loop_scope="module")
async def test_with_real_sandboxes_under(
    runtime: Runtime, server: Server, javascript_package: Path
) -> None:
    """Commands, shells, code, files, watches, events, a terminal, refusals, and aborted calls."""
    command = runtime.command("./tests/journey.real.js")
    status, told = await run_program(
        javascript_package, *command, PADDOCK_URL=server.url, PADDOCK_KEY=server.key
    )
    assert (status, told) == (0, "as wanted\n")


@pytest.mark.asyncio(loop_scope="module")
async def test_what_its_page_says_works(server: Server, javascript_package: Path) -> None:
    """Each program is compiled with strict types against the built package, and run."""
    directory = javascript_package / "page"
    directory.mkdir()
    names = []
    for block in blocks((SOURCE / "README.md").read_text(encoding="utf-8")):
        if block.language == "ts":
            names.append(f"line{block.line}")
            (directory / f"{names[-1]}.mts").write_text(block.text, encoding="utf-8")
    assert len(names) >= 9
    options = {"noEmit": False, "rootDir": ".", "outDir": "built", "declaration": False}
    configuration = {
        "extends": "../tsconfig.json",
        "compilerOptions": options,
        "include": ["*.mts"],
    }
    (directory / "tsconfig.json").write_text(json.dumps(configuration), encoding="utf-8")
    compiler = "node_modules/typescript/bin/tsc"
    status, told = await run_program(javascript_package, "node", compiler, "-p", "page")
    assert status == 0, told
    for name in names:
        command = NODE.command(f"page/built/{name}.mjs")
        status, told = await run_program(
            javascript_package, *command, PADDOCK_URL=server.url, PADDOCK_KEY=server.key
        )
        assert status == 0, f"{name}: {told[-4000:]}"
