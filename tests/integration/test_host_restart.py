"""The host restarts in the middle: sessions end as crashes, their workspaces can be used."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from images.builder import build
from tests.support.host_restart import restart_host
from tests.support.leaks import (
    NO_WORKSPACES,
    NONE_AHEAD,
    NOTHING,
    assert_kept_are_whole,
    left_behind,
    made_ahead,
    networks,
    workspaces_left,
)
from tests.support.server import Server, serving

LEVELS = ("low", "medium", "high")
PROPOSING = {
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["**/*"],
        "read_only": False,
        "proposal_mode": True,
    }
}


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build(report=lambda _line: None)


async def create(server: Server, name: str, level: str, **more: Any) -> str:
    body = {"id": name, "permission_level": level, **more}
    return str((await server.ok("POST", "/api/sessions", body))["id"])


async def write(server: Server, session: str, text: str) -> None:
    path = f"/api/sessions/{session}/files?path=kept"
    async with server.client.put(path, data=text.encode()) as response:
        assert response.status < 300, await response.text()


async def read(server: Server, session: str) -> str:
    async with server.client.get(f"/api/sessions/{session}/files?path=kept") as response:
        assert response.status == 200, await response.text()
        return await response.text()


async def run(server: Server, session: str, argv: list[str], **more: Any) -> dict[str, Any]:
    path = f"/api/sessions/{session}/exec"
    result: dict[str, Any] = await server.ok("POST", path, {"argv": argv, **more})
    return result


def uids(server: Server) -> dict[str, int]:
    """The workspaces' uids by their names."""
    with closing(sqlite3.connect(server.state_dir / "paddock.db")) as connection:
        return dict(connection.execute("SELECT id, uid FROM workspaces"))


async def gap(server: Server, session: str) -> list[str]:
    """The commands whose ends are on record as unknown."""
    path = f"/api/sessions/{session}/audit?operation=audit.gap"
    gaps = (await server.ok("GET", path))["items"]
    return [command for event in gaps for command in event["args"]["commands"]]


@pytest.mark.parametrize("gone", [False, True], ids=["ended", "gone"])
async def test_sessions_end_as_crashes_and_their_workspaces_go_on(
    tmp_path: Path, gone: bool
) -> None:
    async with serving(tmp_path / "state", PADDOCK_MAX_ACTIVE="5") as server:
        suspended = await create(server, "suspended", "low")
        await write(server, suspended, "suspended")
        for level in LEVELS:
            await write(server, await create(server, level, level), level)
        paused = await create(server, "paused", "low")
        await write(server, paused, paused)
        command = await run(server, "high", ["sleep", "1000"], background=True)
        staged = await create(server, "staged", "low", policy=PROPOSING)
        await write(server, staged, staged)
        shown = await server.ok("GET", f"/api/sessions/{suspended}")
        assert shown["activity"] == "suspended", shown
        await server.ok("POST", f"/api/sessions/{paused}/pause")
        lost = [*LEVELS, paused, staged]
        given = uids(server)

        await server.kill()
        restart_host(server.state_dir, containers_gone=gone)
        await server.start()

        for name in lost:
            session = await server.ok("GET", f"/api/sessions/{name}")
            assert session["status"] == "aborted", session
            assert session["termination"]["rationale_code"] == "crash", session
        assert await gap(server, "high") == [command["command_id"]]
        # The one that had no sandbox lost nothing.
        assert await read(server, suspended) == suspended
        assert (await run(server, suspended, ["pwd"]))["stdout"] == "/workspace\n"
        await server.ok("DELETE", f"/api/sessions/{suspended}")
        assert left_behind(server.state_dir) == NOTHING
        assert networks(server.state_dir) == []

        for name in lost:
            await create(server, name, "high" if name == "high" else "low")
            # What was not committed is not in its workspace.
            there = "" if name == staged else "kept\n"
            assert (await run(server, name, ["ls"]))["stdout"] == there
            if there:
                assert await read(server, name) == name
            verdict = await server.ok("GET", f"/api/sessions/{name}/audit/verify")
            assert verdict["ok"]
        assert_kept_are_whole(server.state_dir)
        assert uids(server) == given
        for name in [*lost, suspended]:
            await server.ok("DELETE", f"/api/sessions/{name}?purge=true")
        assert left_behind(server.state_dir) == NOTHING
        assert workspaces_left(server.state_dir) == NO_WORKSPACES
    assert made_ahead(server.state_dir) == NONE_AHEAD
    assert networks(server.state_dir) == []
