"""Time-outs of live sessions: lengthened, shortened, bounded, kept, and due at once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.host.engine.fake import FakeEngine
from orchestrator.state.session import Session
from paddock import Paddock, PermissionDeniedError, ValidationError
from paddock.contract.words import Status
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api, served
from tests.api.test_stopping import full
from tests.support.cases import each
from tests.support.fake_agent import Agents, Play
from tests.support.restart import reopened

BOX = "/api/sessions/box"
SETTINGS = BOX + "/settings"


@pytest.fixture
async def paddock(api: Api) -> AsyncIterator[Paddock]:
    async with Paddock(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as client:
        yield client


async def box(api: Api, **terms: Any) -> Session:
    await api.session(id="box", **terms)
    (session,) = api.plane.sessions.registry.live
    return session


async def put(api: Api, **members: Any) -> dict[str, Any]:
    return await api.json("PUT", SETTINGS, json={"settings": members})


async def changes(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.json("GET", BOX + "/audit"))["items"]
    return [each for each in found if each["operation"] == "session.settings"]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_both_are_set_with_the_deadlines_in_the_answer_and_on_record(api: Api) -> None:
    session = await box(api)
    answer = await put(api, idle_timeout=600, wall_timeout=7200)
    assert (answer["idle_timeout"], answer["wall_timeout"]) == (600, 7200)
    wall_at = moment(session.created_at) + timedelta(seconds=7200)
    assert moment(answer["deadlines"]["wall_at"]) == wall_at
    shown = await api.json("GET", BOX)
    assert shown["deadlines"] == answer["deadlines"]
    assert await api.json("GET", SETTINGS) == answer
    last = moment(shown["last_activity_at"])
    assert moment(answer["deadlines"]["idle_at"]) == last + timedelta(seconds=600)
    (event,) = await changes(api)
    assert event["args"] == {"idle_timeout": 600, "wall_timeout": 7200}
    assert event["result"]["wall_at"] == answer["deadlines"]["wall_at"]
    assert moment(event["result"]["idle_at"]) <= moment(answer["deadlines"]["idle_at"])


async def test_one_leaves_the_other(api: Api) -> None:
    await box(api, idle_timeout=500, wall_timeout=9000)
    assert (await put(api, idle_timeout=60))["wall_timeout"] == 9000
    answer = await put(api, wall_timeout=8000)
    assert (answer["idle_timeout"], answer["wall_timeout"]) == (60, 8000)
    assert await put(api, idle_timeout=None, wall_timeout=None) == answer
    assert len(await changes(api)) == 2


async def test_keep_alive_lengthens_what_would_end_it_and_nothing_else(api: Api) -> None:
    session = await box(api, idle_timeout=100, wall_timeout=3600, budget={"time": 5000})
    session.budget.started_at -= timedelta(seconds=3000)
    short = await put(api, keep_alive=50)
    assert (short["idle_timeout"], short["wall_timeout"]) == (100, 3600)
    before = datetime.now(UTC)
    long = await put(api, keep_alive=1000)
    assert long["idle_timeout"] == 1000
    for name in ("idle_at", "wall_at"):
        assert moment(long["deadlines"][name]) >= before + timedelta(seconds=1000), name
    assert moment(long["deadlines"]["wall_at"]) < before + timedelta(seconds=1100)
    assert long["deadlines"]["budget_at"] == short["deadlines"]["budget_at"]


async def test_it_begins_no_wall_time_out_where_there_is_none(api: Api) -> None:
    await box(api)
    answer = await put(api, keep_alive=5000)
    assert (answer["idle_timeout"], answer["wall_timeout"]) == (5000, None)


async def test_a_timer_follows_the_new_time_out(api: Api) -> None:
    session = await box(api, wall_timeout=7200)
    timers = api.plane.sessions.deadlines._timers
    before = timers[session.key].when()
    await put(api, wall_timeout=60)
    assert timers[session.key].when() < before
    await put(api, keep_alive=7000)
    assert timers[session.key].when() > before - 7200 + 1700


@each(
    ("members", "field"),
    [
        ({"idle_timeout": 0}, "settings.idle_timeout"),
        ({"idle_timeout": "9"}, "settings.idle_timeout"),
        ({"idle_timeout": 86_401}, "settings.idle_timeout"),
        ({"wall_timeout": -1}, "settings.wall_timeout"),
        ({"wall_timeout": 1.5}, "settings.wall_timeout"),
        ({"wall_timeout": 601}, "settings.wall_timeout"),
        ({"keep_alive": 0}, "settings.keep_alive"),
        ({"keep_alive": 602}, "settings.keep_alive"),
        ({"idle": 9}, "settings.idle"),
        ({"deadlines": {"idle": "x"}}, "settings.deadlines.idle"),
        ({"permission_level": "low", "wall_timeout": 601}, "settings.wall_timeout"),
    ],
)
async def test_bad_ones_name_the_field_and_change_nothing(
    api: Api, members: dict[str, Any], field: str
) -> None:
    api.plane.settings.__dict__["wall_timeout_max"] = 600
    await api.call("PUT", BOX, json={"permission_level": "high", "wall_timeout": 600})
    before = await api.json("GET", SETTINGS)
    body = {"settings": members}
    problem = await api.problem(400, "validation_error", "PUT", SETTINGS, json=body)
    assert problem["field"] == field
    assert await api.json("GET", SETTINGS) == before


async def test_a_wall_time_out_that_is_over_ends_it_at_once_and_stops_first(api: Api) -> None:
    api.agents.plays["sleep"] = Play(holds=True)
    session = await box(api, permission_level="high")
    await api.json("POST", BOX + "/exec", json={"argv": ["sleep"], "background": True}, status=202)
    session.budget.started_at -= timedelta(hours=1)
    answer = await put(api, wall_timeout=60)
    assert session.status is Status.ABORTED
    assert set(answer["deadlines"].values()) == {None}
    assert answer["wall_timeout"] == 60
    assert "pause" in api.engine.calls
    assert not api.engine.containers
    items = (await api.json("GET", BOX + "/audit"))["items"]
    told = [each["operation"] for each in items]
    assert told.index("session.settings") < told.index("session.terminated")
    (ended,) = (each for each in items if each["operation"] == "session.terminated")
    assert ended["result"]["deadline"] == "wall"
    assert "60 s" in ended["error"]


async def test_it_stops_even_if_that_can_t_be_recorded_yet(api: Api) -> None:
    session = await box(api)
    session.budget.started_at -= timedelta(hours=1)
    with full(api.plane):
        asking = asyncio.create_task(put(api, wall_timeout=60))
        await session.over
        assert "pause" in api.engine.calls
        assert session.status is Status.ABORTED
        assert await changes(api) == []
    await asking
    assert not api.engine.containers


async def test_an_idle_time_out_that_is_over_ends_or_suspends_at_once(api: Api) -> None:
    for action, status in (("end", Status.ABORTED), ("suspend", Status.ACTIVE)):
        session = await box(api, idle_action=action)
        session.last_activity_at = "2020-01-01T00:00:00.000000Z"
        await put(api, idle_timeout=60)
        assert session.status is status
        assert session.sandbox is None
        (event,) = await changes(api)
        assert event["args"]["idle_timeout"] == 60
        await api.json("DELETE", BOX)


async def test_a_busy_session_is_not_idle(api: Api) -> None:
    session = await box(api)
    session.last_activity_at = "2020-01-01T00:00:00.000000Z"
    with session.using():
        answer = await put(api, idle_timeout=1)
    assert (answer["idle_timeout"], answer["deadlines"]["idle_at"]) == (1, None)
    assert session.live


async def test_one_that_can_t_be_recorded_changes_nothing(api: Api) -> None:
    await box(api, idle_timeout=600)
    before = await api.json("GET", SETTINGS)
    with full(api.plane):
        body = {"settings": {"idle_timeout": 900}}
        await api.problem(503, "audit_unavailable", "PUT", SETTINGS, json=body)
    assert await api.json("GET", SETTINGS) == before


async def test_a_restart_keeps_them(api: Api, engine: FakeEngine, agents: Agents) -> None:
    await box(api)
    answer = await put(api, idle_timeout=700, wall_timeout=70_000)
    await api.plane.close()
    plane = await reopened(api.plane.settings, engine, agents)
    try:
        async with served(plane, engine, agents) as again:
            shown = await again.json("GET", SETTINGS)
            assert (shown["idle_timeout"], shown["wall_timeout"]) == (700, 70_000)
            assert shown["deadlines"]["wall_at"] == answer["deadlines"]["wall_at"]
            await again.json("DELETE", BOX)
    finally:
        await plane.close()


async def test_who_may_change_them(api: Api) -> None:
    made = await api.session(id="box", key=OPERATOR_KEY)
    body = {"settings": {"keep_alive": 60}}
    await api.problem(403, "permission_denied", "PUT", SETTINGS, json=body, key=made["handle"])
    await api.json("PUT", SETTINGS, json=body, key=OPERATOR_KEY)
    await api.json("DELETE", BOX)
    await api.problem(410, "session_terminated", "PUT", SETTINGS, json=body, key=OPERATOR_KEY)


async def test_ending_by_a_time_out_is_answered_regardless_of_the_rate(api: Api) -> None:
    from api.shape import stops
    from paddock.contract.session_requests import SettingsBody

    session = await box(api)
    session.budget.started_at -= timedelta(hours=1)

    class Context:
        def session(self) -> Session:
            return session

    def stopping(**members: Any) -> bool:
        body = SettingsBody.model_validate(
            {"settings": members}, context={"levels": ("low", "medium", "high")}
        )
        return stops.by_settings(Context(), body, api.plane.levels)  # type: ignore[arg-type]

    assert stopping(wall_timeout=60)
    assert stopping(permission_level="low")
    assert not stopping(wall_timeout=7200)
    assert not stopping(keep_alive=60, wall_timeout=60)
    assert not stopping(wall_timeout=60, permission_level="high")


async def test_the_client_has_both(paddock: Paddock) -> None:
    async with await paddock.sessions.create(idle_timeout=600) as session:
        answer = await session.set_timeout(idle=700, wall=7000)
        assert (answer.idle_timeout, answer.wall_timeout) == (700, 7000)
        kept = await session.keep_alive(8000)
        assert kept.idle_timeout == 8000
        assert kept.deadlines.wall_at is not None
        assert answer.deadlines.wall_at is not None
        assert kept.deadlines.wall_at > answer.deadlines.wall_at
        assert (await session.settings.set(idle_timeout=900)).idle_timeout == 900
        with pytest.raises(ValidationError, match=r"settings\.idle_timeout"):
            await session.set_timeout(idle=100_000_000)
        assert session.handle is not None
        mine = await paddock.sessions.attach(session.id, session.handle)
        with pytest.raises(PermissionDeniedError):
            await mine.keep_alive(60)
