"""A coding agent as documented: its key outside of the sandbox, its work as a proposal."""

import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
import pytest_asyncio
from aiohttp import web

from images.builder import build
from images.recipes import find_recipe
from tests.support.documents import blocks
from tests.support.egress import certificate
from tests.support.finished import finished
from tests.support.readers import reader_environment
from tests.support.scripted_model import ScriptedModel
from tests.support.server import ROOT, Server, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENT = ROOT / "docs" / "coding-agents.md"
HOST = "api.openai.com"
# Where the model is served at its usual port.
_OWN = f"127.{secrets.randbelow(200) + 2}.{secrets.randbelow(256)}.1"
_KEY = f"sk-{secrets.token_hex(16)}"
_SOURCE = "def add(a, b):\n    return a - b\n"
_TEST = """\
import unittest
from sums import add
class Test(unittest.TestCase):
    def test(self):
        self.assertEqual(add(1, 1), 2)
"""
# What a model might say, and how it ends its work.
_COMMANDS = (
    "env; python3 -m unittest; cat sums.py; curl -sS https://example.org/",
    "sed -i 's/a - b/a + b/' sums.py && python3 -B -m unittest",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Without what `dev` has, which `make agents` builds.

    The engine keeps its layers: only the sandbox's own programs are new in the next run.
    """
    name = f"paddock/mini-swe-agent:test-{secrets.token_hex(4)}"
    recipe = find_recipe("mini-swe-agent")._replace(more_packages=("python3-pip", "python3-venv"))
    build(name, recipe=recipe, report=lambda _line: None)
    yield name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name, noprune=True)


@pytest.fixture(scope="module")
def model() -> ScriptedModel:
    return ScriptedModel(*_COMMANDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    image: str, sandbox_image: str, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    directory = tmp_path_factory.mktemp("agents")
    runner = web.AppRunner(model.app)
    await runner.setup()
    await web.TCPSite(runner, _OWN, 443, ssl_context=certificate(directory, HOST)).start()
    settings = {
        "PADDOCK_IMAGE": sandbox_image,
        "PADDOCK_IMAGES": image,
        "PADDOCK_LEVELS_DIR": str(ROOT / "examples" / "levels"),
        "PADDOCK_CA_FILE": str(directory / "cert.pem"),
        "KNOWN_NAMES": f"{HOST}={_OWN}",
    }
    module = "tests.support.known_names"
    async with serving(
        directory / "state", Path(sys.executable), ROOT, module, **settings
    ) as running:
        yield running
    await runner.cleanup()


async def shell(server: Server, directory: Path, script: str) -> str:
    """The output of a reader's commands in that directory."""
    status, output = await finished(
        *("bash", "-euc", script),
        cwd=directory,
        env=reader_environment(server, directory / "bin"),
    )
    assert status == 0, output[-4000:]
    return output


def steps(image: str) -> list[str]:
    """The document's commands, with the tests' image, which is built and listed already."""
    found = [
        block.text
        for block in blocks(DOCUMENT.read_text())
        if block.language == "sh" and not block.note.startswith("not run: ")
    ]
    built = "paddock images build mini-swe-agent\npaddock images add mini-swe-agent"
    assert found[0] == built
    return [f"paddock images add {image}", *found[1:]]


async def test_an_agent_s_work_is_a_proposal_and_its_key_stays_outside(
    server: Server, image: str, model: ScriptedModel, tmp_path: Path
) -> None:
    (tmp_path / "openai.key").write_text(_KEY)
    (tmp_path / "anthropic.key").write_text(f"sk-{secrets.token_hex(16)}")
    project = tmp_path / "project"
    project.mkdir()
    (project / "sums.py").write_text(_SOURCE)
    (project / "test_sums.py").write_text(_TEST)
    script = "\n".join(steps(image))
    output = await shell(server, tmp_path, script)
    assert "-    return a - b\n+    return a + b\n" in output
    assert (tmp_path / "fixed" / "sums.py").read_text() == _SOURCE.replace("-", "+")
    assert (project / "sums.py").read_text() == _SOURCE
    assert len(model.bodies) == len(_COMMANDS)
    assert set(model.authorizations) == {f"Bearer {_KEY}"}
    seen = str(model.bodies[-1]["messages"])
    assert "OPENAI_API_KEY=paddock:openai" in seen
    assert "no rule allows example.org" in seen or "response 403" in seen
    assert _KEY not in seen + output
    told = await server.ok("GET", "/api/sessions/fix/audit?operation=egress.request&limit=100")
    passed = [each["args"] for each in told["items"] if each["decision"] == "allow"]
    asked = [args for args in passed if args.get("secrets")]
    assert [args["secrets"] for args in asked] == [["openai"]] * len(_COMMANDS)
    assert {args["host"] for args in passed} == {HOST}
    assert "example.org" in [
        each["args"]["host"] for each in told["items"] if each["decision"] == "deny"
    ]
