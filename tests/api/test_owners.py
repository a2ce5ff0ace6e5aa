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
from tests.api.test_named_snapshots import kept
from tests.support.cli import run_beside
from tests.support.owned import CANARY, REASON, has_itself, holding, used
from tests.support.until import until

OWNER = "/api/owners/operator"


class LongAfter(datetime):
    """A clock of the archiver that is far ahead: everything that a test does is long ago."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(days=365)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"hook_prefixes": ("http://127.0.0.1:9/",)})


async def worked(api: Api, settings: Settings) -> None:
    """All sessions have histories of turns and an approval, and the operator a snapshot."""

    def add(connection: sqlite3.Connection) -> None:
        for key, name, owner in connection.execute(
            "SELECT key, id, owner FROM sessions"
        ).fetchall():
            of, at = (key, 1), "2026-03-04T09:30:12.482113Z"
            for number in range(120):
                row = (key, number, 1, at, json.dumps({"text": f"{CANARY}-{number}"}))
                connection.execute("INSERT INTO timeline VALUES (?, ?, ?, ?, ?)", row)
            connection.execute(
                "INSERT INTO turns (session_key, number, started_at, actor, result)"
                " VALUES (?, ?, ?, 'ci', ?)",
                (*of, at, CANARY),
            )
            connection.execute("INSERT INTO turn_notes VALUES (?, ?)", (key, CANARY))
            connection.execute(
                "INSERT INTO approvals (id, session_key, session_id, owner, terminal_id, tool,"
                " text, risk_tier, status, requested_by, requested_at)"
                " VALUES (?, ?, ?, ?, 't', 'psql.drop', ?, 'high', 'denied', 'ci', ?)",
                (f"a-{key}", key, name, owner, CANARY, at),
            )

    await api.plane.database.write(add)
    await kept(api, "base", metadata=json.dumps({"is": CANARY}))
    settings.snapshots_path.mkdir(exist_ok=True)
    (image,) = api.plane.named_snapshots.paths(
        (await api.plane.named_snapshots.show("operator", "base")).snapshot
    )[:1]
    image.write_text(f"an image with {CANARY}")


async def test_nothing_of_an_erased_owner_is_left(
    api: Api, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.archiving.datetime", LongAfter)
    await used(api, "archived", OPERATOR_KEY)
    await api.json("POST", "/api/audit/archives", json={"older_than": 60})
    await used(api, "web-1", OPERATOR_KEY)
    await used(api, "kept", OTHER_KEY)
    await has_itself(api, OPERATOR_KEY)
    await worked(api, settings)
    before = await api.json("GET", "/api/sessions/web-1/audit/verify")
    assert [*holding(settings.state_dir)]
    done = await api.json("POST", OWNER + "/erase", json=REASON)
    assert (done["sessions"], done["archives"], done["memory"]) == (2, 1, 2)
    assert (done["secrets"], done["hooks"], done["snapshots"]) == (1, 1, 1)
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


def lines_of(archive: tarfile.TarFile, name: str) -> list[dict[str, Any]]:
    """The lines of one of its files."""
    data = archive.extractfile(f"{name}.jsonl")
    assert data is not None
    return [json.loads(line) for line in data.read().splitlines()]


async def test_a_start_removes_what_a_killed_export_has_left(
    api: Api, settings: Settings, engine: FakeEngine
) -> None:
    await api.plane.close()
    left = settings.state_dir / "exports" / ".operator"
    left.mkdir(parents=True)
    (left / "memory.jsonl").write_text(CANARY)
    whole = left.with_name("other.tar.gz")
    whole.write_text("an export that was made")
    plane = await ControlPlane.open(settings, engine)
    try:
        await until(lambda: not left.exists())
        assert whole.exists()
    finally:
        await plane.close()


async def test_a_user_who_signs_in_is_an_owner_too(api: Api, settings: Settings) -> None:
    await used(api, "web-1", OPERATOR_KEY)
    rename = "UPDATE sessions SET owner = 'anna@corp'"
    await api.plane.database.write(lambda each: each.execute(rename))
    made = await api.json("POST", "/api/owners/anna@corp/export", json={})
    assert made["files"][0]["sessions"] == 1
    done = await api.json("POST", "/api/owners/anna@corp/erase", json=REASON)
    assert done["sessions"] == 1
    assert not Path(made["files"][0]["file"]).exists()
    for name in ("@corp", "anna@", "a%2Fb@corp", "..@corp"):
        await api.problem(404, "not_found", "POST", f"/api/owners/{name}/export", json={})


async def test_an_export_has_everything(api: Api, settings: Settings) -> None:
    await used(api, "web-1", OPERATOR_KEY)
    await used(api, "other-1", OTHER_KEY)
    await has_itself(api, OPERATOR_KEY)
    await worked(api, settings)
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
        file_kept = archive.extractfile("workspaces/web-1/kept.txt")
        assert file_kept is not None
        assert file_kept.read() == CANARY.encode()
        timeline = lines_of(archive, "timeline")
        assert [line["seq"] for line in timeline] == [*range(120)]
        for table, member in (("approvals", "text"), ("turns", "result"), ("turn_notes", "notes")):
            assert [line[member] for line in lines_of(archive, table)] == [CANARY]
        assert CANARY in lines_of(archive, "hooks")[0]["url"]
        assert lines_of(archive, "secrets")[0]["hosts"] == [f"{CANARY}.example"]
        (image,) = [name for name in names if name.startswith("snapshots/")]
        data = archive.extractfile(image)
        assert data is not None
        assert CANARY.encode() in data.read()
        assert "a-value-of-the-key" not in str(lines_of(archive, "secrets"))
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
