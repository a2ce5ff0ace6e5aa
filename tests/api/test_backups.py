"""A backup of a running control plane, and what the next one makes of it."""

import asyncio
import os
from pathlib import Path

import pytest

from orchestrator.operate.backups.backup import take
from orchestrator.operate.backups.backup_file import BackupError
from orchestrator.operate.backups.contents import LEFT_OUT, roots
from orchestrator.operate.backups.restoration import restore
from orchestrator.state.directory import left_over
from tests.api.conftest import Api, served
from tests.support.restart import reopened


def quiet(_text: str) -> None:
    """Reports nothing."""


async def test_a_session_of_the_backup_ends_and_its_sandbox_goes(api: Api, tmp_path: Path) -> None:
    settings, file = api.plane.settings, tmp_path / "backup.tar"
    kept = await api.session(id="kept", permission_level="low")
    await asyncio.to_thread(take, settings, file, quiet)
    later = await api.session(id="later", permission_level="low")
    assert set(os.listdir(settings.state_dir)) <= {*roots(settings), *LEFT_OUT, "paddock.db"}
    with pytest.raises(BackupError, match="stop it first"):
        await restore(settings, file, quiet, replace=True)
    await api.plane.close()
    assert len(left_over(settings.state_dir)) == 2
    done = await restore(settings, file, quiet, replace=True)
    assert done.sessions_ended == 1

    plane = await reopened(settings, api.engine, api.agents)
    try:
        async with served(plane, api.engine, api.agents) as again:
            view = await again.json("GET", "/api/sessions/kept")
            assert view["termination"]["rationale_code"] == "crash"
            assert (await again.json("GET", "/api/sessions/kept/audit/verify"))["ok"]
            assert await again.problem(404, "not_found", "GET", f"/api/sessions/{later['id']}")
            found = await again.json("GET", "/api/audit?operation=state.restored")
            (event,) = found["items"]
            assert event["args"]["taken_at"] == done.taken_at
            assert api.engine.containers == {}
            assert left_over(settings.state_dir) == []
            # The workspace is still there, and its id still its owner's.
            assert (await again.session(id=kept["id"]))["incarnation"] == 2
            await again.json("DELETE", "/api/sessions/kept?purge=true")
    finally:
        await plane.close()
