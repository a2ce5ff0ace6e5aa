"""Budgets and deadlines over HTTP: what is accepted, counted, refused and ended."""

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.host.link import agent_link
from orchestrator.state.session import Session
from paddock.contract.words import Status
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cases import each
from tests.support.fake_agent import AgentRefusalError, Play
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until

SESSIONS = "/api/sessions"
KINDS = {
    *("time", "iterations", "commands", "cpu_seconds", "output_bytes"),
    *("audit_bytes", "tokens", "cost", "egress_bytes"),
}
MANY_DIGITS = b"9" * 400


async def make(api: Api, **body: Any) -> str:
    return f"{SESSIONS}/{(await api.session(permission_level='high', **body))['id']}"


async def run(api: Api, path: str, **body: Any) -> dict[str, Any]:
    return await api.json("POST", path + "/exec", json={"argv": ["true"], **body})


async def exceeded(api: Api, method: str, path: str, **arguments: Any) -> dict[str, Any]:
    """The details of the budget in the refusal."""
    problem = await api.problem(429, "budget_exceeded", method, path, **arguments)
    assert problem["kind"] in problem["detail"]
    return {name: problem[name] for name in ("kind", "limit", "consumed")}


async def events(api: Api, path: str, operation: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.json("GET", f"{path}/audit?operation={operation}"))[
        "items"
    ]
    return items


async def over(api: Api, path: str) -> dict[str, Any]:
    """Waits for the session's end; returns the session."""
    session = api.plane.sessions.registry.get(path.rsplit("/", 1)[1])
    assert session is not None
    seq = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while not await events(api, path, "session.terminated"):
            seq = await api.plane.ledger.wait(session.key, seq)
        async with session.lock:  # until everything is released
            pass
    return await api.json("GET", path)


def configuration(api: Api) -> dict[str, Any]:
    """The configuration that the latest sandbox's agent was given."""
    assert api.agent.configuration is not None
    return api.agent.configuration


@each(
    ("budget", "field"),
    [
        (b'{"sleep": 1}', "budget.sleep"),
        (b'{"commands": 0}', "budget.commands"),
        (b'{"commands": -1}', "budget.commands"),
        (b'{"commands": 1.5}', "budget.commands"),
        (b'{"commands": "10"}', "budget.commands"),
        (b'{"commands": true}', "budget.commands"),
        (b'{"commands": [1]}', "budget.commands"),
        (b'{"commands": 10000000000000000}', "budget.commands"),
        (b'{"commands": ' + MANY_DIGITS + b"}", "budget.commands"),
        (b'{"time": 0}', "budget.time"),
        (b'{"time": -0.5}', "budget.time"),
        (b'{"time": true}', "budget.time"),
        (b'{"time": "1"}', "budget.time"),
        (b'{"time": 1e10}', "budget.time"),
        (b'{"time": 1e999}', "budget.time"),
        (b'{"cost": -1e999}', "budget.cost"),
        (b'{"cpu_seconds": {}}', "budget.cpu_seconds"),
        (b"[]", "budget"),
        (b"10", "budget"),
        (b'{"time": NaN}', None),
    ],
)
async def test_budgets_that_can_not_be(api: Api, budget: bytes, field: str | None) -> None:
    data = b'{"budget": ' + budget + b"}"
    problem = await api.problem(400, "validation_error", "POST", SESSIONS, data=data)
    assert problem.get("field") == field
    problem = await api.problem(400, "validation_error", "PUT", SESSIONS + "/b", data=data)
    assert problem.get("field") == field
    assert (await api.json("GET", SESSIONS))["items"] == []
    assert not api.engine.containers


@each("seconds", [0, -1, 1.5, True, "10", 10**10])
async def test_wall_timeouts_that_can_not_be(api: Api, seconds: Any) -> None:
    body = {"wall_timeout": seconds}
    problem = await api.problem(400, "validation_error", "POST", SESSIONS, json=body)
    assert problem["field"] == "wall_timeout"
    assert not api.engine.containers


