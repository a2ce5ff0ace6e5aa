"""State directories that earlier versions have written, opened by this one.

`scripts/old_states.py` has made them with those versions' own code.
"""

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.store import database_file
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from tests.api.conftest import served
from tests.support.fake_agent import Agents

STATES = sorted((Path(__file__).parents[1] / "fixtures" / "states").glob("*.tar.xz"))
MOST_BYTES = 200 * 1024


@pytest.fixture(params=STATES, ids=lambda path: path.name.partition(".")[0])
def told(request: pytest.FixtureRequest, settings: Settings) -> dict[str, Any]:
    """What the earlier version said of the state, which is the test's now."""
    settings.state_dir.mkdir()
    with tarfile.open(request.param) as archive:
        archive.extractall(settings.state_dir, filter="data")
    found: dict[str, Any] = json.loads((settings.state_dir / "told.json").read_text())
    return found


def test_they_begin_with_the_first_version_and_are_small() -> None:
    names = [path.name.partition(".")[0] for path in STATES]
    assert names[0].endswith("-8949c776")
    assert len(names) >= 5
    assert max(path.stat().st_size for path in STATES) < MOST_BYTES


async def test_nothing_of_it_is_lost(
    told: dict[str, Any], settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    """Twice, as a migrated state is opened like any other."""
    for _ in range(2):
        plane = await ControlPlane.open(settings, engine)
        try:
            async with served(plane, engine, agents) as api:
                listed = await api.json("GET", "/api/sessions?status=ended")
                assert {each["id"] for each in listed["items"]} == {"ended", "live", "again"}
                for name, events in told["sessions"].items():
                    path = f"/api/sessions/{name}/audit"
                    audit = await api.json("GET", f"{path}?limit=500")
                    found = [[e["seq"], e["operation"], e["hash"]] for e in audit["items"]]
                    assert found[: len(events)] == events
                    assert (await api.json("GET", f"{path}/verify"))["ok"] is True
                # The machine that ran what was live is gone, and that is on record.
                ended = await api.json("GET", "/api/sessions/live")
                assert ended["termination"]["exit_classification"] == "FAILURE"
                search = await api.json("GET", "/api/audit?operation=command.exit&limit=500")
                assert search["items"]
        finally:
            await plane.close()
    with closing(sqlite3.connect(settings.state_dir / "paddock.db")) as database:
        (schema,) = database.execute("SELECT max(version) FROM schema_version").fetchone()
        assert schema == database_file.newest_schema()
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_session_of_that_time_begins_again(
    told: dict[str, Any], settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    try:
        async with served(plane, engine, agents) as api:
            await api.session(id="live", permission_level="low")
            await api.json("POST", "/api/sessions/live/exec", json={"argv": ["ls"]})
            await api.call("DELETE", "/api/sessions/live")
    finally:
        await plane.close()


async def test_the_newest_state_is_of_this_schema() -> None:
    """A schema that is released gets a state: `python -m scripts.old_states`."""
    newest = int(STATES[-1].name[:4])
    assert newest <= database_file.newest_schema()


async def test_an_earlier_version_refuses_it_and_changes_nothing(
    settings: Settings, engine: FakeEngine
) -> None:
    """A downgrade: the program knows fewer schemas than the state has."""
    plane = await ControlPlane.open(settings, engine)
    await plane.close()
    path = settings.state_dir / "paddock.db"
    newer = database_file.newest_schema() + 1
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO schema_version VALUES (?, 'later', '')", (newer,))
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with pytest.raises(StoreError) as refused:
        await ControlPlane.open(settings, engine)
    text = str(refused.value)
    assert f"has schema {newer}, but this Paddock knows schemas up to {newer - 1}" in text
    assert "run the version that wrote it" in text
    assert "\n" not in text
    assert path.read_bytes() == before
