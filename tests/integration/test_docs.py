"""Runs every command and program in the documents as a reader would, on a real server."""

import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.documents import Block, blocks, documents
from tests.support.egress import level_with
from tests.support.finished import finished
from tests.support.leaks import NOTHING, left_behind
from tests.support.readers import reader_environment
from tests.support.server import ROOT, Server, serving

SECONDS = 900
# About so many commands of the reference run in one test.
_AT_ONCE = 40
# An endless stream must still run after this time.
_STREAM_SECONDS = 2
_RUNNABLE = {"sh", "python"}
_URL = "http://127.0.0.1:8700"
_CLI = ROOT / "docs" / "cli.md"
# Its commands need an image and a model: test_coding_agents.py runs them.
_AGENTS = ROOT / "docs" / "coding-agents.md"
# Each example of the reference starts with the same session, and file examples with these files.
_FRESH = """
curl -s -o /dev/null -X POST "$PADDOCK_URL/api/sessions/web-1/resume" -H "$auth" || true
curl -s -o /dev/null -X PUT "$PADDOCK_URL/api/sessions/web-1" -H "$auth" \\
  -d '{"permission_level": "high"}'
curl -s -o /dev/null -X PUT "$PADDOCK_URL/api/sessions/web-1/settings" -H "$auth" \\
  -d '{"settings": {"permission_level": "LEVEL"}}'
"""
# A level of the operator's that has a way out.
_OUT = '\n[[egress.allow]]\nhost = "pypi.org"\n'
_DENIED = """
curl -s -o /dev/null "$PADDOCK_URL/api/sessions/web-1/exec" -H "$auth" \\
  -d '{"command": "curl -s http://registry.example/"}'
"""
_FILES = """
for path in src build; do
  curl -s -o /dev/null "$PADDOCK_URL/api/sessions/web-1/files/mkdir" -H "$auth" \\
    -d "{\\"path\\": \\"$path\\"}"
done
for path in src/a.py build/a.out report.txt notes.txt; do
  curl -s -o /dev/null -X PUT "$PADDOCK_URL/api/sessions/web-1/files?path=$path" -H "$auth" -d .
done
printf -- '--- /dev/null\\n+++ b/new.txt\\n@@ -0,0 +1 @@\\n+new\\n' > fix.diff
"""
_SECRET = """
printf %s sk-0123456789abcdef > openai.key
paddock secrets set openai --host api.openai.com < openai.key
"""
_CLOSED = 'curl -s -o /dev/null -X DELETE "$PADDOCK_URL/api/sessions/web-1" -H "$auth" || true\n'
_LISTED = 'echo "images = [\'paddock/dev:latest\']" > "$PADDOCK_STATE_DIR/images.toml"\n'
# A session that has missed a file, which is here.
_MISSED = """
mkdir -p src && echo . > src/users.py
curl -s -o /dev/null "$PADDOCK_URL/api/sessions" -H "$auth" \\
  -d '{"id": "web-1", "permission_level": "low", "consume": {"tool_allowlist": ["Read"]}}'
curl -s -o /dev/null "$PADDOCK_URL/api/sessions/web-1/reads" -H "$auth" \\
  -d '{"path": "src/users.py"}' || true
"""
_PAUSED = 'curl -s -o /dev/null -X POST "$PADDOCK_URL/api/sessions/web-1/pause" -H "$auth"\n'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(sandbox_image: str) -> AsyncIterator[Server]:
    """A server; all sessions of the documents are closed at the end, and nothing may be left."""
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        state, levels = Path(directory) / "state", Path(directory) / "levels"
        levels.mkdir()
        (levels / "out.toml").write_text(level_with(_OUT))
        templates = Path(directory) / "templates"
        templates.mkdir()
        (templates / "website.toml").write_text(_template())
        settings = {
            "PADDOCK_IMAGE": sandbox_image,
            "PADDOCK_LEVELS_DIR": str(levels),
            "PADDOCK_TEMPLATES_DIR": str(templates),
        }
        async with serving(state, **settings) as running:
            yield running
            await _close_all(running)
            left = left_behind(state)
        assert left == NOTHING


