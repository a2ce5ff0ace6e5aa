"""Limits on the record of sessions and keys, over HTTP: counted, bounded, cheap to refuse."""

import asyncio
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.host.engine.base import ContainerState
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.record.audit import query, refusals
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from paddock.contract.words import Kind
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

pytestmark = pytest.mark.slow

SESSIONS = "/api/sessions"
LEAST = 65_536
HIGHER = {"settings": {"permission_level": "high"}}
LOWER = {"settings": {"permission_level": "low"}}
# The most that the event over the limit and the session's end may take.
ENDS = 16_384


async def recorded(api: Api, key: str) -> tuple[int, int]:
    """Events and bytes of a chain according to the database."""
    rows = await api.plane.database.read(
        lambda connection: connection.execute(
            "SELECT count(*), sum(length(CAST(body AS BLOB))) FROM events WHERE session_key = ?",
            (key,),
        ).fetchone()
    )
    return int(rows[0]), int(rows[1])


def found(api: Api, session_id: str) -> Session:
    session = api.plane.sessions.registry.get(session_id)
    assert session is not None
    return session


async def refuse(api: Api, handle: str, number: int) -> int:
    """Sends a command that is refused, a different one for each number; returns the status."""
    body = {"argv": ["nothing-allowed", f"{number}", "x" * 60_000]}
    response = await api.call("POST", f"{SESSIONS}/box/exec", json=body, key=handle)
    return response.status


async def test_refusals_use_up_the_record_and_end_the_session(api: Api) -> None:
    made = await api.session(
        id="box", permission_level="low", budget={"audit_bytes": LEAST}, key=OPERATOR_KEY
    )
    session = found(api, "box")
    statuses: list[int] = []
    while not statuses or statuses[-1] == 403:
        assert len(statuses) < 200
        statuses.append(await refuse(api, made["handle"], len(statuses)))
    assert statuses[-1] == 429
    await until(lambda: not session.live)
    shown = await api.json("GET", f"{SESSIONS}/box")
    assert shown["status"] == "budget-exceeded"
    consumed = shown["budget"]["consumed"]["audit_bytes"]
    assert LEAST <= consumed < LEAST + ENDS
    events, size = await recorded(api, session.key)
    assert size <= consumed
    for _ in range(20):
        assert await refuse(api, made["handle"], 0) in (401, 429)
    assert (await recorded(api, session.key))[0] == events
    ends = await api.json("GET", f"{SESSIONS}/box/audit?operation=budget.exceeded")
    assert [event["args"]["kind"] for event in ends["items"]] == ["audit_bytes"]


async def test_a_program_that_executes_without_end_is_stopped(api: Api) -> None:
    api.agents.plays["loop"] = Play(holds=True)
    await api.session(id="box", permission_level="high", budget={"audit_bytes": LEAST})
    session = found(api, "box")
    run = {"argv": ["loop"], "background": True}
    started = await api.json("POST", f"{SESSIONS}/box/exec", json=run, status=202)
    for number in range(500):
        command_id = started["command_id"]
        args = {"command_id": command_id, "path": "/x", "argv": ["y" * 1000, str(number)]}
        api.agent.emit("command.exec", command_id=command_id, decision=None, args=args)
    await until(lambda: not session.live)
    assert session.status == "budget-exceeded"
    assert session.budget.exceeded is not None
    assert session.budget.exceeded.kind == "audit_bytes"


async def test_what_is_counted_is_stored(api: Api) -> None:
    await api.session(id="box", permission_level="high")
    await api.json("POST", f"{SESSIONS}/box/exec", json={"argv": ["true"]})
    session = found(api, "box")
    (stored,) = await api.plane.database.read(
        lambda connection: connection.execute(
            "SELECT audit_bytes FROM sessions WHERE key = ?", (session.key,)
        ).fetchone()
    )
    assert stored == session.budget.used(Kind.AUDIT_BYTES) > 0
    events, size = await recorded(api, session.key)
    assert stored == size + events * 512


async def test_a_level_says_how_much_may_be_recorded(api: Api) -> None:
    levels = {item["name"]: item for item in (await api.json("GET", "/api/policies"))["items"]}
    low = levels["low"]["audit_bytes"]
    made = await api.session(permission_level="low")
    assert made["budget"]["limits"]["audit_bytes"] == low
    for most, problem in ((low + 1, "at most"), (LEAST - 1, "greater than or equal")):
        body = {"permission_level": "low", "budget": {"audit_bytes": most}}
        refused = await api.problem(400, "validation_error", "POST", SESSIONS, json=body)
        assert refused["field"] == "budget.audit_bytes"
        assert problem in refused["detail"]