async def test_a_budget_is_shown_whole(api: Api) -> None:
    limits = {"commands": 5, "cpu_seconds": 1.5, "cost": 0.25, "tokens": 7}
    created = await api.session(budget=limits, key=OPERATOR_KEY)
    path = f"{SESSIONS}/{created['id']}"
    shown = await api.json("GET", path + "/budget", key=created["handle"])
    assert {name: set(part) for name, part in shown.items()} == dict.fromkeys(
        ("limits", "consumed", "remaining"), KINDS
    )
    told = {kind: limit for kind, limit in shown["limits"].items() if limit is not None}
    assert told == {**limits, "audit_bytes": 256 * 1024 * 1024}
    assert {kind for kind, left in shown["remaining"].items() if left is not None} == set(told)
    assert 0 < shown["consumed"]["time"] < 600
    for view in (
        created,
        await api.json("GET", path),
        (await api.json("GET", SESSIONS))["items"][0],
    ):
        assert view["budget"]["limits"] == shown["limits"]
    other = await api.session(key=OTHER_KEY)
    await api.problem(404, "not_found", "GET", path + "/budget", key=other["handle"])
    await api.problem(404, "not_found", "GET", path + "/budget", key=OTHER_KEY)


async def test_whole_amounts_stay_whole(api: Api) -> None:
    created = await api.session(budget={"time": 3600, "cpu_seconds": 60, "cost": 5})
    shown = await (await api.call("GET", f"{SESSIONS}/{created['id']}/budget")).json()
    limits = {kind: shown["limits"][kind] for kind in ("time", "cpu_seconds", "cost")}
    assert json.dumps(limits) == '{"time": 3600, "cpu_seconds": 60, "cost": 5}'


async def test_without_a_budget_everything_is_counted_all_the_same(api: Api) -> None:
    path = await make(api)
    for _ in range(3):
        await run(api, path)
    shown = await api.json("GET", path + "/budget")
    assert shown["consumed"]["commands"] == 3
    assert [kind for kind, left in shown["remaining"].items() if left] == ["audit_bytes"]
    assert configuration(api)["cpu_budget_us"] is None
    assert configuration(api)["output_budget_bytes"] is None


async def test_get_or_create_gives_a_budget_only_once(api: Api) -> None:
    path = SESSIONS + "/mine"
    body = {"permission_level": "high", "budget": {"commands": 1}}
    made = await api.json("PUT", path, json=body, status=201)
    assert made["budget"]["limits"]["commands"] == 1
    await run(api, path)
    again = await api.json("PUT", path, json={"budget": {"commands": 9}})
    assert again["budget"]["remaining"]["commands"] == 0


async def test_the_command_after_the_last_ends_the_session(api: Api) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    path = await make(api, budget={"commands": 3})
    running = asyncio.create_task(
        api.call("POST", path + "/exec", json={"argv": ["sleep"], "timeout": 60})
    )
    await api.agent.asked("exec")
    await run(api, path)
    assert (await run(api, path))["exit_code"] == 0
    assert (await api.json("GET", path))["status"] == "active"

    used_up = {"kind": "commands", "limit": 3, "consumed": 3}
    assert await exceeded(api, "POST", path + "/exec", json={"argv": ["rm"]}) == used_up
    started = [params["argv"] for method, params in api.agent.requests if method == "exec"]
    assert started == [["sleep"], ["true"], ["true"]]
    assert not api.engine.containers
    stopped = await running
    assert stopped.status == 429
    assert {name: (await stopped.json())[name] for name in used_up} == used_up
    shut_down = [params for method, params in api.agent.requests if method == "shutdown"]
    assert shut_down == [{"reason": "budget_exceeded", "at_once": True}]

    ended = await api.json("GET", path)
    assert ended["status"] == "budget-exceeded"
    assert ended["termination"]["rationale_code"] == "budget_exhausted"
    assert ended["termination"]["exit_classification"] == "FAILURE"
    assert set(ended["deadlines"].values()) == {None}
    (event,) = await events(api, path, "budget.exceeded")
    assert event["args"] == {**used_up, "unit": "count"}
    assert (event["decision"], event["error"]) == ("deny", "Budget exceeded: commands (3/3)")
    (end,) = await events(api, path, "session.terminated")
    assert end["result"]["deadline"] == "budget"
    metrics = await (await api.call("GET", "/metrics")).text()
    assert 'paddock_budgets_exceeded_total{kind="commands"} 1.0' in metrics


