"""Metrics and the log of requests, and the files that use the metrics."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.catalog import OPERATIONS
from api.log.logs import logging_to_stdout
from orchestrator.ground.limits import LIMIT_FIELDS
from orchestrator.host.link import agent_link
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

ROOT = Path(__file__).parents[2]
DOCUMENTS = ROOT / "docs" / "operations"


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """With a template, which has a series of its own."""
    (tmp_path / "site.toml").write_text("")
    return settings.model_copy(update={"templates_dir": tmp_path})


async def scrape(api: Api) -> dict[str, float]:
    """Values by series, as a scraper reads them."""
    response = await api.call("GET", "/metrics", key=OPERATOR_KEY)
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = (await response.text()).splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {series: float(value) for series, _, value in pairs}


async def test_metrics_need_a_key(api: Api) -> None:
    handle = (await api.session())["handle"]
    await api.problem(401, "unauthorized", "GET", "/metrics", key=None)
    await api.problem(403, "permission_denied", "GET", "/metrics", key=handle)


async def test_what_happens_is_measured(api: Api) -> None:
    session = await api.session(id="a-session-of-mine", permission_level="low")
    path = f"/api/sessions/{session['id']}"
    await api.json("POST", path + "/exec", json={"command": "ls"})
    await api.problem(
        403, "permission_denied", "POST", path + "/exec", json={"command": "curl a.example"}
    )
    await api.problem(403, "permission_denied", "GET", path + "/files?path=../a")
    await api.problem(404, "not_found", "GET", "/nothing/here")
    for _ in range(3):
        api.engine.fail_next("pause")
    await api.problem(502, "sandbox_unavailable", "POST", path + "/pause", json={})
    api.engine.fail_next("create")
    await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json={})
    series = await scrape(api)
    for name, value in {
        'paddock_sessions{level="low",status="active"}': 1,
        'paddock_sessions{level="high",status="active"}': 0,
        'paddock_session_create_seconds_count{level="low"}': 1,
        'paddock_session_create_failures_total{code="engine_unavailable"}': 1,
        'paddock_command_start_seconds_count{level="low"}': 1,
        'paddock_command_seconds_count{level="low"}': 1,
        'paddock_denials_total{rule="command-allowlist"}': 1,
        'paddock_denials_total{rule="path-outside-workspace"}': 1,
        'paddock_engine_call_seconds_count{operation="create"}': 2,
        'paddock_engine_call_failures_total{operation="pause"}': 3,
        'paddock_http_requests_total{method="GET",route="other",status="404"}': 1,
        'paddock_http_requests_total{method="POST",route="/api/sessions/{session_id}/exec",'
        'status="403"}': 1,
        "paddock_audit_pending_events": 0,
        "paddock_audit_oldest_pending_seconds": 0,
        "paddock_agent_reconnects_total": 0,
        "paddock_commands_running": 0,
    }.items():
        assert series[name] == value, name
    assert series["paddock_audit_events_total"] >= 5
    assert series["paddock_host_memory_available_bytes"] > 0
    assert not any("a-session-of-mine" in name for name in series)


async def test_running_commands_and_agents_that_come_back(api: Api) -> None:
    session = await api.session()
    path = f"/api/sessions/{session['id']}"
    api.agent.plays["cat"] = Play(holds=True)
    await api.json("POST", path + "/exec", json={"command": "cat", "background": True}, status=202)
    assert (await scrape(api))["paddock_commands_running"] == 1
    sandbox = api.plane.sessions.registry.live[0].sandbox
    assert sandbox is not None
    await api.agent.close()
    await api.agent.dial(sandbox.directory.run)
    await api.json("POST", path + "/interrupt", json={})
    assert (await scrape(api))["paddock_agent_reconnects_total"] == 1


@pytest.fixture
def log(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """The log of the test, complete once the logging block has ended."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    verbose = settings.model_copy(update={"log_level": "debug", "log_format": "json"})
    with logging_to_stdout(verbose, descriptor):
        yield path
    os.close(descriptor)


def text_of(log: Path) -> str:
    for handler in logging.getLogger().handlers:
        if type(handler).__name__ == "LogWriter":
            handler.close()
    return log.read_text()


