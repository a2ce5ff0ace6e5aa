"""Suspended sessions with real containers: nothing of the sandbox stays, and all files do."""

import asyncio
import hashlib
from contextlib import closing, suppress
from pathlib import Path

import docker
import pytest

from images.builder import build
from orchestrator.ground.errors import ConflictError, SessionTerminatedError
from orchestrator.operate.backups.backup import take
from orchestrator.operate.backups.restoration import restore
from orchestrator.record.audit import query
from orchestrator.record.audit.verification import verify
from orchestrator.state.pack import Pack, PackFile
from paddock.contract.pack_form import ToolClass
from paddock.contract.words import Rationale
from tests.support.box import TESTER, Box
from tests.support.leaks import assert_kept_are_whole, instance
from tests.support.plane import opened, running, state
from tests.support.server import Server, serving

_KEEP = "umask 077; echo kept > file; ln -s file link; mkdir d; echo $$ > /tmp/gone; id -u"


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


async def test_it_gets_a_sandbox_again_with_its_files_level_and_uid(sandbox_image: str) -> None:
    async with opened(image=sandbox_image, max_active=1) as plane:
        first = await Box.create(plane, "high", budget={"commands": 100, "cpu_seconds": 60})
        uid = (await first.bash(_KEEP)).stdout
        sandbox = first.session.sandbox
        assert sandbox is not None
        second = await Box.create(plane, "low")
        assert first.session.suspended
        assert await plane.engine.inspect(sandbox.container_id) is None
        assert not sandbox.directory.path.exists()
        async with plane.sessions.suspensions.using(TESTER, first.session):
            seen = await first.bash("cat link; stat -c %a file d; test ! -e /tmp/gone; id -u")
            assert (seen.exit_code, seen.stdout) == (0, f"kept\n600\n700\n{uid}")
        assert second.session.suspended
        assert len(await plane.engine.list()) == 1
        # At another level, and through the same start as a new session.
        await plane.sessions.changes.set_level(TESTER, second.session, "medium", {})
        async with plane.sessions.suspensions.using(TESTER, second.session):
            assert second.session.level.name == "medium"
            assert (await second.run("pwd")).stdout == "/workspace\n"
        found = await query.events(plane.database, first.session.key, limit=100)
        told = [event["operation"] for event in found if event["operation"].startswith("session.")]
        once = ["session.suspended", "session.restored"]
        assert told == ["session.create", *once, "session.suspended"]


async def test_a_context_pack_is_in_force_again_before_the_next_command(
    sandbox_image: str,
) -> None:
    async with opened(image=sandbox_image) as plane:
        whole = await Box.create(plane, "high", id="packed")
        await whole.bash("echo listed > listed; echo canary > secret")
        await plane.sessions.close(TESTER, whole.session, purge=False)
        digest = hashlib.sha256(b"listed\n").hexdigest()
        entry = PackFile("/workspace/listed", f"sha256:{digest}")
        tools = frozenset({ToolClass.READ, ToolClass.EXECUTE})
        pack = Pack("given", "", files={entry.path: entry}, tools=tools, commands=("*",))
        box = await Box.create(plane, "high", id="packed", consume=pack)
        suspensions = plane.sessions.suspensions
        assert await suspensions.suspend(box.session, "room")
        # Another file under the listed name: it stays suspended, and its pack is not weakened.
        (box.workspace / "listed").write_text("canary")
        with pytest.raises(ConflictError):
            async with suspensions.using(TESTER, box.session):
                pass
        assert box.session.suspended
        (box.workspace / "listed").write_text("listed\n")
        async with suspensions.using(TESTER, box.session):
            assert (await box.run("cat listed")).stdout == "listed\n"
            with suppress(SessionTerminatedError):
                missed = await box.run("cat secret")
                assert "canary" not in missed.stdout + missed.stderr
        await box.event("coordination.context_refinement_request")
        async with box.session.lock:  # until nothing of it is left
            pass
        assert box.session.termination is not None
        assert box.session.termination.rationale_code is Rationale.CONTEXT_MISS


async def test_a_suspended_session_goes_on_from_a_backup(
    sandbox_image: str, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    with state(image=sandbox_image) as before, state(image=sandbox_image) as after:
        async with running(before) as plane:
            box = await Box.create(plane, "low", id="kept")
            await box.write("file", b"of that time")
            uid = box.session.workspace.uid
            assert await plane.sessions.suspensions.suspend(box.session, "idle")
            taken = await asyncio.to_thread(take, before, file, lambda _text: None, workspaces=True)
            assert (taken.workspaces, taken.left_out) == (1, {})
            await box.close()
        await restore(after, file, lambda _text: None)
        async with running(after) as plane:
            session = plane.sessions.registry.get("kept")
            assert session is not None
            assert session.suspended
            again = Box(plane, session)
            async with plane.sessions.suspensions.using(TESTER, session):
                assert (await again.run("cat file")).stdout == "of that time"
            assert session.workspace.uid == uid
            assert (await verify(plane.database, session.key)).ok
            await again.close()


async def test_suspended_sessions_outlive_a_killed_control_plane(tmp_path: Path) -> None:
    async with serving(tmp_path / "state", PADDOCK_MAX_ACTIVE="1") as server:
        for name in ("one", "two"):
            body = {"id": name, "permission_level": "low"}
            await server.ok("POST", "/api/sessions", body)
            url = f"/api/sessions/{name}/files?path=file"
            async with server.client.put(url, data=name.encode()) as answer:
                assert answer.status == 200
        await server.kill()
        await server.start()
        assert await _activities(server) == {"one": "suspended", "two": "idle"}
        path = "/api/sessions/one/exec"
        assert (await server.ok("POST", path, {"command": "cat file"}))["stdout"] == "one"
        await server.kill()
        await server.start()
        assert await _activities(server) == {"one": "idle", "two": "suspended"}
        with closing(docker.APIClient(version="auto")) as client:
            label = f"paddock.instance={instance(server.state_dir)}"
            assert len(client.containers(all=True, filters={"label": label})) == 1
        for name in ("one", "two"):
            assert (await server.ok("GET", f"/api/sessions/{name}/audit/verify"))["ok"]
            await server.ok("DELETE", f"/api/sessions/{name}?purge=true")
        assert_kept_are_whole(server.state_dir)


async def _activities(server: Server) -> dict[str, str]:
    page = await server.ok("GET", "/api/sessions")
    return {item["id"]: item["activity"] for item in page["items"]}
