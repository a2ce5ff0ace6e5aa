"""The `session` program in real sandboxes: what it tells, and what it can't reach."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from api.views.packs import pack_of
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.policy.session_policy import SAFE_EDIT
from orchestrator.state.requests import NewSession
from paddock import pack
from sandbox_agent.decide.globs import Globs
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box
from tests.support.plane import clear, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

EDITS = replace(
    SAFE_EDIT,
    name=None,
    denied_operations=frozenset(),
    world_rules=replace(SAFE_EDIT.world_rules, write_patterns=Globs(["src/**/*"])),
)
_STORM = """
import socket
clients = []
for _ in range(1000):
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    clients.append(client)
    try:
        client.connect("/run/paddock-session/questions.sock")
        client.send(b"[" * 4000)
    except BlockingIOError:
        break
print(len(clients) > 8)
"""


async def test_it_tells_about_its_own_session(new_box: BoxFactory) -> None:
    box = await new_box("high", policy=EDITS)
    assert (await box.run("session id")).stdout == f"{box.session.id}\n"
    assert (await box.run("session --json budget tokens")).stdout == "null\n"
    assert (await box.run("session allowed world.write src/a.py")).exit_code == 0
    refused = await box.run("session allowed world.write a.py")
    assert (refused.exit_code, refused.stdout) == (1, "Write not allowed: a.py\n")
    wrong = await box.run("session whatever")
    assert wrong.exit_code == 2
    assert "usage: session" in wrong.stderr


async def test_what_it_proposes_is_staged_where_the_policy_permits(new_box: BoxFactory) -> None:
    box = await new_box("high", policy=EDITS)
    done = await box.run("session propose src/new/a.py", stdin="x = 1\n")
    assert done.exit_code == 0, done.stderr
    for path in ("a.py", "/etc/a.py", "src/../a.py"):
        assert (await box.run(f"session propose {path}", stdin="x")).exit_code != 0
    told = json.loads((await box.run("session --json proposals")).stdout)
    assert [each["ref"] for each in told if each["ref"].endswith(".py")] == ["src/new/a.py"]
    assert not (box.workspace / "src" / "new").exists()


async def test_a_session_with_a_pack_asks_without_a_miss(
    new_box: BoxFactory, tmp_path: Path
) -> None:
    (tmp_path / "listed").write_text("x")
    given = pack(tmp_path, shell=["session *"])
    before = await new_box("high", id="packed")
    await before.write("listed", b"x")
    await before.plane.sessions.close(TESTER, before.session, purge=False)
    box = await new_box("high", id="packed", consume=pack_of(given))
    assert (await box.run("session id")).stdout == f"{box.session.id}\n"
    refused = await box.run("session proposals")
    assert (refused.exit_code, "context pack" in refused.stderr) == (3, True)
    assert box.session.live


async def test_a_storm_of_questions_ends_with_its_command(new_box: BoxFactory) -> None:
    box = await new_box("high")
    assert (await box.python(_STORM)).stdout == "True\n"
    assert (await box.run("session id")).stdout == f"{box.session.id}\n"


async def test_levels_that_list_commands_do_not_have_it(low: Box) -> None:
    with pytest.raises(PermissionDeniedError, match="session"):
        await low.run("session id")


async def test_it_is_answered_after_a_restart(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane:
            request = NewSession(id="asking", permission_level="high")
            await plane.sessions.create(TESTER, request)
        async with running(settings) as plane:
            box = Box(plane, plane.sessions.finder.find(TESTER, "asking"))
            assert (await box.run("session id")).stdout == "asking\n"
            await clear(plane)