async def test_whatever_comes_after_the_end_is_told_the_same(api: Api) -> None:
    path = await make(api, budget={"commands": 1})
    await run(api, path)
    await exceeded(api, "POST", path + "/exec", json={"argv": ["true"]})
    for method, rest, body in (
        ("POST", "/exec", {"argv": ["true"]}),
        ("GET", "/files?path=a", None),
        ("GET", "/files/list", None),
        ("DELETE", "/files?path=a", None),
        ("POST", "/files/mkdir", {"path": "a"}),
        ("POST", "/files/move", {"source": "a", "destination": "b"}),
        ("POST", "/interrupt", {}),
        ("POST", "/handle", {}),
        ("PUT", "/settings", {"settings": {"permission_level": "low"}}),
    ):
        told = await exceeded(api, method, path + rest, json=body)
        assert told == {"kind": "commands", "limit": 1, "consumed": 1}
    await exceeded(api, "PUT", path + "/files?path=a", data=b"x")
    await api.problem(409, "invalid_transition", "POST", path + "/resume")
    assert (await api.json("GET", path + "/budget"))["remaining"]["commands"] == 0
    assert len(await events(api, path, "budget.exceeded")) == 1
    assert (await api.json("GET", path + "/audit/verify"))["ok"]
    assert (await api.json("DELETE", path))["status"] == "budget-exceeded"


async def test_what_is_refused_for_another_reason_costs_nothing(api: Api) -> None:
    created = await api.session(permission_level="low", budget={"commands": 1})
    path = f"{SESSIONS}/{created['id']}"
    await api.problem(
        403, "permission_denied", "POST", path + "/exec", json={"command": "curl example.org"}
    )
    await api.problem(400, "validation_error", "POST", path + "/exec", json={"command": ""})
    await api.problem(400, "validation_error", "POST", path + "/exec", json={"command": "ls 'a"})
    assert (await api.json("GET", path + "/budget"))["consumed"]["commands"] == 0
    assert (await api.json("POST", path + "/exec", json={"command": "ls"}))["exit_code"] == 0
    # A used-up budget does not end the session either if the command is denied anyway.
    await api.problem(
        403, "permission_denied", "POST", path + "/exec", json={"command": "curl example.org"}
    )
    assert (await api.json("GET", path))["status"] == "active"


async def test_a_command_that_can_not_be_recorded_costs_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 0.01)
    path = await make(api, budget={"commands": 1})

    async def full(*_: Any) -> Any:
        raise AuditUnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(api.plane.ledger, "append", full)
        await api.problem(503, "audit_unavailable", "POST", path + "/exec", json={"argv": ["true"]})
    await run(api, path)
    with monkeypatch.context() as patch:
        patch.setattr(api.plane.ledger, "append", full)
        # The session ends even so, and the event is recorded as soon as possible.
        await exceeded(api, "POST", path + "/exec", json={"argv": ["true"]})
        assert (await api.json("GET", path))["status"] == "budget-exceeded"
    await over(api, path)
    assert len(await events(api, path, "budget.exceeded")) == 1


async def test_commands_at_once_can_not_overdraw(api: Api) -> None:
    path = await make(api, budget={"commands": 5})
    calls = [api.call("POST", path + "/exec", json={"argv": ["true"]}) for _ in range(12)]
    statuses = [response.status for response in await asyncio.gather(*calls)]
    assert set(statuses) <= {200, 429}
    assert len([1 for method, _ in api.agent.requests if method == "exec"]) <= 5
    assert len(await events(api, path, "command.start")) == 5
    assert len(await events(api, path, "budget.exceeded")) == 1
    assert (await api.json("GET", path))["status"] == "budget-exceeded"


