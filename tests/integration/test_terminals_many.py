"""Many terminals at once, and the terminals of a killed control plane."""

import asyncio
import hashlib
import json
import sys
from pathlib import Path

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError
from orchestrator.host.workspace import mounts
from orchestrator.record.audit.verification import verify
from orchestrator.settings.settings import Settings
from tests.conftest import BoxFactory
from tests.support.box import PATIENCE, TESTER, Box
from tests.support.leaks import NOTHING, left_behind
from tests.support.plane import uid_base
from tests.support.tool import Tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]


async def test_fifty_terminals_in_ten_sessions(new_box: BoxFactory) -> None:
    boxes = await asyncio.gather(*(new_box("high") for _ in range(10)))
    tools = [await Tool.open(box, output_wait_ms=20_000) for box in boxes for _ in range(5)]
    for cycle in range(3):
        said = [f"cycle {cycle} of {tool.id}" for tool in tools]
        outputs = await asyncio.gather(
            *(tool.output(f"say {text}") for tool, text in zip(tools, said, strict=True))
        )
        assert outputs == said
    views = await asyncio.gather(*(tool.close() for tool in tools))
    assert {view.interaction_count for view in views} == {3}
    for box in boxes:
        assert box.processes() == []
        await box.close()


async def test_terminals_of_a_killed_control_plane_have_ended(
    sandbox_image: str, tmp_path: Path
) -> None:
    state_dir, base = tmp_path / "state", uid_base()
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.terminal_owner"),
        *(str(state_dir), sandbox_image, str(base)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert owner.stdout is not None
    async with asyncio.timeout(PATIENCE):
        known = json.loads(await owner.stdout.readline())
    owner.kill()
    await owner.wait()

    plane = await ControlPlane.open(
        Settings(
            state_dir=state_dir,
            image=sandbox_image,
            uid_base=base,
            min_free_memory_bytes=0,
            min_free_disk_bytes=0,
        )
    )
    try:
        box = Box(plane, plane.sessions.finder.find(TESTER, known["session"]))
        tool = Tool(box, await plane.terminals.records.get(box.session.key, known["terminal"]))
        view = await tool.view()
        assert (view.status, view.reason) == ("terminated", "control_plane_restarted")
        with pytest.raises(ConflictError, match="control_plane_restarted"):
            await tool.do("say more")
        # The program that still ran is also ended.
        assert (await box.event("pty.exit"))["result"]["reason"] == "control_plane_restarted"
        assert box.processes() == []
        text = await tool.transcript()
        assert [line.split()[1] for line in text.splitlines()] == [
            *("STARTUP", "READY", "INPUT", "OUTPUT", "INPUT", "CLOSED"),
        ]
        digest = hashlib.sha256(text.encode()).hexdigest()
        assert view.evidence is not None
        assert view.evidence.transcript_hash == f"sha256:{digest}"
        assert [event["args"]["reason"] for event in await box.events("pty.close")] == [
            "control_plane_restarted"
        ]
        # The sandbox still works.
        again = await Tool.open(box)
        assert await again.output("say again") == "again"
        await plane.sessions.close(TESTER, box.session, purge=True)
        assert (await verify(plane.database, box.session.key)).ok
        assert left_behind(state_dir) == NOTHING
    finally:
        await plane.close()
        for point in mounts.mounts_under(str(tmp_path)):
            mounts.unmount(point)


async def test_a_control_plane_that_stops_ends_its_terminals(
    sandbox_image: str, tmp_path: Path
) -> None:
    settings = Settings(
        state_dir=tmp_path / "state",
        image=sandbox_image,
        uid_base=uid_base(),
        min_free_memory_bytes=0,
        min_free_disk_bytes=0,
    )
    plane = await ControlPlane.open(settings)
    box = await Box.create(plane, "high")
    tool = await Tool.open(box)
    await plane.close()
    plane = await ControlPlane.open(settings)
    try:
        session = plane.sessions.finder.find(TESTER, box.session.id)
        view = await plane.terminals.records.get(session.key, tool.id)
        assert (view.status, view.reason) == ("terminated", "control_plane_stopped")
        await plane.sessions.close(TESTER, session, purge=True)
    finally:
        await plane.close()
