"""What is kept of an owner: shown, exported, and erased so that no byte of it is left."""

import json
import sqlite3
import tarfile
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.operate.backups import backup
from orchestrator.settings.settings import Settings
from paddock import Paddock
from paddock.audit import archive_file
from paddock.audit.chain import verify_chain
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cli import run_beside
from tests.support.owned import CANARY, REASON, holding, used
from tests.support.until import until

OWNER = "/api/owners/operator"


class LongAfter(datetime):
    """A clock of the archiver that is far ahead: everything that a test does is long ago."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(days=365)


async def test_nothing_of_an_erased_owner_is_left(
    api: Api, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.archiving.datetime", LongAfter)
    await used(api, "archived", OPERATOR_KEY)
    await api.json("POST", "/api/audit/archives", json={"older_than": 60})
    await used(api, "web-1", OPERATOR_KEY)
    await used(api, "kept", OTHER_KEY)
    before = await api.json("GET", "/api/sessions/web-1/audit/verify")
    assert [*holding(settings.state_dir)]
    done = await api.json("POST", OWNER + "/erase", json=REASON)
    assert (done["sessions"], done["archives"], done["memory"]) == (2, 1, 2)
    assert done["events"] > 5
    assert (done["removed_chains"], done["old_events"]) == (0, 0)
    # The other owner's content is all that is left: its canary is the same word.
    await api.json("POST", "/api/owners/other/erase", json=REASON)
    assert [*holding(settings.state_dir)] == []
    target = tmp_path / "backup.tar"
    backup.take(settings, target, lambda *_: None, workspaces=True)
    assert CANARY.encode() not in target.read_bytes()

    after = await api.json("GET", "/api/sessions/web-1/audit/verify")
    assert (after["ok"], after["seq"], after["hash"]) == (True, before["seq"], before["hash"])
    exported = await (await api.call("GET", "/api/sessions/web-1/audit/export")).text()
    assert verify_chain(exported.splitlines()).hash == before["hash"]
    (file,) = settings.archive_path.glob("*" + archive_file.SUFFIX)
    assert archive_file.verify(file).verdict.ok
    listed = (await api.json("GET", "/api/audit/archives"))["items"]
    assert [each["sha256"] for each in listed] == [archive_file.verify(file).seal.sha256]
    assert (await api.json("GET", "/api/audit?session=web-1"))["items"][0]["args"] == {}


async def test_an_erasure_touches_nobody_else(api: Api, settings: Settings) -> None:
    await used(api, "web-1", OPERATOR_KEY)
    await used(api, "kept", OTHER_KEY)
    before = await (await api.call("GET", "/api/sessions/kept/audit/export")).text()
    assert CANARY in before
    await api.json("POST", OWNER + "/erase", json=REASON)
    assert await (await api.call("GET", "/api/sessions/kept/audit/export")).text() == before
    assert len((await api.json("GET", "/api/memory", key=OTHER_KEY))["items"]) == 1
    assert (await api.json("GET", "/api/memory", key=OPERATOR_KEY))["items"] == []
    root = settings.workspaces_dir / "kept" / "kept.txt"
    assert root.read_text() == CANARY


async def test_it_is_on_record_and_may_be_repeated(api: Api) -> None:
    await used(api, "web-1", OPERATOR_KEY)
    await api.json("POST", OWNER + "/erase", json=REASON)
    again = await api.json("POST", OWNER + "/erase", json=REASON)
    assert (again["events"], again["memory"]) == (0, 0)
    events = (await api.json("GET", "/api/audit?operation=owner.erase"))["items"]
    assert [(each["actor"], each["args"]) for each in events] == [
        ("admin", {"key": "operator", **REASON})
    ] * 2
    ends = (await api.json("GET", "/api/audit?operation=owner.erased"))["items"]
    assert [each["result"]["sessions"] for each in ends] == [1, 1]
    assert (await api.json("GET", "/api/sessions/web-1/audit/verify"))["ok"]


async def test_live_sessions_are_named_and_nothing_changes(api: Api, settings: Settings) -> None:
    await used(api, "web-1", OPERATOR_KEY)
    await api.session(id="live-1", key=OPERATOR_KEY)
    for what in ("erase", "export"):
        body = REASON if what == "erase" else {}
        problem = await api.problem(409, "conflict", "POST", f"{OWNER}/{what}", json=body)
        assert "live-1" in problem["detail"]
    assert [*holding(settings.state_dir)]
    assert (await api.json("GET", "/api/audit?operation=owner.erase"))["items"] == []


async def test_what_is_gone_already_stops_no_erasure(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.archiving.datetime", LongAfter)
    await used(api, "archived", OPERATOR_KEY)
    await api.json("POST", "/api/audit/archives", json={"older_than": 60})
    (file,) = settings.archive_path.glob("*" + archive_file.SUFFIX)
    file.unlink()
    left = settings.state_dir / "exports" / ".operator"
    left.mkdir(parents=True)
    (left / "memory.jsonl").write_text(CANARY)
    await api.json("POST", OWNER + "/erase", json=REASON)
    assert [*holding(settings.state_dir)] == []
    assert (await api.json("GET", "/api/audit/archives"))["items"] == []


async def test_bad_input(api: Api) -> None:
    for body in ({}, {"reason": ""}, {"reason": "x" * 513}, {"reason": 1}, {**REASON, "a": 1}):
        await api.problem(400, "validation_error", "POST", OWNER + "/erase", json=body)
    await api.problem(404, "not_found", "POST", "/api/owners/..%2fx/export", json={})
    await api.problem(
        403, "permission_denied", "POST", OWNER + "/erase", json=REASON, key=OPERATOR_KEY
    )


async def test_chains_of_earlier_versions_are_removed_with_their_heads_on_record(
    api: Api, settings: Settings
) -> None:
    await used(api, "web-1", OPERATOR_KEY)
    before = await api.json("GET", "/api/sessions/web-1/audit/verify")

    def age(connection: sqlite3.Connection) -> None:
        connection.execute(
            "UPDATE events SET body = json_remove(body, '$.salt') WHERE session_id = 'web-1'"
        )

    await api.plane.database.write(age)
    done = await api.json("POST", OWNER + "/erase", json=REASON)
    assert done["removed_chains"] == 1
    assert [*holding(settings.state_dir)] == []
    (event,) = (await api.json("GET", "/api/audit?operation=audit.erased"))["items"]
    assert event["result"]["head"] == {"seq": before["seq"], "hash": before["hash"]}


@pytest.mark.parametrize(
    "point",
    [FaultPoint.ERASE_RECORDED, FaultPoint.ERASE_FILES_REMOVED, FaultPoint.ERASE_ROWS_ERASED],
)
async def test_a_start_goes_on_with_an_erasure(
    api: Api,
    settings: Settings,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    point: FaultPoint,
) -> None:
    await used(api, "web-1", OPERATOR_KEY)

    def reached(here: FaultPoint) -> None:
        if here is point:
            raise StoreError("the disk is gone")

    monkeypatch.setattr(FaultPoint, "reached", reached)
    assert (await api.call("POST", OWNER + "/erase", json=REASON)).status >= 500
    monkeypatch.undo()
    await api.plane.close()
    plane = await ControlPlane.open(settings, engine)
    try:
        await until(lambda: not [*holding(settings.state_dir)])
    finally:
        await plane.close()


async def test_an_export_has_everything(api: Api, settings: Settings) -> None:
    await used(api, "web-1", OPERATOR_KEY)
    await used(api, "other-1", OTHER_KEY)
    made = await api.json("POST", OWNER + "/export", json={})
    (file,) = made["files"]
    assert (made["owner"], made["missing"], file["node"]) == ("operator", [], None)
    assert file["sessions"] == 1
    with tarfile.open(file["file"]) as archive:
        names = archive.getnames()
        (chain,) = [name for name in names if name.startswith("chains/")]
        data = archive.extractfile(chain)
        assert data is not None
        lines = data.read().decode().splitlines()
        assert verify_chain(lines).ok
        assert any(CANARY in line for line in lines)
        memory = archive.extractfile("memory.jsonl")
        assert memory is not None
        assert json.loads(memory.read())["text"] == f"note {CANARY}"
        kept = archive.extractfile("workspaces/web-1/kept.txt")
        assert kept is not None
        assert kept.read() == CANARY.encode()
    assert not any("other-1" in name for name in names)
    (event,) = (await api.json("GET", "/api/audit?operation=owner.export"))["items"]
    assert event["result"]["sha256"] == file["sha256"]
    assert Path(file["file"]).stat().st_mode & 0o77 == 0


async def test_the_commands(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    await used(api, "web-1", OPERATOR_KEY)
    shown = await run_beside("retention")
    assert "PADDOCK_AUDIT_RETENTION" in shown.out
    exported = await run_beside("owners", "export", "operator", "--json")
    (file,) = json.loads(exported.out)["files"]
    assert file["sessions"] == 1
    refused = await run_beside("owners", "erase", "operator", "--reason", "r")
    assert (refused.status, "--yes" in refused.err) == (2, True)
    erased = await run_beside("owners", "erase", "operator", "--reason", "r", "--yes", "--json")
    found: dict[str, Any] = json.loads(erased.out)
    assert (found["owner"], found["memory"]) == ("operator", 1)
    assert not Path(file["file"]).exists()


async def test_the_client(api: Api) -> None:
    async with Paddock(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
        kinds = await paddock.owners.retention()
        assert {"named snapshots", "backups"} <= {each.what for each in kinds}