class TestQuota:
    """A quota for all sessions of a key together."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"key_max_audit_bytes": 40_000})

    async def test_a_key_that_has_used_up_its_quota_gets_nothing_more(self, api: Api) -> None:
        made = await api.session(id="box", permission_level="low", key=OPERATOR_KEY)
        session = found(api, "box")
        statuses: list[int] = []
        while not statuses or statuses[-1] == 403:
            assert len(statuses) < 200
            statuses.append(await refuse(api, made["handle"], len(statuses)))
        events, _ = await recorded(api, session.key)
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", f"{SESSIONS}/box/exec", {"json": {"argv": ["ls"]}}),
            ("GET", f"{SESSIONS}/box/files?path=/etc/passwd", {}),
            ("PUT", f"{SESSIONS}/box/files?path=a", {"data": b"x"}),
            ("POST", f"{SESSIONS}/box/handle", {}),
            ("POST", SESSIONS, {"json": {}}),
        ]
        for method, path, arguments in calls:
            problem = await api.problem(
                429, "rate_limited", method, path, key=OPERATOR_KEY, **arguments
            )
            assert problem["limit"] == "max_audit_bytes"
        assert (await recorded(api, session.key))[0] == events
        # Another key has its own quota, the admin has none, and ends are always recorded.
        await api.session(key=OTHER_KEY)
        await api.session(key=ADMIN_KEY)
        await api.call("DELETE", f"{SESSIONS}/box", key=OPERATOR_KEY)
        assert session.status == "completed"
        assert (await recorded(api, session.key))[0] > events

    async def test_what_ended_counts_after_a_restart(
        self, api: Api, settings: Settings, engine: FakeEngine
    ) -> None:
        await api.session(id="box", permission_level="low", key=OPERATOR_KEY)
        session = found(api, "box")
        for number in range(5):
            await refuse(api, ADMIN_KEY, number)
        await api.call("DELETE", f"{SESSIONS}/box", key=OPERATOR_KEY)
        used = session.budget.used(Kind.AUDIT_BYTES)
        await api.plane.close()
        again = await ControlPlane.open(settings, engine)
        try:
            assert again.executions._recorder._room is not None
            assert again.executions._recorder._room.used("operator") == used
        finally:
            await again.close()


class TestFloor:
    """A disk that is almost full."""

    @pytest.fixture
    async def full(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> Session:
        api.agents.plays["loop"] = Play(holds=True)
        await api.session(id="box", permission_level="high")
        run = {"argv": ["loop"], "background": True}
        await api.json("POST", f"{SESSIONS}/box/exec", json=run, status=202)
        room = api.plane.executions._recorder._room
        monkeypatch.setattr(room, "_least_free", 2**62)
        return found(api, "box")

    async def test_nothing_new_is_done(self, api: Api, full: Session) -> None:
        events, _ = await recorded(api, full.key)
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", f"{SESSIONS}/box/exec", {"json": {"argv": ["ls"]}}),
            ("POST", f"{SESSIONS}/box/ptys", {"json": {"tool": "psql"}}),
            ("PUT", f"{SESSIONS}/box/files?path=a", {"data": b"x"}),
            (
                "PUT",
                f"{SESSIONS}/box/settings",
                {"json": {"settings": {"permission_level": "high"}}},
            ),
            ("POST", f"{SESSIONS}/box/handle", {}),
            ("POST", SESSIONS, {"json": {}}),
        ]
        for method, path, arguments in calls:
            problem = await api.problem(503, "capacity_exhausted", method, path, **arguments)
            assert problem["retry_after"]
        assert (await recorded(api, full.key))[0] == events

    async def test_what_is_paused_stays_so(self, api: Api, full: Session) -> None:
        await api.json("POST", f"{SESSIONS}/box/pause")
        await api.problem(503, "capacity_exhausted", "POST", f"{SESSIONS}/box/resume")
        (container,) = api.engine.containers.values()
        assert container.state is ContainerState.PAUSED

    async def test_what_stops_goes_on(self, api: Api, full: Session) -> None:
        await api.json("PUT", f"{SESSIONS}/box/settings", json=LOWER)
        await api.call("DELETE", f"{SESSIONS}/box")
        assert not full.live

    async def test_a_program_that_fills_the_ledger_is_ended(self, api: Api, full: Session) -> None:
        (command,) = full.running
        args = {"command_id": command.id, "path": "/x", "argv": ["x"]}
        api.agent.emit("command.exec", command_id=command.id, decision=None, args=args)
        async with asyncio.timeout(WAIT_SECONDS):
            await api.agent.asked("cancel")


async def denials(api: Api) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next": 0}
    while page["next"] is not None:
        path = f"{SESSIONS}/box/audit?decision=deny&limit=500&after={page['next']}"
        page = await api.json("GET", path)
        items += page["items"]
    return items


async def test_the_same_refusal_again_and_again_is_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_RATE", 0)  # independent of the machine's speed
    made = await api.session(id="box", permission_level="low", key=OPERATOR_KEY)
    session = found(api, "box")
    for _ in range(300):
        assert await refuse(api, made["handle"], 0) == 403
    assert await refuse(api, made["handle"], 1) == 403
    await api.call("DELETE", f"{SESSIONS}/box", key=OPERATOR_KEY)
    assert not session.live
    items = await denials(api)
    told = [item["args"].get("repeats", 1) for item in items]
    assert sum(told) == 301
    assert max(told) > 1
    assert {item["args"]["argv"][1] for item in items} == {"0", "1"}


async def test_what_was_counted_is_on_record_when_the_control_plane_stops(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_BURST", 1)
    monkeypatch.setattr(refusals, "_RATE", 0)
    monkeypatch.setattr(refusals, "_SECONDS", 3600)
    made = await api.session(id="box", permission_level="low")
    session = found(api, "box")
    for _ in range(10):
        await refuse(api, made["handle"], 0)
    await api.plane.close()
    again = await reopened(settings, api.engine, api.agents)
    try:
        events = await query.latest_denials(again.database, session.key, 10)
        assert [event["args"].get("repeats") for event in events] == [9, None]
    finally:
        await again.close()


@pytest.fixture
def counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every similar refusal after the first is counted, and reported when the session ends."""
    monkeypatch.setattr(refusals, "_BURST", 1)
    monkeypatch.setattr(refusals, "_RATE", 0)
    monkeypatch.setattr(refusals, "_SECONDS", 3600)


