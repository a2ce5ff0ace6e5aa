"""Reports of what hosts used for a session's models: counted, recorded, and ending it."""

import json
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession
from paddock.client import Paddock
from paddock.contract.words import Kind
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_stopping import ADMIN, full
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents
from tests.support.restart import reopened

BOX = "/api/sessions/box"
USAGE = BOX + "/usage"


async def test_it_is_counted_and_recorded(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY, budget={"tokens": 100, "cost": 0.01})
    for body in ({"tokens": 40, "cost": 0.0000001}, {"tokens": 20}, {"cost": 0.002}, {}):
        budget = await api.json("POST", USAGE, json=body, key=OPERATOR_KEY)
    assert budget["consumed"]["tokens"] == 60
    assert budget["consumed"]["cost"] == 0.002001
    assert budget["remaining"]["tokens"] == 40
    assert budget["remaining"]["cost"] == 0.007999
    assert budget == await api.json("GET", BOX + "/budget") | {
        "consumed": budget["consumed"],
        "remaining": budget["remaining"],
    }
    events = (await api.json("GET", BOX + "/audit?operation=budget.usage"))["items"]
    assert [event["args"] for event in events] == [
        {"tokens": 40, "cost_microdollars": 1},
        {"tokens": 20, "cost_microdollars": 0},
        {"tokens": 0, "cost_microdollars": 2000},
        {"tokens": 0, "cost_microdollars": 0},
    ]
    assert (events[0]["actor"], events[0]["tokens_used"]) == ("operator", 40)
    assert (await api.json("GET", BOX + "/audit/stats"))["total_tokens"] == 60


@pytest.mark.parametrize(("kind", "body"), [("tokens", {"tokens": 60}), ("cost", {"cost": 0.6})])
async def test_the_session_ends_when_nothing_is_left(
    api: Api, kind: str, body: dict[str, Any]
) -> None:
    await api.session(id="box", budget={"tokens": 100, "cost": 1})
    await api.json("POST", USAGE, json=body)
    assert (await api.json("GET", BOX))["status"] == "active"
    budget = await api.json("POST", USAGE, json=body)
    assert budget["remaining"][kind] == 0
    shown = await api.json("GET", BOX)
    assert (shown["status"], shown["sandbox"]) == ("budget-exceeded", None)
    assert shown["termination"]["rationale_code"] == "budget_exhausted"
    problem = await api.problem(429, "budget_exceeded", "POST", USAGE, json=body)
    assert problem["kind"] == kind
    (event,) = (await api.json("GET", BOX + "/audit?operation=budget.exceeded"))["items"]
    assert event["args"]["kind"] == kind


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tokens": -1}, "tokens"),
        ({"cost": -0.01}, "cost"),
        ({"tokens": 1.5}, "tokens"),
        ({"tokens": True}, "tokens"),
        ({"tokens": "5"}, "tokens"),
        ({"tokens": 10**9 + 1}, "tokens"),
        ({"cost": 10**7}, "cost"),
        ({"cost": "1"}, "cost"),
        ({"time": 5}, "time"),
    ],
)
async def test_bad_reports_change_nothing(api: Api, body: dict[str, Any], field: str) -> None:
    await api.session(id="box")
    problem = await api.problem(400, "validation_error", "POST", USAGE, json=body)
    assert problem["field"] == field
    assert (await api.json("GET", BOX + "/budget"))["consumed"]["tokens"] == 0
    assert not (await api.json("GET", BOX + "/audit?operation=budget.usage"))["items"]


async def test_only_the_host_reports(api: Api) -> None:
    session = await api.session(id="box", key=OPERATOR_KEY)
    body = {"tokens": 5}
    handle = session["handle"]
    await api.problem(403, "permission_denied", "POST", USAGE, json=body, key=handle)
    await api.problem(404, "not_found", "POST", USAGE, json=body, key=OTHER_KEY)
    await api.json("DELETE", BOX)
    await api.problem(410, "session_terminated", "POST", USAGE, json=body)


async def test_what_can_t_be_recorded_is_not_counted(api: Api) -> None:
    await api.session(id="box")
    with full(api.plane):
        await api.problem(503, "audit_unavailable", "POST", USAGE, json={"tokens": 5})
    assert (await api.json("GET", BOX + "/budget"))["consumed"]["tokens"] == 0


async def test_a_restart_keeps_it(settings: Settings, engine: FakeEngine, agents: Agents) -> None:
    plane = await ControlPlane.open(settings, engine)
    created = await plane.sessions.create(ADMIN, NewSession(id="box", budget={"tokens": 100}))
    await plane.sessions.report_usage(ADMIN, created.session, 60, 7)
    await plane.close()
    plane = await reopened(settings, engine, agents)
    try:
        session = plane.sessions.registry.get("box")
        assert session is not None
        assert (session.budget.left(Kind.TOKENS), session.budget.used(Kind.COST)) == (40, 7)
        await plane.sessions.close(ADMIN, session, purge=False)
    finally:
        await plane.close()


async def test_the_client_and_the_program_report(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(api.server.make_url("/"))
    monkeypatch.setenv("PADDOCK_URL", url)
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    async with Paddock(url, ADMIN_KEY) as paddock:
        session = await paddock.sessions.create(id="box", budget={"tokens": 100})
        assert (await session.report_usage(tokens=10, cost=0.5)).remaining.tokens == 90
    ended = await run_beside("usage", "box", "--tokens", "20", "--cost", "0.25", "--json")
    assert ended.status == 0
    consumed = json.loads(ended.out)["consumed"]
    assert (consumed["tokens"], consumed["cost"]) == (30, 0.75)
    assert (await run_beside("usage", "box", "--tokens", "-1")).status == 2
