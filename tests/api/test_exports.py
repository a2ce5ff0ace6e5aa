"""Exports of a control plane: what happens in sessions arrives without secrets."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.operate.exports import export
from orchestrator.settings.operator_exports import OperatorExport
from orchestrator.settings.settings import Settings
from tests.api.conftest import Api
from tests.api.test_observability import scrape
from tests.support.receiver import ERROR, OK, Receiver, receiving
from tests.support.restart import reopened
from tests.support.until import until

SECRET = "hunter2-hunter2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


@pytest.fixture
async def receiver() -> Any:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
def settings(
    settings: Settings, path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setattr(export, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(export, "LONGEST_PAUSE", 0.01)
    exports = {"disk": OperatorExport(file=path), "lake": OperatorExport(url=receiver.url)}
    return settings.model_copy(update={"exports": exports, "export_hold_bytes": 10**9})


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def last_is(path: Path, operation: str) -> bool:
    return any(event["metadata"]["event_code"] == operation for event in events(path))


async def test_what_is_on_record_arrives_without_secrets(
    api: Api, path: Path, settings: Settings
) -> None:
    session = await api.session(secrets={"TOKEN": SECRET}, permission_level="high")
    where = f"/api/sessions/{session['id']}"
    await api.json("POST", where + "/exec", json={"command": f"echo {SECRET}"})
    await api.json("DELETE", where)
    await until(lambda: last_is(path, "session.terminated"))
    assert SECRET not in path.read_text()
    recorded = (await api.json("GET", where + "/audit"))["items"]
    found = [e for e in events(path) if e["actor"].get("session") == {"uid": session["id"]}]
    assert [e["metadata"]["uid"] for e in found] == [event["hash"] for event in recorded]
    assert [e["metadata"]["sequence"] for e in found] == [*range(1, len(recorded) + 1)]
    launch = next(e for e in found if e["metadata"]["event_code"] == "command.start")
    assert launch["process"]["cmd_line"].startswith("echo ")
    assert launch["class_uid"] == 1007


async def test_a_restart_goes_on(api: Api, path: Path, settings: Settings) -> None:
    await api.session(id="first")
    await until(lambda: last_is(path, "session.create"))
    await api.plane.close()
    number = len(events(path))
    plane = await reopened(settings, api.engine, api.agents)
    try:
        await until(lambda: len(events(path)) > number)
    finally:
        await plane.close()
    sequence = [(e["metadata"]["log_name"], e["metadata"]["sequence"]) for e in events(path)]
    for chain in {chain for chain, _ in sequence}:
        found = list(dict.fromkeys(seq for each, seq in sequence if each == chain))
        assert found == [*range(1, len(found) + 1)]


async def test_ended_sessions_wait_for_exports_within_a_bound(
    api: Api, path: Path, receiver: Receiver
) -> None:
    receiver.answer = lambda _: ERROR
    session = await api.session()
    await api.json("DELETE", f"/api/sessions/{session['id']}")
    await until(lambda: last_is(path, "session.terminated"))
    await until(lambda: bool(receiver.requests))
    archiving = api.plane.archiving
    assert (await archiving.run(timedelta(0), "admin")).archived == []
    series = await scrape(api)
    assert series['paddock_export_lag_events{export="lake"}'] > 0
    assert series['paddock_export_failures_total{export="lake"}'] > 0
    # Above the bound it is archived, which says what is missing.
    archiving._hold_bytes = 0
    (archived,) = (await archiving.run(timedelta(0), "admin")).archived
    await until(lambda: last_is(path, "audit.archived"))
    (told,) = (e for e in events(path) if e["metadata"]["event_code"] == "audit.archived")
    assert told["unmapped"]["args"]["unsent_events"] == archived.seq
    receiver.answer = lambda _: OK
    await until(lambda: b"audit.archived" in receiver.requests[-1].body)
