"""Counts of what is open, by key."""

from orchestrator.ground.counts import Counts


def test_each_key_has_its_own_share_until_it_ends() -> None:
    counts: Counts[str] = Counts(2)
    with counts.taken("a") as one, counts.taken("a") as two, counts.taken("a") as three:
        assert (one, two, three) == (True, True, False)
        assert (counts.of("a"), counts.of("b")) == (2, 0)
        with counts.taken("b") as other:
            assert (other, counts.total()) == (True, 3)
    assert counts.of("a") == 0
    with counts.taken("a") as again:
        assert again
