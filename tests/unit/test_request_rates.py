"""Requests of keys and handles, counted separately."""

from dataclasses import dataclass

import pytest

from api.http.bounds import RequestRates
from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.limits import KeyLimits
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.settings.settings import Settings

OWNER = Principal("ci", Role.OPERATOR, limits=KeyLimits(requests_per_second=10))


@dataclass
class Clock:
    """A clock that moves only when a test sets it."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def handle(number: int, owner: str = "ci") -> Principal:
    return Principal(f"handle:{number}", Role.HANDLE, f"key-{number}", owner)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock) -> RequestRates:
    settings = Settings(key_handle_requests_per_second=5, key_burst_seconds=1)
    return RequestRates(settings, KeyRing({"a": OWNER}), clock)


def served(rates: RequestRates, principal: Principal, most: int = 1000) -> int:
    """The number of requests that succeed now."""
    for number in range(most):
        try:
            rates.spend(principal)
        except RateLimitedError:
            return number
    return most


def test_a_handle_has_its_own_rate(rates: RequestRates, clock: Clock) -> None:
    assert served(rates, handle(1)) == 5
    assert served(rates, OWNER) == 10
    with pytest.raises(RateLimitedError, match="handle_requests_per_second of this session is 5"):
        rates.spend(handle(1))
    clock.now += 0.45
    assert served(rates, handle(1)) == 2


def test_all_handles_of_a_key_have_as_much_as_the_key(rates: RequestRates, clock: Clock) -> None:
    """With any number of sessions, no owner gets more than twice a key's share."""
    assert [served(rates, handle(number)) for number in range(4)] == [5, 5, 0, 0]
    with pytest.raises(RateLimitedError, match="of all handles of the session's key is 10"):
        rates.spend(handle(3))
    assert served(rates, OWNER) == 10
    assert served(rates, handle(9, owner="other")) == 5
    clock.now += 0.35
    assert served(rates, handle(3)) == 3


def test_a_viewer_is_counted_on_its_own(rates: RequestRates) -> None:
    viewer = Principal("dash", Role.VIEWER, owner="ci", limits=KeyLimits(requests_per_second=3))
    assert served(rates, viewer) == 3
    assert served(rates, OWNER) == 10


def test_buckets_of_sessions_that_are_gone_are_forgotten(rates: RequestRates, clock: Clock) -> None:
    for number in range(1000):
        rates.spend(handle(number))
        clock.now += 0.5
    assert len(rates) < 10