def events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(log).splitlines()]


async def test_a_line_for_each_request(log: Path, api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY, id="mine")
    response = await api.call("GET", "/api/sessions/mine/files?path=../a", key=session["handle"])
    await api.call("GET", "/healthz", key=None)
    await api.call("GET", "/api/sessions", key="wrong-key")
    lines = [event for event in events(log) if event["logger"] == "paddock.access"]
    shown = [
        (line["method"], line["route"], line["status"], line["principal"], line.get("session_id"))
        for line in lines
    ]
    assert shown == [
        ("POST", "/api/sessions", 201, "operator", None),
        ("GET", "/api/sessions/{session_id}/files", 403, "handle:mine", "mine"),
        ("GET", "/healthz", 200, "nobody", None),
        ("GET", "/api/sessions", 401, None, None),
    ]
    assert lines[1]["request_id"] == response.headers["X-Request-Id"]
    assert all(line["duration_ms"] >= 0 and line["event"] == "request" for line in lines)


async def test_who_leaves_a_stream_was_answered(log: Path, api: Api) -> None:
    await api.session(id="mine")
    response = await api.call("GET", "/api/sessions/mine/events")
    response.close()
    name = 'paddock_http_requests_total{method="GET",route="/api/sessions/{session_id}/events"'
    rendered = api.plane.metrics.render
    await until(lambda: name.encode() in rendered())
    assert (await scrape(api))[f'{name},status="200"}}'] == 1
    assert [e["status"] for e in events(log) if e.get("route", "").endswith("/events")] == [200]


