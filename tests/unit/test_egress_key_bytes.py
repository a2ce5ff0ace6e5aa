"""The bytes of a key on one day: their limit, and who is told of its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.limits import KeyLimits
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.rules.egress.rules import Decision
from orchestrator.sandbox.egress.key_bytes import KEY_SPENT, KeyBytes

ALLOWED, DENIED = Decision(True, "allow a.example"), Decision(False, "not-listed")


class Days:
    """A calendar."""

    def __init__(self) -> None:
        self.day = "2026-03-04"

    def __call__(self) -> str:
        return self.day


def counted(limit: int | None = 100, role: Role = Role.OPERATOR) -> tuple[KeyBytes, Days]:
    days = Days()
    limits = KeyLimits(max_egress_bytes_per_day=limit)
    keys = KeyRing({"0": Principal("ci", role, limits=limits), "1": Principal("other", role)})
    return KeyBytes(keys, KeyLimits(), days), days


def test_the_end_of_a_key_s_bytes_denies_and_tells() -> None:
    counts, days = counted()
    told: list[str] = []
    forget = counts.on_spent("ci", lambda: told.append("ci"))
    counts.on_spent("other", lambda: told.append("other"))
    counts.add("ci", 99)
    assert (counts.left("ci"), told) == (1, [])
    assert counts.decided("ci", ALLOWED) is ALLOWED
    counts.add("ci", 1)
    assert (counts.left("ci"), told) == (0, ["ci"])
    denied = counts.decided("ci", ALLOWED)
    assert (denied.allow, denied.rule) == (False, KEY_SPENT)
    assert counts.decided("ci", DENIED) is DENIED
    assert counts.decided("other", ALLOWED) is ALLOWED
    days.day = "2026-03-05"
    assert (counts.used("ci"), counts.left("ci")) == (0, 100)
    assert counts.decided("ci", ALLOWED) is ALLOWED
    forget()
    forget()
    counts.add("ci", 100)
    assert told == ["ci"]
    assert counts.total == 200


@pytest.mark.parametrize(("limit", "role"), [(None, Role.OPERATOR), (0, Role.ADMIN)])
def test_some_keys_have_no_limit(limit: int | None, role: Role) -> None:
    counts, _ = counted(limit, role)
    counts.add("ci", 10**15)
    assert counts.left("ci") is None
    assert counts.decided("ci", ALLOWED) is ALLOWED


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 10**6))))
def test_bytes_count_for_their_key_and_day(moves: list[tuple[str, int]]) -> None:
    counts, days = counted()
    sums: dict[tuple[str, str], int] = {}
    for number, (owner, size) in enumerate(moves):
        days.day = f"day {number // 3}"
        counts.add(owner, size)
        place = (days.day, owner)
        sums[place] = sums.get(place, 0) + size
        assert counts.used(owner) == sums[place]
