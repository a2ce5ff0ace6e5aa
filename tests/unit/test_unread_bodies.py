"""How much of unfinished bodies is held, and how fast they must come. Pure."""

import pytest

from api.http.body import Pace, Window
from api.http.bounds import Unread, UnreadLimits
from orchestrator.ground.errors import CapacityExhaustedError, RateLimitedError, ValidationError
from orchestrator.rules.access.keys import Principal, Role

KEY = Principal("key", Role.OPERATOR)
OTHER = Principal("other", Role.OPERATOR)
HANDLES = [
    Principal(f"handle:{name}", Role.HANDLE, session_key=name, owner="key") for name in "abcd"
]


def test_a_handle_does_not_use_up_what_its_key_or_another_has() -> None:
    unread = Unread(UnreadLimits(bytes=(100, 150, 1000), requests=(9, 9, 9)))
    with unread.body(HANDLES[0]) as one, unread.body(HANDLES[1]) as two, unread.body(KEY) as own:
        one.add(100)
        with pytest.raises(RateLimitedError) as refused:
            one.add(1)
        assert refused.value.fields["limit"] == "max_unread_bytes"
        two.add(50)
        with pytest.raises(RateLimitedError, match="all handles"):
            two.add(1)
        own.add(100)
        # What was refused is not counted.
        assert unread.bytes[("all", "")] == 250
    assert not unread.bytes
    assert not unread.requests


def test_all_together_are_bounded() -> None:
    unread = Unread(UnreadLimits(bytes=(100, 150, 150), requests=(2, 3, 3)))
    with unread.body(KEY) as one, unread.body(OTHER) as two, unread.body(OTHER):
        one.add(100)
        with pytest.raises(CapacityExhaustedError) as refused:
            two.add(51)
        assert refused.value.fields["retry_after"] == 1
        with pytest.raises(RateLimitedError) as more, unread.body(OTHER):
            pass
        assert more.value.fields["limit"] == "max_unread_requests"
        with pytest.raises(CapacityExhaustedError), unread.body(KEY):
            pass
    assert not unread.bytes
    assert not unread.requests


def test_a_body_that_keeps_the_pace_may_take_long() -> None:
    window = Window(Pace(10, 2.0))
    for _ in range(100):
        window.passed(1.0, 10)


@pytest.mark.parametrize("step", [0.001, 0.5, 5.0])
def test_one_that_does_not_is_ended(step: float) -> None:
    window = Window(Pace(10, 2.0))
    window.passed(0.0, 19)
    for _ in range(round(2 / step) - 1):
        window.passed(step, 0)
    with pytest.raises(ValidationError, match="19 bytes in 2 s, and at least 20"):
        window.passed(2 * step, 0)


def test_the_server_s_own_time_does_not_count() -> None:
    window = Window(Pace(10, 2.0))
    for _ in range(100):
        window.passed(0.0, 0)
    assert window.left == 2.0
