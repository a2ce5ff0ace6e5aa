"""A host's clock that is set, and a host that sleeps, move no session's deadline."""

from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from orchestrator.sessions import deadlines, sessions
from orchestrator.sessions.deadlines import due
from orchestrator.state.session import Session
from tests.api.conftest import Api
from tests.support.until import until

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
    for module in (deadlines, sessions):
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


async def test_a_deadline_that_passed_while_the_host_slept_is_met_at_once(
    api: Api, clock: type[SetClock]
) -> None:
    session = await only(api)
    clock.forward = FORWARD
    api.plane.clock.announce(timedelta())
    await until(lambda: not session.live)