async def test_no_secret_is_logged(log: Path, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await api.session(key=OPERATOR_KEY, id="mine", env={"LANG": "an-environment-value"})
    handle, path = session["handle"], "/api/sessions/mine"
    await api.json("POST", path + "/exec", key=handle, json={"command": "ls"})
    await api.call("GET", f"/api/sessions/{handle}/{ADMIN_KEY}", key=handle)
    await api.call("GET", f"/api/sessions/{handle}", key=OPERATOR_KEY)
    await api.call("POST", path + "/exec", key=handle, json={"command": f"cat {OPERATOR_KEY}"})
    rotated = (await api.json("POST", path + "/handle", json={}))["handle"]

    async def fail(*_: object) -> None:
        raise RuntimeError(f"with {handle} and {OPERATOR_KEY}")

    monkeypatch.setattr(api.plane.sessions.inspector, "inspect", fail)
    await api.problem(500, "internal_error", "GET", path)
    failed = [event for event in events(log) if "exception" in event]
    assert len(failed) == 1
    assert failed[0]["session_id"] == "mine"
    text = text_of(log)
    assert len(text.splitlines()) > 5
    for secret in (ADMIN_KEY, OPERATOR_KEY, handle, rotated, "an-environment-value"):
        assert secret not in text


@pytest.fixture
def lost_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly any time is given to an agent to connect again."""
    monkeypatch.setattr(agent_link, "_RECONNECT_SECONDS", 0.1)


@pytest.mark.usefixtures("lost_for_good")
async def test_an_agents_lines_name_its_session_and_no_request(log: Path, api: Api) -> None:
    await api.session(id="mine")
    sandbox = api.plane.sessions.registry.live[0].sandbox
    assert sandbox is not None
    api.agent.emit("made.up")  # the connection is dropped for this event
    await until(lambda: not sandbox.link.connected)
    said = [
        event for event in events(log) if event["logger"] == "orchestrator.host.link.connection"
    ]
    assert said
    assert {(line.get("session_id"), line.get("request_id")) for line in said} == {("mine", None)}


@pytest.mark.usefixtures("lost_for_good")
async def test_an_agent_that_breaks_the_protocol_is_on_record_and_counted(api: Api) -> None:
    session = await api.session(id="mine")
    api.agent.emit("made.up")
    seq = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while not (found := await violations(api, session["id"])):
            seq = await api.plane.ledger.wait(api.plane.sessions.registry.live[0].key, seq)
    assert [(event["actor"], event["source"], event["error"]) for event in found] == [
        ("system", "control-plane", "an agent may not report this operation")
    ]
    assert (await scrape(api))["paddock_agent_violations_total"] == 1


async def violations(api: Api, session_id: str) -> list[dict[str, Any]]:
    path = f"/api/sessions/{session_id}/audit?operation=agent.violation"
    found: list[dict[str, Any]] = (await api.json("GET", path))["items"]
    return found


_METRIC = re.compile(r"\b(?:paddock|process)_[a-z_]+\b")
_LABELS = re.compile(r"\b((?:paddock|process)_[a-z_]+)\{([^}]*)\}")
_BY = re.compile(r"\bby \(([^)]*)\)")


def names_of(series: dict[str, float]) -> set[str]:
    return {name.partition("{")[0] for name in series}


def labels_of(series: dict[str, float], name: str) -> set[str]:
    labels = (s.partition("{")[2] for s in series if s.partition("{")[0] == name)
    return {label for text in labels for label in re.findall(r"(\w+)=\"", text)}


async def everything(api: Api) -> dict[str, float]:
    """All series, including those that only failures create."""
    api.engine.fail_next("create")
    await api.call("POST", "/api/sessions", json={})
    await api.call("GET", "/healthz")
    return await scrape(api)


async def test_the_dashboard_names_metrics_that_exist(api: Api) -> None:
    series = await everything(api)
    dashboard = json.loads((DOCUMENTS / "grafana-dashboard.json").read_text())
    assert dashboard["__inputs"][0]["pluginId"] == "prometheus"
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    used: set[str] = set()
    for panel in panels:
        assert panel["targets"], panel["title"]
        assert 0 <= panel["gridPos"]["x"] <= 24 - panel["gridPos"]["w"]
        for target in panel["targets"]:
            expression = target["expr"]
            names = set(_METRIC.findall(expression))
            assert names, expression
            assert names <= names_of(series), expression
            known = {label for name in names for label in labels_of(series, name)}
            for name, text in _LABELS.findall(expression):
                asked = set(re.findall(r"(\w+)\s*[=!]", text)) - {"instance", "job"}
                assert asked <= labels_of(series, name), expression
            for text in _BY.findall(expression):
                assert {label.strip() for label in text.split(",")} <= known, expression
            used |= names
    # Every metric of ours must appear.
    ours = {re.sub(r"_(bucket|count|sum)$", "", n) for n in names_of(series) if "paddock" in n}
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in used} >= ours


async def test_the_alerts_name_metrics_that_exist(api: Api) -> None:
    text = (DOCUMENTS / "paddock-alerts.yml").read_text()
    expressions = re.findall(r"expr: (.+)", text)
    assert len(expressions) == text.count("- alert:") >= 4
    # Of an export, which is configured in tests/api/test_exports.py.
    known = {*names_of(await everything(api)), "paddock_export_lag_events"}
    for expression in expressions:
        names = set(_METRIC.findall(expression))
        assert names, expression
        assert names <= known, expression


async def test_the_guide_names_every_metric(api: Api) -> None:
    named = set(_METRIC.findall((DOCUMENTS / "monitoring.md").read_text()))
    series = names_of(await everything(api))
    ours = {re.sub(r"_(bucket|count|sum)$", "", name) for name in series if "paddock_" in name}
    assert named == ours


def test_the_guide_names_every_limit() -> None:
    text = (DOCUMENTS / "monitoring.md").read_text()
    for field in (*LIMIT_FIELDS, "max_creating", "max_streams", "burst_seconds"):
        assert f"`PADDOCK_KEY_{field.upper()}`" in text
        assert f"key_{field}" in Settings.model_fields


async def test_the_scrape_names_what_exists() -> None:
    text = (DOCUMENTS / "prometheus.yml").read_text()
    assert not _METRIC.findall(text)
    rules = re.search(r"rule_files:\n  - (\S+)", text)
    assert rules is not None
    assert (DOCUMENTS / rules[1]).exists()
    assert "credentials_file:" in text
    path = re.search(r"metrics_path: (\S+)", text)
    assert path is not None
    assert path[1] in {operation.path for operation in OPERATIONS}