@pytest.mark.usefixtures("counted_at_once")
async def test_the_end_tells_how_many_refusals_could_not_be_recorded(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await api.session(id="box", permission_level="low")
    session = found(api, "box")
    for _ in range(10):
        await refuse(api, made["handle"], 0)
    recorder = api.plane.executions._recorder

    async def failing(session: Session, members: dict[str, Any]) -> None:
        raise AuditUnavailableError("the disk is full")

    monkeypatch.setattr(recorder._refusals, "_record", failing)
    await api.call("DELETE", f"{SESSIONS}/box")
    assert not session.live
    events = await api.json("GET", f"{SESSIONS}/box/audit?operation=session.terminated")
    assert [event["args"] for event in events["items"]] == [{"untold_refusals": 9}]


@pytest.mark.usefixtures("counted_at_once")
async def test_a_kill_says_that_refusals_may_be_missing(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await api.session(id="box", permission_level="low")
    await api.session(id="other", permission_level="low")
    session, other = found(api, "box"), found(api, "other")
    for _ in range(10):
        await refuse(api, made["handle"], 0)

    async def lost(counted: object) -> None:
        """Reports nothing, as if the control plane had been killed."""

    monkeypatch.setattr(api.plane.executions._recorder._refusals, "_record_counted", lost)
    await api.plane.close()
    for _ in range(2):  # only one gap is recorded
        again = await reopened(settings, api.engine, api.agents)
        try:
            (gap,) = await query.events(again.database, session.key, operation="audit.gap")
            assert list(gap["args"]) == ["refusals_since"]
            assert "refusals since" in gap["error"]
            assert not await query.events(again.database, other.key, operation="audit.gap")
        finally:
            await again.close()


async def test_commands_that_run_out_of_memory_again_and_again_are_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine reports each one unasked, and nothing else limits the events."""
    monkeypatch.setattr(refusals, "_RATE", 0)
    await api.session(id="box", permission_level="high")
    session, seq = found(api, "box"), 0
    (container,) = api.engine.containers
    for _ in range(300):
        api.engine.emit("oom", container)
    path = f"{SESSIONS}/box/audit?operation=command.oom&limit=1000"
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            items = (await api.json("GET", path))["items"]
            if sum(item["args"].get("repeats", 1) for item in items) == 300:
                break
            seq = await api.plane.ledger.wait(session.key, seq)
    assert len(items) < 300
    assert {item["decision"] for item in items} == {None}
    assert {item["source"] for item in items} == {"engine"}