@pytest.mark.parametrize(
    ("kind", "member", "limit", "total", "shown"),
    [
        ("cpu_seconds", "session_cpu_us", 1.5, 1_500_000, 1.5),
        ("cpu_seconds", "session_cpu_us", 1.5, 2_000_000, 2),
        ("output_bytes", "session_output_bytes", 100, 100, 100),
    ],
)
async def test_a_command_that_uses_up_the_rest_completes(
    api: Api, kind: str, member: str, limit: float, total: int, shown: float
) -> None:
    api.agents.plays["work"] = Play(holds=True)
    path = await make(api, budget={kind: limit})
    call = asyncio.create_task(api.call("POST", path + "/exec", json={"argv": ["work"]}))
    command = (await api.agent.asked("exec"))["command_id"]
    api.agent.end(command, **{member: total})
    assert (await call).status == 200
    assert (await api.json("GET", path + "/budget"))["consumed"][kind] == shown
    told = await exceeded(api, "POST", path + "/exec", json={"argv": ["true"]})
    assert told == {"kind": kind, "limit": limit, "consumed": shown}


async def test_totals_of_the_agent_never_fall(api: Api) -> None:
    api.agents.plays["work"] = Play(holds=True)
    path = await make(api)
    for total in (500, 300):
        command = await api.json(
            "POST", path + "/exec", json={"argv": ["work"], "background": True}, status=202
        )
        api.agent.end(command["command_id"], session_output_bytes=total)
    await over_events(api, path, 2)
    assert (await api.json("GET", path + "/budget"))["consumed"]["output_bytes"] == 500


async def over_events(api: Api, path: str, count: int) -> None:
    """Waits until this many commands have ended."""
    session = api.plane.sessions.registry.get(path.rsplit("/", 1)[1])
    assert session is not None
    seq = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while len(await events(api, path, "command.exit")) < count:
            seq = await api.plane.ledger.wait(session.key, seq)


async def test_the_agent_reports_what_it_has_stopped(api: Api) -> None:
    api.agents.plays["burn"] = Play(holds=True)
    path = await make(api, budget={"cpu_seconds": 2})
    calls = [
        asyncio.create_task(api.call("POST", path + "/exec", json={"argv": ["burn", name]}))
        for name in "ab"
    ]
    while len(api.plane.sessions.registry.live[0].running) < 2:
        await api.agent.asked("exec")
        await api.json("GET", path)
    agent = api.agent
    agent.emit(
        "budget.exceeded",
        decision="deny",
        args={"kind": "cpu_seconds", "limit": 1, "consumed": 2_100_000, "note": "lies"},
    )
    for method, params in list(agent.requests):
        if method == "exec":
            agent.end(params["command_id"], 137, signal="SIGKILL", reason="budget_exceeded")
    for response in await asyncio.gather(*calls):
        body = await response.json()
        assert (response.status, body["code"]) == (429, "budget_exceeded")
        assert (body["kind"], body["limit"], body["consumed"]) == ("cpu_seconds", 2, 2.1)
    assert not api.engine.containers
    (event,) = await events(api, path, "budget.exceeded")
    assert event["source"] == "agent"
    assert event["args"] == {
        "kind": "cpu_seconds",
        "limit": 2_000_000,
        "consumed": 2_100_000,
        "unit": "microseconds",
    }
    assert (await api.json("GET", path))["status"] == "budget-exceeded"


async def test_an_agent_that_refuses_ends_the_session(api: Api) -> None:
    """The agent may know before the control plane that the budget is used up."""
    path = await make(api, budget={"cpu_seconds": 2})
    agent = api.agent

    def refuse(_params: Any) -> Any:
        agent.emit(
            "budget.exceeded",
            decision="deny",
            args={"kind": "cpu_seconds", "limit": 2_000_000, "consumed": 2_000_000},
        )
        raise AgentRefusalError("budget_exceeded", "the session's budget is used up")

    agent.overrides["exec"] = refuse
    told = await exceeded(api, "POST", path + "/exec", json={"argv": ["true"]})
    assert told == {"kind": "cpu_seconds", "limit": 2, "consumed": 2}
    assert (await api.json("GET", path))["status"] == "budget-exceeded"
    assert len(await events(api, path, "command.exit")) == 1