def _template() -> str:
    """The file of the page about templates."""
    page = (ROOT / "docs" / "templates.md").read_text()
    return next(block.text for block in blocks(page) if block.language == "toml")


async def _close_all(server: Server) -> None:
    for session in (await server.ok("GET", "/api/sessions"))["items"]:
        path = f"/api/sessions/{session['id']}?purge=true"
        status, answer = await server.call("DELETE", path)
        # The one of an example that was ended may be gone by now.
        assert status in (200, 404), (path, answer)


def _runnable(path: Path) -> list[Block]:
    found = blocks(path.read_text())
    return [
        block
        for block in found
        if block.language in _RUNNABLE and not block.note.startswith("not run: ")
    ]


def _parts(path: Path) -> Iterator[tuple[str, Path, list[Block]]]:
    """Names and blocks of what runs together: a document, or a part of the reference.

    That has an example for each command, which needs no other one but those about the same thing.
    """
    name, found = path.relative_to(ROOT).as_posix(), _runnable(path)
    if path != _CLI:
        yield name, path, found
        return
    part = list[Block]()
    for _, examples in groupby(found, lambda block: block.text.split()[:2]):
        part += examples
        if len(part) >= _AT_ONCE:
            yield f"{name} to line {part[-1].line}", path, part
            part = []
    yield name, path, part


_PARTS = [part for path in documents() if path != _AGENTS for part in _parts(path) if part[2]]


@pytest.mark.parametrize(
    ("path", "found"), [pytest.param(*part[1:], id=part[0]) for part in _PARTS]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_it_says_works(
    path: Path, found: list[Block], server: Server, sandbox_image: str, tmp_path: Path
) -> None:
    await _close_all(server)
    # Several documents make keys with the same names.
    (server.state_dir / "keys.toml").unlink(missing_ok=True)
    (tmp_path / "data").symlink_to(server.state_dir)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "test_it.py").write_text("import unittest\n")
    (tmp_path / "test_it.py").write_text(
        "import unittest\nclass It(unittest.TestCase):\n    def test_it(self): pass\n"
    )
    steps = [_step(path, block, tmp_path, server.url) for block in found]
    script = "\n".join(["set -aeu", f"auth='Authorization: Bearer {server.key}'", *steps])
    script = script.replace(_URL, server.url)
    status, output = await finished(
        *("bash", "-c", script),
        cwd=tmp_path,
        env={**reader_environment(server, tmp_path / "bin"), "PADDOCK_IMAGE": sandbox_image},
        seconds=SECONDS,
    )
    assert status == 0, output[-4000:]


def _step(path: Path, block: Block, directory: Path, url: str) -> str:
    """A part of the document's script, with the session it needs and the expected result."""
    where = f"echo '--- {path.name}, line {block.line}' >&2\n"
    if block.language == "python":
        program = directory / f"block{block.line}.py"
        program.write_text(block.text.replace(_URL, url))
        return f"{where}python {program}"
    kind, _, value = block.note.partition(": ")
    text = block.text
    if kind == "runs on":
        # A separate shell with the variables of the previous blocks.
        text = f"ended=0\ntimeout {_STREAM_SECONDS} bash -c {shlex.quote(text)} || ended=$?"
        text += '\n[ "$ended" = 124 ]'
    elif kind == "exit":
        text = f'ended=0\n(\n{text}\n) || ended=$?\n[ "$ended" = {value} ]'
    if path == _CLI and block.text.startswith("paddock refine"):
        text = f"{text}\n{_CLOSED}"
    return where + (_prelude(block.text) if path == _CLI else "") + text


def _prelude(example: str) -> str:
    if example.startswith("paddock sessions create"):
        return _CLOSED
    if example.startswith(("paddock misses", "paddock refine")):
        return _CLOSED + _MISSED
    egress = example.startswith("paddock egress")
    steps = (
        (_FRESH.replace("LEVEL", "out" if egress else "high"), "web-1" in example),
        (_DENIED, egress),
        (_FILES, example.startswith("paddock files")),
        (_LISTED, example.startswith(("paddock images add", "paddock images remove"))),
        (_SECRET, example.startswith("paddock secrets")),
        (_PAUSED, example.startswith("paddock sessions resume")),
    )
    return "".join(text for text, needed in steps if needed)
