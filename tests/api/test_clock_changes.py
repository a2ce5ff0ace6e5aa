"""A host's clock that is set, and a host that sleeps, move no session's deadline."""

import asyncio
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import slots
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.sessions import deadlines, kept_workspaces, sessions
from orchestrator.sessions.deadlines import due
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from tests.api.conftest import Api
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

ADMIN = Principal("admin", Role.ADMIN)
FORWARD = timedelta(hours=2)
LIMITS = {"wall_timeout": 3600, "idle_timeout": 1800, "budget": {"time": 900}}


class SetClock(datetime):
    """The clock of a host that has been set."""

    forward = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "SetClock":
        moment = datetime.now(tz) + cls.forward
        return cls.fromtimestamp(moment.timestamp(), tz)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[SetClock]:
    for module in (deadlines, kept_workspaces, sessions):
        monkeypatch.setattr(module, "datetime", SetClock)
    monkeypatch.setattr(SetClock, "forward", timedelta())
    return SetClock


async def only(api: Api) -> Session:
    await api.session(id="box", **LIMITS)
    (session,) = api.plane.sessions.registry.live
    return session


@pytest.mark.parametrize("forward", [FORWARD, -FORWARD])
async def test_each_deadline_is_as_far_away_as_before(
    api: Api, clock: type[SetClock], forward: timedelta
) -> None:
    session = await only(api)
    before = {name: at - datetime.now(UTC) for name, at in deadlines.deadlines(session).items()}
    assert len(before) == 3
    clock.forward = forward
    api.plane.clock.announce(forward)
    after = {name: at - clock.now(UTC) for name, at in deadlines.deadlines(session).items()}
    for name, left in before.items():
        assert timedelta() <= left - after[name] < timedelta(minutes=1), name
    assert due(session, clock.now(UTC)) is None


async def test_a_kept_workspace_does_not_expire_by_it(
    settings: Settings,
    engine: FakeEngine,
    agents: Agents,
    clock: type[SetClock],
) -> None:
    """Its retention has passed by the new clock, also for the next control plane."""
    keeping = settings.model_copy(update={"workspace_retention": 3600})
    plane = await ControlPlane.open(keeping, engine)
    for name in ("box", "old"):
        session, *_ = await plane.sessions.create(ADMIN, NewSession(id=name))
        await plane.sessions.close(ADMIN, session, purge=False)
    clock.forward = FORWARD
    plane.clock.announce(FORWARD)
    async with asyncio.timeout(WAIT_SECONDS):
        while await kept_since(plane) < clock.now(UTC) - timedelta(minutes=1):
            pass  # nothing says that it is written
    await plane.database.write(
        lambda conn: conn.execute("UPDATE workspaces SET kept_since = '2026' WHERE id = 'old'")
    )
    await plane.close()
    plane = await reopened(keeping, engine, agents)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(found := await plane.database.read(slots.kept)) == 2:
                pass
        assert [workspace.id for workspace in found] == ["box"]
    finally:
        await plane.close()


async def kept_since(plane: ControlPlane) -> datetime:
    found = await plane.database.read(slots.next_expiry)
    assert found is not None
    return datetime.fromisoformat(found)


async def test_a_deadline_that_passed_while_the_host_slept_is_met_at_once(
    api: Api, clock: type[SetClock]
) -> None:
    session = await only(api)
    clock.forward = FORWARD
    api.plane.clock.announce(timedelta())
    await until(lambda: not session.live)