async def test_an_agent_can_not_end_a_session_by_a_budget_that_it_has_not(api: Api) -> None:
    path = await make(api, budget={"commands": 9})
    api.agent.emit(
        "budget.exceeded", args={"kind": "cpu_seconds", "limit": 1, "consumed": 1}, decision="deny"
    )
    await run(api, path)
    assert (await api.json("GET", path))["status"] == "active"


async def test_reports_without_form_are_not_believed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_link, "_RECONNECT_SECONDS", 0.1)
    path = await make(api, budget={"time": 600})
    api.agent.emit("budget.exceeded", args={"kind": "time", "consumed": 1}, decision="deny")
    # The malformed report drops the connection before any part of it is recorded.
    await api.problem(502, "sandbox_unavailable", "POST", path + "/exec", json={"argv": ["true"]})
    assert await events(api, path, "budget.exceeded") == []
    assert (await api.json("GET", path))["status"] == "active"


async def test_time_ends_what_runs(api: Api) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    path = await make(api, budget={"time": 0.5})
    told = await exceeded(api, "POST", path + "/exec", json={"argv": ["sleep"]})
    assert (told["kind"], told["limit"]) == ("time", 0.5)
    assert told["consumed"] >= 0.5
    ended = await api.json("GET", path)
    assert ended["status"] == "budget-exceeded"
    (event,) = await events(api, path, "budget.exceeded")
    assert event["args"]["limit"] == 500_000
    assert not api.engine.containers


async def test_time_goes_on_in_a_pause(api: Api) -> None:
    path = await make(api, budget={"time": 0.5})
    paused = await api.json("POST", path + "/pause")
    assert paused["deadlines"]["idle_at"] is None
    created = datetime.fromisoformat(paused["created_at"])
    assert datetime.fromisoformat(paused["deadlines"]["budget_at"]) == created + timedelta(
        seconds=0.5
    )
    assert (await over(api, path))["status"] == "budget-exceeded"
    assert "resume" in api.engine.calls
    assert not api.engine.containers


@pytest.mark.slow
async def test_the_wall_deadline_ends_a_session_that_is_in_use(api: Api) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    path = await make(api, wall_timeout=1)
    view = await api.json("GET", path)
    assert datetime.fromisoformat(view["deadlines"]["wall_at"]) == datetime.fromisoformat(
        view["created_at"]
    ) + timedelta(seconds=1)
    await api.json("POST", path + "/exec", json={"argv": ["sleep"], "background": True}, status=202)
    ended = await over(api, path)
    assert ended["status"] == "aborted"
    assert ended["termination"]["rationale_code"] == "timeout"
    (event,) = await events(api, path, "session.terminated")
    assert event["result"]["deadline"] == "wall"
    assert "wall_timeout" in event["error"]
    await api.problem(410, "session_terminated", "POST", path + "/exec", json={"argv": ["true"]})


@pytest.mark.slow
async def test_the_idle_deadline_says_that_it_was_idle(api: Api) -> None:
    path = await make(api, idle_timeout=1, wall_timeout=600)
    await over(api, path)
    (event,) = await events(api, path, "session.terminated")
    assert event["result"]["deadline"] == "idle"
    assert event["error"] == "the session was idle for 1 s"


