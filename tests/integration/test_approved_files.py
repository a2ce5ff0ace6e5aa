"""A tool reads exactly the file that a person approved, whatever happens to it meanwhile."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.work.terminals.line_record import Exchange
from tests.support.box import TESTER, Box
from tests.support.plane import opened
from tests.support.tool import results

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MANIFEST = """
[tool]
name = "reader"
mode = "session"
[session]
startup_command = "dash -i"
ready_pattern = "^reader> $"
[session.env]
PS1 = "reader> "
[session.interaction]
output_wait_ms = 120_000
[session.commands.read]
pattern = "^dash slow.sh (?P<file>[a-z.]+)$"
human_approval = true
[session.commands.read.args.file]
type = "path"
bind = true
[session.commands.say]
pattern = "^echo [a-z]+$"
[output]
"""
# Waits for a signal long after its start, then reads the file that it was given.
_SLOW = """
echo "$1" > started
read -r go < changed
while read -r line; do echo "it is $line"; done < "$1"
"""
_FAST = 'while read -r line; do echo "it is $line"; done < "$1"\n'
_ATTACK = """
import json, os, sys
path = sys.argv[1]
folder = os.path.dirname(path)
def failed(attempt):
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "done"
print(json.dumps([
    failed(lambda: open(path, "w")),
    failed(lambda: os.unlink(path)),
    failed(lambda: os.chmod(path, 0o777)),
    failed(lambda: os.rename(path, "/tmp/mine")),
    failed(lambda: os.rename(folder, "/tmp/mine")),
    failed(lambda: os.rmdir(folder)),
    failed(lambda: open(folder + "/more", "w")),
]))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    tools = tmp_path_factory.mktemp("tools")
    (tools / "reader.clad.toml").write_text(_MANIFEST)
    async with opened(image=sandbox_image, tools_dir=tools) as plane:
        yield plane


async def test_what_changes_the_file_later_changes_nothing(plane: ControlPlane) -> None:
    box = await Box.create(plane, "high")
    terminal, copy, reading = await _reading(box)
    await box.write("web.yaml", b"evil\n")
    assert (await box.python(_ATTACK, copy)).value == ["PermissionError"] * 7
    await box.bash("echo go > changed")
    assert results(await reading).output == "it is good"
    # The next line removes the copy.
    assert await _says(box, terminal, "reader.say", "echo done") == "done"
    assert (await box.bash(f"test -e {copy.rpartition('/')[0]}")).exit_code == 1
    await box.close()


async def test_the_end_of_the_terminal_removes_its_copies(plane: ControlPlane) -> None:
    box = await Box.create(plane, "high")
    terminal, copy, reading = await _reading(box)
    await plane.terminals.close(box.session, terminal)
    assert (await reading).status == "error"
    assert (await box.bash(f"test -e {copy.rpartition('/')[0]}")).exit_code == 1
    await box.close()


async def test_a_confined_tool_reads_the_copy(plane: ControlPlane) -> None:
    box = await Box.create(plane, "medium")
    await box.write("slow.sh", _FAST.encode())
    await box.write("web.yaml", b"good\n")
    terminal = await _open(box)
    await _approve(box, terminal)
    assert await _says(box, terminal, *_READ) == "it is good"
    await box.close()


_READ = ("reader.read", "dash slow.sh web.yaml")


async def _reading(box: Box) -> tuple[str, str, asyncio.Task[Exchange]]:
    """A terminal, the path that its program received, and the running line."""
    await box.write("slow.sh", _SLOW.encode())
    await box.write("web.yaml", b"good\n")
    await box.bash("mkfifo started changed")
    terminal = await _open(box)
    await _approve(box, terminal)
    tools = box.plane.tools
    line = tools.interact(TESTER, box.session, terminal, *_READ, 0)
    reading = asyncio.create_task(line)
    return terminal, (await box.bash("cat started")).stdout.strip(), reading


async def _open(box: Box) -> str:
    opened = await box.plane.tools.open(TESTER, box.session, "reader")
    return opened.id


async def _approve(box: Box, terminal: str) -> None:
    tools = box.plane.tools
    pending = await tools.interact(TESTER, box.session, terminal, *_READ, 0)
    assert pending.approval is not None
    admin = Principal("admin", Role.ADMIN)
    await box.plane.approvals.decide(admin, pending.approval.id, "approve", None)


async def _says(box: Box, terminal: str, tool: str, text: str) -> str:
    tools = box.plane.tools
    envelope = await tools.interact(TESTER, box.session, terminal, tool, text, 0)
    assert envelope.status == "success", envelope
    return results(envelope).output