async def test_an_end_that_can_not_be_recorded_is_recorded_later(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.stop_records._RETRY_SECONDS", 0.01)
    api.agents.plays["sleep"] = Play(holds=True)
    path = await make(api, budget={"time": 3})
    stopped, append = asyncio.Event(), api.plane.ledger.append

    async def full(draft: Any, effect: Any = None) -> Any:
        if draft.operation == "budget.exceeded" and not stopped.is_set():
            raise AuditUnavailableError("the disk is full")
        return await append(draft, effect)

    monkeypatch.setattr(api.plane.ledger, "append", full)
    call = asyncio.create_task(
        api.call("POST", path + "/exec", json={"argv": ["sleep"], "background": True})
    )
    assert (await call).status == 202
    session = api.plane.sessions.registry.get(path.rsplit("/", 1)[1])
    assert session is not None
    await session.over
    assert session.status is Status.BUDGET_EXCEEDED
    await until(lambda: api.engine.containers == {})
    assert await events(api, path, "session.terminated") == []
    stopped.set()
    seq = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while not await events(api, path, "audit.gap"):
            seq = await api.plane.ledger.wait(session.key, seq)
    items = (await api.json("GET", f"{path}/audit"))["items"]
    assert [event["operation"] for event in items][-3:] == [
        "budget.exceeded",
        "session.terminated",
        "audit.gap",
    ]


async def test_a_new_level_gets_what_is_left(api: Api) -> None:
    api.agents.plays["work"] = Play(holds=True)
    path = await make(api, budget={"cpu_seconds": 3, "output_bytes": 1000, "commands": 2})
    call = asyncio.create_task(api.call("POST", path + "/exec", json={"argv": ["work"]}))
    command = (await api.agent.asked("exec"))["command_id"]
    api.agent.end(command, session_cpu_us=1_250_000, session_output_bytes=400)
    assert (await call).status == 200
    settings = {"settings": {"permission_level": "medium"}}
    await api.json("PUT", path + "/settings", json=settings)
    members = configuration(api)
    assert (members["cpu_used_us"], members["cpu_budget_us"]) == (1_250_000, 3_000_000)
    assert (members["output_used_bytes"], members["output_budget_bytes"]) == (400, 1000)
    assert (await api.json("GET", path + "/budget"))["remaining"]["commands"] == 1


async def test_what_is_used_is_stored_with_the_event_that_tells_of_it(api: Api) -> None:
    api.agents.plays["work"] = Play(holds=True)
    path = await make(api, budget={"commands": 7})
    call = asyncio.create_task(api.call("POST", path + "/exec", json={"argv": ["work"]}))
    command = (await api.agent.asked("exec"))["command_id"]
    session = api.plane.sessions.registry.live[0]
    assert (await stored(api, session))["consumed"] == {"commands": 1}
    api.agent.end(command, session_cpu_us=10, session_output_bytes=20)
    assert (await call).status == 200
    assert await stored(api, session) == {
        "limits": {"commands": 7, "audit_bytes": session.level.audit_bytes},
        "consumed": {"commands": 1, "cpu_seconds": 10, "output_bytes": 20},
        "exceeded": None,
    }


async def stored(api: Api, session: Session) -> dict[str, Any]:
    """The session's budget in the database."""
    statement = "SELECT budget FROM sessions WHERE key = ?"
    text = await api.plane.database.read(
        lambda connection: connection.execute(statement, (session.key,)).fetchone()[0]
    )
    budget: dict[str, Any] = json.loads(text)
    return budget


@pytest.mark.parametrize(
    ("settings_of", "asked", "wall"),
    [
        ({}, None, None),
        ({"wall_timeout": 900}, None, 900),
        ({"wall_timeout": 900}, 1200, 1200),
        ({"wall_timeout_max": 600}, None, 600),
        ({"wall_timeout": 300, "wall_timeout_max": 600}, None, 300),
        ({"wall_timeout_max": 600}, 600, 600),
    ],
)
async def test_the_operators_wall_deadline(
    api: Api, settings_of: dict[str, int], asked: int | None, wall: int | None
) -> None:
    plane = api.plane
    maker = plane.sessions.creation._maker
    maker._settings = plane.settings.model_copy(update=settings_of)
    body = {} if asked is None else {"wall_timeout": asked}
    await api.session(**body)
    assert plane.sessions.registry.live[0].terms.wall_timeout == wall
    if "wall_timeout_max" in settings_of:
        body = {"wall_timeout": 601}
        problem = await api.problem(400, "validation_error", "POST", SESSIONS, json=body)
        assert problem["field"] == "wall_timeout"
